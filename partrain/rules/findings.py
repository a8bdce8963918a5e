"""Findings about a job, as rules report them: for a key of `[sync]`, or for the path of another key of the job."""

from __future__ import annotations

from partrain.config.problems import Finding, KeyPath


def error(key: str | KeyPath, message: str, advice: str = "") -> Finding:
    """Make a finding that refuses the job."""
    return Finding(_path(key), message, advice)


def warning(key: str | KeyPath, message: str, advice: str = "") -> Finding:
    """Make a finding that the user may ignore."""
    return Finding(_path(key), message, advice, severity="warning")


def _path(key: str | KeyPath) -> KeyPath:
    return ("sync", key) if isinstance(key, str) else key
