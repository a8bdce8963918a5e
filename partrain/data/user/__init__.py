"""Data sets of user code."""
