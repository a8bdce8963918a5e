"""The output of a run: live table, plain lines, closing lines, text tables."""
