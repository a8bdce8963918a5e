"""This process and this machine."""
