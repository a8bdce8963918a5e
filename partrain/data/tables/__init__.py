"""Data sets of tables: CSV and Parquet, rows as items or as the moments of a series."""
