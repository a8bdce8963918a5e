"""Data sets of tables: CSV and Parquet, with rows as items or as moments of a series."""
