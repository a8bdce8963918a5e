"""One run, read from its folder: a finished run from its summary, others event by event."""

from __future__ import annotations

import time
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partrain.errors import InputMissing
from partrain.record.events import (
    JudgementEvent,
    RoundEvent,
    StartEvent,
    StoppingEvent,
    decode,
    is_sound,
)
from partrain.record.file_names import STEP
from partrain.record.result import RunResult
from partrain.record.round_record import number_of
from partrain.record.run_folder import KILLED, TRAINING, RunFolder, status_of
from partrain.record.run_state import RunState
from partrain.record.tail import Tail
from partrain.system.regular_file import open_regular, read_object
from partrain.watch.track import Track

FIRST_LINE_BYTES = 1 << 20
"""Maximum number of bytes of a run's first line."""


ODD = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
"""Errors of a file that partrain did not write."""


@dataclass(frozen=True)
class RunRow:
    """The numbers of a run in the list of runs; None if unknown."""

    name: str
    rule: str = ""
    status: str = ""
    round: int | None = None
    goal: int | None = None
    """The limit of rounds."""
    loss: float | None = None
    accuracy: float | None = None
    rate: float | None = None
    """Item-iterations per second: recent ones during training, otherwise over the whole run."""
    seconds: float | None = None
    """Training time."""
    items: int | None = None
    started: float = 0.0
    """Unix time of the run's first start."""
    folder: str = ""


class WatchedRun:
    """A run folder."""

    def __init__(self, folder: Path, label: str) -> None:
        self.folder = folder
        self._files = RunFolder(folder)
        self.label = label
        """The run's path below the watched folder."""
        self.training = False
        """True while some process holds the lock of the folder."""
        self.gone = False
        """True if the folder is no longer readable."""
        self._begin_anew()
        self._tail = Tail(self._files.events_file)
        self._summary: dict[str, Any] | None = None
        self._changed = -1
        self._first: StartEvent | None = None
        self.row = RunRow(label)

    def _begin_anew(self) -> None:
        self.state = RunState()
        self.track = Track()
        self.stopping = ""
        """The answer to a request to stop, if there was one in this session."""

    @property
    def has_events(self) -> bool:
        """True if all events up to now were read."""
        return self._tail.at_end

    @property
    def share(self) -> float:
        """The share of the events that was read, 0 to 1."""
        return self._tail.share

    @property
    def needs_events(self) -> bool:
        """True if the summary does not give the state of the run."""
        return self._summary is None and not self.gone

    def look(self) -> None:
        """Check whether the run trains, and read the summary if it does not. Reads no events but the first."""
        try:
            self.training = self._files.is_training
            changed = self._files.events_file.stat().st_mtime_ns
        except (InputMissing, OSError):
            self.gone, self.training = True, False
            return
        self.gone = False
        if self._first is None:
            self._first = self._read_first()
        if self.training:
            self._summary = None
        elif changed != self._changed or self._summary is None:
            self._summary = self._read_summary(changed)
        self._changed = changed
        self.row = self._row()

    def read(self, seconds: float) -> bool:
        """Read new events for about this time; return True if there are more."""
        end = time.perf_counter() + seconds
        while True:
            try:
                restarted, lines = self._tail.read()
            except OSError:
                return False
            if restarted:
                self._begin_anew()
            for line in lines:
                self._apply(line)
            if not lines or self._tail.at_end or time.perf_counter() >= end:
                break
        self.row = self._row()
        return not self._tail.at_end

    def _apply(self, line: bytes) -> None:
        with suppress(*ODD):  # a line that is not an event, or has unusual values
            event = decode(line)
            if not is_sound(event):
                return
            self.state.apply(event)
            if isinstance(event, RoundEvent):
                return
            if isinstance(event, JudgementEvent):
                self.track.add(event)
            elif isinstance(event, StartEvent):
                self.stopping = ""
            elif isinstance(event, StoppingEvent):
                self.stopping = event.what

    def _row(self) -> RunRow:
        first = self._first
        name, rule = self.label, first.rule if first else ""
        started, goal = (first.t, _goal(first.stop)) if first else (0.0, None)
        if self._summary is not None:
            return _row_of_summary(self._summary, name, rule, goal, started, str(self.folder))
        state = self.state
        judged = (not self.training and state.best) or state.judged
        rate = state.rate() if self.training else state.mean_rate()
        return RunRow(
            name, state.start.rule or rule, self.status(), state.round, _goal(state.start.stop) or goal,
            judged.loss if judged else None, judged.metrics.get("accuracy") if judged else None,
            rate, state.clock.train, state.item_iterations, started, str(self.folder),
        )  # fmt: skip

    def shown(self) -> RunState:
        """Return the state for the display. The state of a finished run says so, even if the run could not record it."""
        status = self.status()
        if self.state.status is not None or self.training or status == "reading":
            return self.state
        state = copy(self.state)
        state.status, state.reason = status, "no process trains it now" if status == KILLED else status
        return state

    def status(self) -> str:
        """Return the status in a word."""
        status = status_of(self._summary or {}, training=self.training, ended=self.state.status)
        if status == TRAINING:
            return "stopping" if self.stopping else status if self.state.round else "starting"
        return "reading" if status == KILLED and not self.has_events else status

    def _read_first(self) -> StartEvent | None:
        with suppress(OSError, *ODD), open_regular(self._files.events_file) as file:
            event = decode(file.readline(FIRST_LINE_BYTES))
            return event if isinstance(event, StartEvent) and is_sound(event) else None
        return None

    def _read_summary(self, changed: int) -> dict[str, Any] | None:
        """Read the summary, unless events follow it: then a later session was killed."""
        with suppress(OSError):
            if self._files.summary_file.stat().st_mtime_ns >= changed:
                return self._files.summary or None
        return None


def _row_of_summary(content: dict[str, Any], name: str, rule: str, goal: int | None, started: float, folder: str) -> RunRow:
    result, seconds = RunResult.of(content), content.get("seconds")
    train = number_of(seconds.get("train")) if isinstance(seconds, dict) else None
    items, rounds = number_of(content.get("item_iterations")), number_of(content.get("rounds"))
    return RunRow(
        name, rule, str(content.get("status", "?")), None if rounds is None else int(rounds), goal,
        number_of(result.loss), number_of(result.metrics.get("accuracy")),
        _rate(content.get("workers")), train, None if items is None else int(items), started, folder,
    )  # fmt: skip


def _rate(workers: Any) -> float | None:
    """Return the item-iterations per second of all workers of a summary together."""
    tables = workers if isinstance(workers, list) else []
    rates = [number_of(table.get("items_per_second")) for table in tables if isinstance(table, dict)]
    return sum(rate or 0.0 for rate in rates) if any(rates) else None


def _goal(stop: dict[str, Any]) -> int | None:
    goal = stop.get("rounds")
    return goal if isinstance(goal, int) else None


class WatchedStep:
    """A step of a workflow that trains nothing: its record."""

    def __init__(self, folder: Path, label: str) -> None:
        self.folder, self.label = folder, label
        self.row = RunRow(label)

    def look(self) -> None:
        """Read the record; without one the step waits."""
        self.row = RunRow(self.label, "step", "waiting", folder=str(self.folder))
        if record := read_object(self.folder / STEP):
            words = record.get("command") or []
            rule = str(words[0]) if words else "step"
            self.row = RunRow(
                self.label, rule, str(record.get("status", "")), seconds=number_of(record.get("seconds")) or None,
                started=number_of(record.get("started")) or 0.0, folder=str(self.folder),
            )  # fmt: skip
