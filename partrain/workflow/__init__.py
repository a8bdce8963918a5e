"""Workflows: jobs, partrain commands and programs as steps of one TOML file, run in order, at once, and again only if changed."""
