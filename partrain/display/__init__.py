"""What a run tells: its event log, its state, the live table and plain lines."""
