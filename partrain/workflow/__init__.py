"""Workflows: many jobs, commands of partrain and programs as steps of one TOML file, run in order, at once, and again only after changes."""
