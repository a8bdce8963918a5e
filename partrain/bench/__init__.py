"""Does it pay? Whole runs, several seeds each, taken in turn, with medians and spread."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from partrain.console import Display
from partrain.job import LoadedJob
from partrain.launch.run import Stage, new_folder, run
from partrain.view import View


@dataclass(frozen=True)
class Case:
    """One row of a table: a job for each seed."""

    label: str
    workers: int
    job: Callable[[int], LoadedJob]
    """The job for a seed."""


@dataclass
class Row:
    """What the runs of a case gave, one summary per seed."""

    case: Case
    summaries: list[dict[str, Any]] = field(default_factory=list)

    @property
    def reached(self) -> int:
        """Runs that reached their target."""
        return sum(summary["status"] == "reached" for summary in self.summaries)

    def values(self, *path: str) -> list[float]:
        """A number of every summary that has it, as in ``values("seconds", "train")``."""
        found = []
        for summary in self.summaries:
            value: Any = summary
            for key in path:
                value = value.get(key) if isinstance(value, dict) else None
            if value is not None:
                found.append(float(value))
        return found

    @property
    def seconds(self) -> list[float]:
        return self.values("seconds", "train")

    @property
    def rates(self) -> list[float]:
        """Item-iterations per second of all workers together."""
        return [summary["item_iterations"] / summary["seconds"]["train"] for summary in self.summaries]

    @property
    def items_per_worker(self) -> list[float]:
        """Most item-iterations of any worker."""
        return [float(max(worker["item_iterations"] for worker in summary["workers"])) for summary in self.summaries]


def measure(cases: Sequence[Case], seeds: int, note: Callable[[str], None]) -> list[Row]:
    """Run every case with every seed. Seeds outermost: what the machine does meanwhile falls on all cases alike."""
    rows = [Row(case) for case in cases]
    with tempfile.TemporaryDirectory(prefix="partrain-bench-") as scratch:
        for seed in range(seeds):
            for number, row in enumerate(rows):
                folder = new_folder(Path(scratch) / f"{seed}-{number}", "bench")
                outcome = run(row.case.job(seed), Stage(folder, Display(View()), started=time.time()))
                if outcome.failure:
                    raise outcome.failure
                row.summaries.append(outcome.summary)
                if outcome.summary["status"] == "stopped":
                    raise KeyboardInterrupt
                done = outcome.summary
                note(
                    f"{row.case.label}, seed {seed}: {done['status']} after {done['seconds']['train']:.2f} s, {done['item_iterations']:,} items"
                )
    return rows


def spread(values: Sequence[float], digits: str = ",.2f") -> str:
    """Median, and least to most: `1.23 (1.20-1.30)`."""
    if not values:
        return "-"
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:{digits}} ({least:{digits}}-{most:{digits}})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Text in columns: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in [head, *rows]
    ]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]
