"""Transports: how the workers of a group reach one another."""
