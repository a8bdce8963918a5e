"""Transports: communication between the workers of a group."""
