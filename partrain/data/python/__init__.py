"""Data sets that are objects of a Python script: arrays and DataFrames."""
