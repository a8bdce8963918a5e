"""The kinds of TOML files that `partrain run` accepts: workflows, jobs with a sweep, and jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from partrain.config.overrides import override
from partrain.config.toml_source import TomlSource
from partrain.errors import Failure


def is_workflow(path: Path) -> bool:
    """Return whether a TOML file is a workflow: it has `[[steps]]`. A file that cannot be read is not one."""
    return "steps" in _tables(path, ())


def is_job(path: Path) -> bool:
    """Return whether a TOML file is a job: it has `[dataset]`. A file that cannot be read is not one."""
    return "dataset" in _tables(path, ())


def is_sweep(path: Path, overrides: Sequence[str] = ()) -> bool:
    """Return whether a job with its `--set` arguments has a `[sweep]` that varies something; `--set sweep={}` turns it off."""
    return bool(_tables(path, overrides).get("sweep"))


def _tables(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    try:
        return override(TomlSource.read(path), overrides).data
    except Failure:
        return {}
