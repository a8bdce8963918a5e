"""`partrain watch --once`: one frame on stdout, without Textual."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from partrain.display.live_table import ASCII, UNICODE, Line, frame
from partrain.watch.layout import SORTS, Marks, list_lines
from partrain.watch.runs import Runs
from partrain.watch.watched import RunRow, WatchedRun


def read_once(root: Path) -> Runs:
    """Read all runs below a folder in their current state."""
    runs = Runs(root)
    runs.look(0.0)
    if only := single(runs):
        while only.read(60.0):
            pass
    runs.read_all()
    return runs


def single(runs: Runs) -> WatchedRun | None:
    """Return the run if the folder is a single run's."""
    return runs.runs.get(runs.root)


def rows_of(runs: Runs, sort: str = "newest") -> list[RunRow]:
    """Return the rows of all runs and steps, sorted."""
    key, _ = SORTS[sort]
    rows = [run.row for run in runs.runs.values() if not run.gone] + [step.row for step in runs.steps.values()]
    return sorted(sorted(rows, key=lambda row: row.name), key=lambda row: key(row))


def once_lines(runs: Runs, now: float, width: int, height: int, *, unicode: bool = True) -> list[str]:
    """Return the lines of one frame: the live table of a single run, else a line for each run."""
    only = single(runs)
    lines: list[Line]
    if only is not None:
        lines = frame(only.shown(), now, width, height, UNICODE if unicode else ASCII, str(only.folder))
    else:
        rows = rows_of(runs)
        lines = list_lines(rows, Marks(), width, len(rows) + 1) if rows else [[("no run yet", "")]]
    return ["".join("".join(char if char.isprintable() else " " for char in text) for text, _ in line).rstrip() for line in lines]


def document(runs: Runs) -> list[dict[str, Any]]:
    """Return the rows of all runs for JSON."""
    return [
        {
            "folder": row.folder, "rule": row.rule, "status": row.status, "round": row.round, "loss": row.loss,
            "accuracy": row.accuracy, "items_per_second": row.rate, "seconds": row.seconds, "item_iterations": row.items,
        }
        for row in rows_of(runs)
    ]  # fmt: skip
