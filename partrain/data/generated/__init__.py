"""Data sets that are computed."""
