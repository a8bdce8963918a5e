"""The whole job file."""
