"""The runs and sweeps that paths on the command line stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from partrain.checkpoint.runs import run_of, silent
from partrain.errors import InputMissing
from partrain.record.file_names import EVENTS, RANKING, STEP
from partrain.system.regular_file import read_json
from partrain.workflow.record import StepRecord

BEST_RUNS = 8
"""Most runs of a sweep whose curves are drawn: those of the best combinations."""


@dataclass
class SweepResult:
    """The ranking of a sweep."""

    name: str
    by: str
    largest: bool
    difference: str
    rows: list[dict[str, Any]]
    """Settings, median, values and runs of each combination, the best first."""


@dataclass
class Sources:
    """All that a report shows."""

    runs: list[Path] = field(default_factory=list)
    """Run folders."""
    sweeps: list[SweepResult] = field(default_factory=list)
    steps: dict[str, StepRecord] = field(default_factory=dict)
    """Records of a workflow's steps by name."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the reader: what was left out."""


def find(paths: Sequence[Path], note: Callable[[str], None] = silent) -> Sources:
    """Find what paths stand for: run folders, sweeps and workflows; a folder of runs stands for its newest run.

    Raises `InputMissing` for a path that holds none.
    """
    sources = Sources()
    for path in paths:
        if not path.is_dir():
            raise InputMissing(f"{path}: " + ("not a run folder" if path.exists() else "no such folder") + "; give the folder that `partrain run` printed")  # fmt: skip
        if (path / EVENTS).exists():
            sources.runs.append(path)
        elif (path / RANKING).exists():
            _sweep(path, "", sources)
        elif steps := _steps(path):
            _workflow(path, steps, sources)
        else:
            sources.runs.append(run_of(path, note))
    sources.runs = list(dict.fromkeys(sources.runs))
    return sources


def _steps(folder: Path) -> dict[str, StepRecord]:
    """Return the records of a workflow's steps, in the order in which they started."""
    try:
        records = {path.parent.name: StepRecord.read(path.parent) for path in sorted(folder.glob(f"*/{STEP}"))}
    except OSError as error:
        raise InputMissing(f"{folder}: cannot be read: {error.strerror}") from None
    started = {name: record for name, record in records.items() if record}
    return dict(sorted(started.items(), key=lambda item: item[1].started))


def _workflow(folder: Path, steps: dict[str, StepRecord], sources: Sources) -> None:
    sources.steps.update(steps)
    for name in steps:
        if (folder / name / RANKING).exists():
            _sweep(folder / name, name, sources)
        elif (folder / name / EVENTS).exists():
            sources.runs.append(folder / name)


def _sweep(folder: Path, name: str, sources: Sources) -> None:
    try:
        content = read_json(folder / RANKING)
        rows = [row for row in content["rows"] if isinstance(row["settings"], dict) and row["runs"]]
        result = SweepResult(name, str(content["by"]), bool(content["largest"]), str(content.get("difference", "")), rows)
        best = [folder / _best_run(row, largest=result.largest) for row in rows[:BEST_RUNS]]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputMissing(f"{folder / RANKING}: not the ranking of a sweep: {error}") from None
    sources.sweeps.append(result)
    sources.runs += [run for run in best if (run / EVENTS).exists()]
    if len(rows) > BEST_RUNS:
        sources.notes.append(f"Curves are of the {BEST_RUNS} best of {len(rows):,} combinations, the best run of each.")


def _best_run(row: dict[str, Any], *, largest: bool) -> str:
    pairs = [(value, run) for value, run in zip(row["values"], row["runs"], strict=True) if value is not None]
    if not pairs:
        return Path(str(row["runs"][0])).name
    return Path(str((max if largest else min)(pairs)[1])).name  # a name only: the file may be hostile
