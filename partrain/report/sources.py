"""The runs and sweeps that paths on the command line refer to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from partrain.checkpoint.runs import run_of, silent
from partrain.errors import InputMissing
from partrain.record.file_names import EVENTS, RANKING, STEP
from partrain.record.run_folder import is_superseded
from partrain.runs.ranking import Ranking
from partrain.workflow.record import StepRecord

BEST_RUNS = 8
"""Maximum number of runs of a sweep whose curves are drawn: the runs of the best combinations."""


@dataclass
class Sources:
    """Everything that a report shows."""

    runs: list[Path] = field(default_factory=list)
    """Run folders."""
    sweeps: list[Ranking] = field(default_factory=list)
    steps: dict[str, StepRecord] = field(default_factory=dict)
    """Records of a workflow's steps by name."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the reader on omitted parts."""

    def ranked(self, run: Path) -> bool:
        """Return whether only a sweep's ranking shows this run. The best run of a sweep is also compared with other runs."""
        return any(run.parent == sweep.folder and run != sweep.best for sweep in self.sweeps)


def find(paths: Sequence[Path], note: Callable[[str], None] = silent) -> Sources:
    """Find the runs, sweeps and workflows at paths; for a folder of runs, its newest run.

    Raises `InputMissing` for a path without any.
    """
    sources = Sources()
    for path in paths:
        if not path.is_dir():
            raise InputMissing(f"{path}: " + ("not a run folder" if path.exists() else "no such folder") + "; give the folder that `partrain run` printed")  # fmt: skip
        if (path / EVENTS).exists():
            sources.runs.append(path)
        elif (path / RANKING).exists():
            _sweep(path, sources)
        elif steps := _steps(path):
            _workflow(path, steps, sources)
        else:
            sources.runs.append(run_of(path, note))
    sources.runs = list(dict.fromkeys(sources.runs))
    return sources


def _steps(folder: Path) -> dict[str, StepRecord]:
    """Return the records of a workflow's steps, in starting order."""
    try:
        records = {
            path.parent.name: StepRecord.read(path.parent)
            for path in sorted(folder.glob(f"*/{STEP}"))
            if not is_superseded(path.parent)
        }
    except OSError as error:
        raise InputMissing(f"{folder}: cannot be read: {error.strerror}") from None
    started = {name: record for name, record in records.items() if record}
    return dict(sorted(started.items(), key=lambda item: item[1].started))


def _workflow(folder: Path, steps: dict[str, StepRecord], sources: Sources) -> None:
    sources.steps.update(steps)
    for name in steps:
        if (folder / name / RANKING).exists():
            _sweep(folder / name, sources)
        elif (folder / name / EVENTS).exists():
            sources.runs.append(folder / name)


def _sweep(folder: Path, sources: Sources) -> None:
    ranking = Ranking.read(folder)
    sources.sweeps.append(ranking)
    best = [ranking.best_run(row) for row in ranking.rows[:BEST_RUNS]]
    sources.runs += [run for run in best if (run / EVENTS).exists()]
    if len(ranking.rows) > BEST_RUNS:
        sources.notes.append(f"Curves are of the {BEST_RUNS} best of {len(ranking.rows):,} combinations, the best run of each.")
