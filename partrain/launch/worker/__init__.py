"""The code of a worker's process."""
