"""The kinds of TOML files that `partrain run` takes: workflows, jobs with a sweep, and jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from partrain.config.toml_source import TomlSource
from partrain.errors import Failure


def is_workflow(path: Path) -> bool:
    """Tell if a TOML file is a workflow: it has `[[steps]]`. A file that cannot be read is none."""
    return "steps" in _tables(path)


def is_sweep(path: Path, overrides: Sequence[str] = ()) -> bool:
    """Tell if a job has a `[sweep]` that varies something; `--set sweep={}` turns it off."""
    return bool(_tables(path).get("sweep")) and not any(each.replace(" ", "") == "sweep={}" for each in overrides)


def _tables(path: Path) -> dict[str, Any]:
    try:
        return TomlSource.read(path).data
    except Failure:
        return {}
