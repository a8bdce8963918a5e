"""Typed TOML tables with positions and problems. Nothing here knows a key."""
