"""The context of a run: its folder, display, signals and machine; its start and its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partrain.comm.machine import Machine
from partrain.display.display import Display
from partrain.errors import Failure
from partrain.launch.folder.resume_point import ResumePoint
from partrain.launch.hook_process import HookProcess
from partrain.launch.signals import Signals
from partrain.record.event_log import EventLog
from partrain.record.events import BesideTrivial, KnownEvent, StoppingEvent
from partrain.record.final_scores import FinalScores
from partrain.record.run_state import RunState
from partrain.system.environment import boot_seconds, process_start

if TYPE_CHECKING:
    from partrain.checkpoint import Content


@dataclass
class RunContext:
    """The surroundings of a run: the folder it writes to, the display of its events, and warnings to the user.

    Only the machine with the run folder has a folder and a display. Other machines drop events.
    """

    folder: Path | None
    display: Display | None
    warn: Callable[[str], None] = lambda text: None
    """Shows the user a warning of one line."""
    started: float = field(default_factory=process_start)
    """The moment from which start-up counts, by `boot_seconds`."""
    machine: Machine | None = None
    """This machine, if there are several."""
    torchrun: Machine | None = None
    """This machine under torchrun, even if torchrun started only this machine."""
    signals: Signals = field(default_factory=Signals)
    """Requests to stop. The caller may have noted some before the run."""
    log: EventLog | None = None
    """`events.jsonl`, while the run is under way."""
    note: Callable[[str], None] = lambda text: None
    """Shows the user one line that is not a warning."""
    hooks: HookProcess = field(default_factory=HookProcess)
    """The hooks that follow the run."""
    made: Path | None = None
    """The topmost folder made for this run; removed if the run never begins."""
    booted: float = field(default_factory=lambda: time.time() - boot_seconds())
    """Unix time at which the machine started, by the clock's setting now. A later setting does not change the run's times."""

    def now(self) -> float:
        """Return the Unix time for an event: differences stay correct even if the machine's clock is set in between."""
        return self.booted + boot_seconds()

    @property
    def run_folder(self) -> Path:
        """The folder of a run on this machine."""
        assert self.folder is not None
        return self.folder

    @property
    def state(self) -> RunState:
        """The state of a run on this machine, from its events."""
        assert self.display is not None
        return self.display.state

    def emit(self, event: KnownEvent) -> None:
        """Write an event to the log and show it."""
        if self.log and self.display:
            self.log.add(event)
            self.display.apply(event)
            if isinstance(event, StoppingEvent):
                self.warn(f"{event.signal}: {event.what}")
            if spike := self.state.leap:
                self.emit(spike)

    def rewind(self, after_round: int) -> None:
        """Forget the events after a round: the rounds run again, differently."""
        if self.log and self.display:
            state, state_clock = self.log.rewind(after_round), self.state.clock
            state.clock = state_clock
            self.display.adopt(state)

    def poll(self) -> None:
        """Flush the log, refresh the display and show the hooks' warnings, now and then."""
        if self.log and self.display:
            self.log.flush()
            self.hooks.poll()
            self.display.refresh(self.now())


@dataclass
class Start:
    """The start of a session: the point where its workers begin, and the coordinator's knowledge of a checkpoint there."""

    point: ResumePoint = field(default_factory=ResumePoint)
    arrays: dict[str, Any] | None = None
    """The checkpoint's arrays by path; None for a fresh start, and on machines without the checkpoint."""
    history: list[tuple[float, ...]] = field(default_factory=list)
    content: Content | None = None
    """The checkpoint of the `arrays`, if any."""
    code: dict[str, str] = field(default_factory=dict)
    """Digests of the files of user code, by name, once the dry run has imported it."""
    accept_changes: bool = False
    """True if the user agreed to continue with changed code."""
    changed_files: list[str] = field(default_factory=list)
    """Files of user code that differ from the checkpoint's."""
    accepted: list[str] = field(default_factory=list)
    """Changes that the user agreed to, in words."""
    has_tried_code: bool = False
    """True if a dry run tried user code with the checkpoint's network."""
    recorded: list[tuple[int, list[float]]] = field(default_factory=list)
    """Numbers of the following rounds, as recorded by an earlier session (`repeated_rounds.compared`)."""


@dataclass
class Ended:
    """The end of a run."""

    status: str
    """`reached`, `finished`, `not-reached`, `stopped`; or, with the failure that ended it, `failed` or `diverged`."""
    reason: str
    round: int
    """The newest round that all workers finished."""
    seconds: float
    """Training seconds, including earlier sessions."""
    failure: Failure | None = None
    signal: int | None = None
    test: FinalScores | None = None
    trivial: dict[str, dict[str, float]] = field(default_factory=dict)
    """Numbers of answers that need no training."""
    comparisons: dict[str, BesideTrivial] = field(default_factory=dict)
    """The network compared with these answers."""
