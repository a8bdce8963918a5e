"""Assertions on results: `test.accuracy >= 0.97` must hold for each run; for a job, for the median over its seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from partrain.runs.conditions import Condition
from partrain.runs.selection import check_names, holds, values_of

RECORDED = (
    "status", "reason", "rounds", "judged_round", "loss", "metrics.accuracy", "best.round", "best.loss", "best.metrics.accuracy",
    "test.loss", "test.accuracy", "seconds.startup", "seconds.train", "seconds.total", "item_iterations",
)  # fmt: skip
"""Names in summary.json that a run may record."""
OPEN = ("metrics", "best", "test", "workers")
"""Tables of summary.json whose names depend on the job."""


def check_names_of_jobs(names: Iterable[str], facts: Sequence[str], recorded: Iterable[str]) -> None:
    """Check names before the jobs are trained; a user task may have metrics of any name. Raises `BadSelection`."""
    check_names((name for name in names if name.partition(".")[0] not in OPEN), [*facts, *RECORDED, *recorded])


def medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the median of each number over runs; None if a run lacks it. A word stays if all runs have it."""
    names = dict.fromkeys(name for numbers in runs for name in numbers)
    return {name: _middle([numbers.get(name) for numbers in runs]) for name in names}


def verdict(label: str, condition: Condition, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return whether a condition holds for the runs of a job, with a line that states it."""
    middle = medians(runs)
    good = holds(condition, middle)
    of = f" (medians of {len(runs)} seeds)" if len(runs) > 1 else ""
    line = f"{label}: `{condition.text}` {'holds' if good else 'does not hold'}: {values_of(condition, middle)}{of}"
    return {"label": label, "condition": condition.text, "holds": good, "line": line}


def _middle(values: Sequence[Any]) -> Any:
    if all(isinstance(value, int | float) for value in values):
        return statistics.median(values)
    return values[0] if all(value == values[0] for value in values) else None
