"""Generated data sets."""
