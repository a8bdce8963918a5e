"""partrain: one network, many workers."""

__version__ = "0.1.0"
