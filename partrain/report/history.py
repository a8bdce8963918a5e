"""The history of a run: its folder's files, read once, as columns of numbers for figures and tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from partrain.config.problems import Rejected
from partrain.config.toml_source import TomlSource
from partrain.errors import InputMissing
from partrain.record.events import (
    CommitEvent,
    Event,
    ExclusionEvent,
    FaultEvent,
    JudgementEvent,
    ReplayEvent,
    RoundEvent,
    SlowEvent,
    SpikeEvent,
    StartEvent,
    StoppingEvent,
)
from partrain.record.numbers import Merge, Merged
from partrain.record.round_record import NUMBERS, RoundRecord, time_shares
from partrain.record.run_folder import RunFolder, is_simulated, status_of
from partrain.record.run_state import RunState
from partrain.record.summary import read_summary, summary
from partrain.runs.comparing import ComparedRow, ComparedRuns
from partrain.system.regular_file import read_regular

DRAWN = [("loss", Merge.MEAN), *((name, number.workers) for name, number in NUMBERS.items() if number.drawn)]
"""Numbers of a round that figures show, and the merge of the workers' values."""


class WorkerSpan(NamedTuple):
    """A worker's time in one round, by the training clock."""

    end: float
    compute: float
    wait: float
    mix: float
    items: int


class Incident(NamedTuple):
    """An event other than rounds and judgements: a fault, a signal, a resume."""

    seconds: float
    """Seconds since the run's first start, by the coordinator's clock."""
    round: int
    what: str
    rank: int | None = None


@dataclass
class RoundTotal:
    """One round of all workers."""

    round: int
    seconds: float = 0.0
    """Training seconds at the end of the round's last worker."""
    items: int = 0
    """Item-iterations of the round; in `RunHistory.rounds`, of the run so far."""
    numbers: Merged = field(default_factory=Merged)
    """The other numbers of the round, merged over the workers."""

    def add(self, record: RoundRecord) -> None:
        """Add a worker's record."""
        self.items += record.items
        if math.isfinite(record.seconds):
            self.seconds = max(self.seconds, record.seconds)
        self.numbers.add(vars(record), DRAWN, record.items)

    def x(self, by: str) -> float:
        """Return the position on a horizontal axis."""
        return self.seconds if by == "seconds" else self.items if by == "items" else self.round


@dataclass
class RunHistory:
    """A run as recorded in its folder."""

    label: str
    folder: Path
    state: RunState = field(default_factory=RunState)
    starts: list[StartEvent] = field(default_factory=list)
    rounds: list[RoundTotal] = field(default_factory=list)
    judgements: list[JudgementEvent] = field(default_factory=list)
    commits: list[CommitEvent] = field(default_factory=list)
    faults: list[Incident] = field(default_factory=list)
    spikes: list[SpikeEvent] = field(default_factory=list)
    spans: dict[int, list[WorkerSpan]] = field(default_factory=dict)
    """Each worker's rounds by rank."""
    job_text: str = ""
    job: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    """Content of summary.json; computed from the events if the run has none."""
    status: str = ""
    """Status of the summary; `training` or `killed` if the run has none."""

    @property
    def size(self) -> int:
        """Number of workers."""
        return len(self.state.workers)

    @property
    def name(self) -> str:
        return self.state.start.name

    @property
    def simulated(self) -> bool:
        """True if seconds come from a simulated clock."""
        return is_simulated(self.job)

    @property
    def shares(self) -> dict[str, float]:
        """Shares of the workers' recorded time by activity; empty if nothing was recorded."""
        return time_shares(worker.spent for worker in self.state.workers.values())

    @property
    def rate(self) -> float | None:
        """Item-iterations per training second of all workers, counting only those done in this folder."""
        return self.state.mean_rate()


def compared_runs(runs: Sequence[RunHistory]) -> ComparedRuns:
    """Return the table of these runs, the best first."""
    return ComparedRuns(
        [ComparedRow(run.label, run.job, [run.summary | {"status": run.status}], [run.judgements]) for run in runs]
    ).ranked


def read_history(folder: Path, label: str) -> RunHistory:
    """Read a run folder. Raises `InputMissing` if it holds no run that started."""
    run = RunHistory(label, folder)
    totals: dict[int, RoundTotal] = {}
    files = RunFolder(folder)
    try:
        for event in files.events():
            run.state.apply(event)
            _take(event, run, totals)
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
        raise InputMissing(f"{files.events_file}: an event has a wrong value: {error}; restore the file") from None
    if not run.starts:
        what = "has not begun yet: try again in some seconds" if files.is_training else "ended before it began"
        raise InputMissing(f"{folder}: the run {what}; its events.jsonl has no start")
    run.rounds = [totals[number] for number in sorted(totals)]
    _accumulate(run)
    _read_files(run, files)
    return run


def _take(event: Event, run: RunHistory, totals: dict[int, RoundTotal]) -> None:
    match event:
        case RoundEvent(rank=rank, record=record):
            total = totals.get(record.round)
            if total is None:
                total = totals[record.round] = RoundTotal(record.round)
            total.add(record)
            span = WorkerSpan(record.seconds, record.compute, record.wait, record.mix, record.items)
            run.spans.setdefault(rank, []).append(span)
        case JudgementEvent():
            run.judgements.append(event)
        case CommitEvent():
            run.commits.append(event)
        case StartEvent():
            if run.starts:
                run.faults.append(_incident(run, event.t, f"resumed from round {event.resumed_from or 0:,}"))
            run.starts.append(event)
        case FaultEvent():
            run.faults.append(_incident(run, event.t, event.what, event.rank))
        case ReplayEvent() | SlowEvent():
            run.faults.append(_incident(run, event.t, event.describe(), event.rank))
        case ExclusionEvent() | SpikeEvent():
            run.spikes += [event] if isinstance(event, SpikeEvent) else []
            run.faults.append(_incident(run, event.t, f"{event.kind}: {event.describe()}", event.rank))
        case StoppingEvent():
            run.faults.append(_incident(run, event.t, f"{event.signal}: {event.what}"))


def _incident(run: RunHistory, t: float, what: str, rank: int | None = None) -> Incident:
    return Incident(t - run.starts[0].t if run.starts else 0.0, run.state.round, what, rank)


def _accumulate(run: RunHistory) -> None:
    """Turn the items of rounds into item-iterations so far; seconds never fall."""
    items = run.state.item_iterations - sum(record.items for record in run.rounds)
    seconds = 0.0
    for record in run.rounds:
        items += record.items
        seconds = max(seconds, record.seconds)
        record.items, record.seconds = items, seconds


def _read_files(run: RunHistory, files: RunFolder) -> None:
    try:
        run.job_text = read_regular(files.job_file).decode(errors="replace")
        run.job = TomlSource.parse(run.job_text, files.job_file.name).data
    except (OSError, Rejected):
        run.job = {}  # a report on a damaged folder is better than none
    try:
        run.summary = read_summary(files.summary_file)
        run.status = run.summary["status"]
    except FileNotFoundError:
        run.summary = dict(summary(run.state))
        run.status = status_of({}, training=files.is_training, ended=run.state.status)
    except (ValueError, OSError):
        raise InputMissing(
            f"{files.summary_file}: not a summary of a run; without that file the report reads the events alone"
        ) from None
