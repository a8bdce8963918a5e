"""An outline of a checkpoint for people and scripts. Needs numpy only, and imports no user code."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partrain.checkpoint.content import Content
from partrain.config.problems import Rejected
from partrain.config.toml_source import TomlSource


def describe(content: Content) -> dict[str, Any]:
    """Return a JSON-able outline: job name, run, rounds, task, tensors with norms by group and worker, ends of the history, manifest.

    `numbers` counts the network's parameters and buffers together: a checkpoint does not distinguish them. A norm that JSON
    cannot hold is None; `nonfinite` counts a tensor's NaN and infinite numbers.
    """
    groups: dict[str, dict[str, NDArray[Any]]] = {}
    for path, array in sorted(content.arrays.items()):
        group, _, name = path.partition("/")
        groups.setdefault(group, {})[name] = array
    history = groups.pop("history", {})
    workers = groups.pop("workers", {})
    network, progress = (_table(content.manifest.get(key)) for key in ("network", "progress"))
    return {
        "job": _job_name(content.job),
        "run": content.run,
        "round": content.round,
        "best_round": progress.get("best_round"),
        "item_iterations": progress.get("item_iterations"),
        "task": network.get("task"),
        "input": network.get("input"),
        "outputs": network.get("outputs"),
        "bytes": sum(array.nbytes for array in content.arrays.values()),
        "numbers": sum(array.size for array in groups.get("model", {}).values()),
        "tensors": {group: _tensors(arrays) for group, arrays in groups.items()},
        "workers": {rank: _tensors(arrays) for rank, arrays in _by_worker(workers).items()},
        "history": _history(history),
        "manifest": content.manifest,
    }


def _table(value: Any) -> Mapping[str, Any]:
    """Return a part of the manifest; empty if it is missing, as in a soup."""
    return value if isinstance(value, dict) else {}


def _job_name(job: str) -> str | None:
    try:
        name = TomlSource.parse(job, "").data.get("name")
    except Rejected:  # also TOML errors: a checkpoint with a broken job is still described
        return None
    return name if isinstance(name, str) else None


def _by_worker(arrays: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, NDArray[Any]]]:
    by_rank: dict[str, dict[str, NDArray[Any]]] = {}
    for path, array in arrays.items():
        rank, _, name = path.partition("/")
        by_rank.setdefault(rank, {})[name] = array
    return dict(sorted(by_rank.items(), key=lambda item: (len(item[0]), item[0])))  # 2 before 10


def _tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, Any]]:
    return {name: _tensor(array) for name, array in arrays.items()}


def _tensor(array: NDArray[Any]) -> dict[str, Any]:
    numbers = array.astype(np.float64)
    nonfinite = int(array.size - np.isfinite(numbers).sum())
    norm = None if nonfinite else _number(np.linalg.norm(numbers))
    return {"dtype": array.dtype.name, "shape": list(array.shape), "norm": norm, "nonfinite": nonfinite}


def _history(columns: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the number of rows, and the first and last value of each column that has one number per round."""
    rows = len(next(iter(columns.values()))) if columns else 0
    ends = {name: {"first": _number(c[0]), "last": _number(c[-1])} for name, c in columns.items() if c.ndim == 1 and rows}
    return {"rows": rows, "columns": ends}


def _number(value: Any) -> int | float | bool | None:
    number: int | float | bool = value.item()
    return number if math.isfinite(number) else None
