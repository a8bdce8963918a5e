"""The output of a run: event log, run state, live table and plain lines."""
