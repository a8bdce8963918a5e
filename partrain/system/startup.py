"""The time that processes take to start up."""

STARTUP_LIMIT_S = 120.0
"""Starting up, one item of a user's data set, and writing a file may take this long without a sign of life, even if
`stall_seconds` is smaller."""
