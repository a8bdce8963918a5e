"""What runs in a worker's process."""
