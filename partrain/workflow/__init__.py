"""Workflows: jobs, partrain commands and programs as steps of one TOML file, run in order, in parallel, and again only if changed."""
