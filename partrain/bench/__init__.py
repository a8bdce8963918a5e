"""Benchmarks: whole runs, interleaved over cases, with several seeds each, reported as medians and spread."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from partrain import number_format
from partrain.display.display import Display
from partrain.errors import INTERRUPTED, OK, TERMINATED, BadJob, Diverged
from partrain.job.load import LoadedJob
from partrain.launch.context import RunContext
from partrain.launch.folder.outcome import Outcome
from partrain.launch.folder.run_folder import new_folder
from partrain.launch.run import run
from partrain.launch.signals import Signals, handled
from partrain.number_format import counted
from partrain.record.run_state import RunState
from partrain.system.cores import usable_cores
from partrain.system.environment import boot_seconds

FREE = 0.5
"""Number of cores that other programs may use in the last minute before a measurement."""


@dataclass(frozen=True)
class Case:
    """One row of a table: a job for each seed."""

    label: str
    """A unique label for each case."""
    job: Callable[[int], LoadedJob]
    """The job for a seed."""


class Interrupted(SystemExit):
    """A signal ended a run early, or before it started."""

    code: int
    """Exit code for the signal."""


def outcomes(
    cases: Sequence[Case], seeds: Sequence[int], note: Callable[[str], None]
) -> Generator[tuple[Case, Outcome], None, None]:
    """Run every case with every seed; each run folder exists until the next run begins.

    Seeds are the outer loop, so that other load on the machine falls on all cases alike. Divergence is an outcome. Any other failure
    is raised, and `Interrupted` after a signal.
    """
    if cases:
        note(
            f"{counted(len(cases) * len(seeds), 'run')}: {counted(len(cases), 'job')} with {counted(len(set(seeds)), 'seed')}; their networks are not kept"
        )
    with _interruptible() as signals:
        for seed in seeds:
            for case in cases:
                with tempfile.TemporaryDirectory(prefix="partrain-bench-") as scratch:
                    outcome = _run(case, seed, Path(scratch), note, signals)
                    yield case, outcome
                done = outcome.summary  # recorded together with its removal: a signal comes before both, or after
                seconds, items = done["seconds"]["train"], done["item_iterations"]
                note(f"{case.label}, seed {seed}: {done['status']} after {seconds:.2f} s, {items:,} items")


@contextmanager
def _interruptible() -> Iterator[Signals]:
    """Catch signals between two runs, during which no run handles them. A second signal raises.

    The first does not raise, because an exception in a handler is lost inside a finalizer.
    """
    signals = Signals()

    def leave(number: int, frame: FrameType | None) -> None:
        signals.note(number)
        if signals.count == 2:
            raise Interrupted(INTERRUPTED if number == signal.SIGINT else TERMINATED)

    with handled(leave):
        yield signals


def _run(case: Case, seed: int, scratch: Path, note: Callable[[str], None], signals: Signals) -> Outcome:
    def warn(text: str) -> None:
        note(f"{case.label}, seed {seed}: warning: {text}")

    stage = RunContext(new_folder(scratch, "bench").path, Display(RunState()), warn, started=boot_seconds(), signals=signals)
    outcome = run(case.job(seed), stage)
    if outcome.failure and not isinstance(outcome.failure, Diverged):
        raise outcome.failure
    if outcome.summary["status"] == "stopped":
        raise Interrupted(outcome.code)
    return outcome


def busy() -> str:
    """Return a message if other programs use the cores; "" if enough of them are free."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if cores - load >= usable_cores() - FREE:
        return ""
    return f"this machine is busy (load {load:.1f} on {number_format.counted(cores, 'core')}): what is measured now is slower, and varies"


def refuse_seed(overrides: Sequence[str]) -> None:
    """Raise BadJob if `--set` gives a seed: each run gets a different seed, so it would be lost."""
    for override in overrides:
        if override.partition("=")[0].strip(" \t\"'") == "seed":
            raise BadJob(
                f"--set {override}: every job runs with seeds 0, 1, ...; leave it out, and set their number with --seeds N"
            )


@dataclass
class Row:
    """The results of a case, one summary per seed."""

    summaries: list[dict[str, Any]] = field(default_factory=list)

    @property
    def reached(self) -> int:
        """Number of runs that reached their target."""
        return sum(summary["status"] == "reached" for summary in self.summaries)

    def values(self, *path: str) -> list[float]:
        """Return a number from every summary that has it, as in ``values("seconds", "train")``."""
        numbers = []
        for summary in self.summaries:
            value: Any = summary
            for key in path:
                value = value.get(key) if isinstance(value, dict) else None
            if value is not None:
                numbers.append(float(value))
        return numbers

    @property
    def seconds(self) -> list[float]:
        return self.values("seconds", "train")

    @property
    def rates(self) -> list[float]:
        """Item-iterations per second of all workers together."""
        return [summary["item_iterations"] / (summary["seconds"]["train"] or 1.0) for summary in self.summaries]

    @property
    def items_per_worker(self) -> list[float]:
        """Largest number of item-iterations of any worker."""
        return [float(max(worker["item_iterations"] for worker in summary["workers"])) for summary in self.summaries]


def measure(
    cases: Sequence[Case], seeds: int, note: Callable[[str], None], more: Callable[[Outcome], dict[str, Any]] = lambda outcome: {}
) -> tuple[list[Row], dict[str, Any]]:
    """Measure every case's row, and the progress (see `incomplete_rows`); after a signal, only completed runs count.

    `more` returns additional results of a run whose folder still exists.
    """
    if others := busy():
        note(others)
    rows, code, diverged = {case.label: Row() for case in cases}, OK, {}
    try:
        with closing(outcomes(cases, range(seeds), note)) as runs:
            for case, outcome in runs:
                rows[case.label].summaries.append(outcome.summary | more(outcome))
                if outcome.failure:
                    code, diverged[case.label] = outcome.failure.code, outcome.failure.message
    except Interrupted as interrupted:
        code = interrupted.code
    counts = [len(row.summaries) for row in rows.values()]
    without = [label for label, row in rows.items() if not row.summaries]
    progress = {"code": code, "planned": len(cases) * seeds, "finished": sum(counts), "without": without, "diverged": diverged}
    return list(rows.values()), progress


def incomplete_rows(result: Mapping[str, Any]) -> list[str]:
    """List notes below a table: rows with a run that `diverged`, and after a signal the `planned` and `finished` runs and the rows
    `without` any.
    """
    lines = [f"diverged: {label}: {why}" for label, why in result.get("diverged", {}).items()]
    if result["finished"] < result["planned"]:
        without = f", none of {'; '.join(result['without'])}" if result["without"] else ""
        lines.append(f"interrupted: the table holds {result['finished']} of {result['planned']} runs{without}")
    return ["", *lines] if lines else []


def spread(values: Sequence[float], digits: str = ",.2f") -> str:
    """Format the median with minimum and maximum, in the format `digits`."""
    return number_format.spread(values, lambda value: format(value, digits))
