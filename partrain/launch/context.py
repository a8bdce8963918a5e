"""The context of a run: its folder, display, signals and machine; where it starts, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partrain.comm.machine import Machine
from partrain.display.display import Display
from partrain.errors import Failure
from partrain.launch.hook_process import HookProcess
from partrain.launch.resume_point import ResumePoint
from partrain.launch.signals import Signals
from partrain.record.event_log import EventLog
from partrain.record.events import BesideTrivial, KnownEvent, StoppingEvent
from partrain.record.final_scores import FinalScores
from partrain.record.run_state import RunState
from partrain.system.environment import boot_seconds, process_start
from partrain.training.stop import Progress

if TYPE_CHECKING:
    from partrain.checkpoint import Content


@dataclass
class RunContext:
    """The surroundings of a run: it writes to a folder, shows events on a display, and warns the user.

    Only the machine with the run folder has a folder and a display. On other machines events go nowhere.
    """

    folder: Path | None
    display: Display | None
    warn: Callable[[str], None] = lambda text: None
    """Shows the user one line, a warning."""
    started: float = field(default_factory=process_start)
    """The moment from which start-up counts, by `boot_seconds`."""
    machine: Machine | None = None
    """This machine, if there are several."""
    torchrun: Machine | None = None
    """This machine under torchrun, which may have started it alone."""
    signals: Signals = field(default_factory=Signals)
    """Requests to stop. The caller may have noted some before the run."""
    log: EventLog | None = None
    """`events.jsonl`, while the run is under way."""
    note: Callable[[str], None] = lambda text: None
    """Shows the user one line that is no warning."""
    hooks: HookProcess = field(default_factory=HookProcess)
    """The hooks that follow the run."""
    made: Path | None = None
    """The topmost folder that was made for this run; it goes again if the run never begins."""
    booted: float = field(default_factory=lambda: time.time() - boot_seconds())
    """Unix time at which the machine started, by the clock as it is set now. If it is set later, the run's times go on as before."""

    def now(self) -> float:
        """Return the Unix time for an event: differences are right even if the clock of the machine was set in between."""
        return self.booted + boot_seconds()

    @property
    def run_folder(self) -> Path:
        """The folder of a run on this machine."""
        assert self.folder is not None
        return self.folder

    @property
    def state(self) -> RunState:
        """The state of a run on this machine, as its events tell."""
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
        """Forget the events after a round: the rounds run again, and in another way."""
        if self.log and self.display:
            state, state_clock = self.log.rewind(after_round), self.state.clock
            state.clock = state_clock
            self.display.adopt(state)

    def poll(self) -> None:
        """Flush the log, refresh the display and show warnings of hooks, now and then."""
        if self.log and self.display:
            self.log.flush()
            self.hooks.poll()
            self.display.refresh(self.now())


@dataclass
class Start:
    """The start of a session: the point that its workers begin at, and what the coordinator knows of a checkpoint there."""

    point: ResumePoint = field(default_factory=ResumePoint)
    arrays: dict[str, Any] | None = None
    """The checkpoint's arrays by path; None for a fresh start, and on machines without the checkpoint."""
    history: list[tuple[float, ...]] = field(default_factory=list)
    content: Content | None = None
    """The checkpoint, where `arrays` are of one."""
    code: dict[str, str] = field(default_factory=dict)
    """Digests of the files of user code, by name, once the dry run has imported it."""
    accept_changes: bool = False
    """The user has agreed to train on with changed code."""
    changed_files: list[str] = field(default_factory=list)
    """Files of user code that are not those of the checkpoint."""
    accepted: list[str] = field(default_factory=list)
    """Changes that the user has agreed to, in words."""
    has_tried_code: bool = False
    """User code has been tried with the checkpoint's network."""
    recorded: list[tuple[int, list[float]]] = field(default_factory=list)
    """Numbers of the rounds that follow, as an earlier session recorded them (`round_records.compared`)."""


@dataclass
class Ended:
    """The end of a run."""

    status: str
    """`reached`, `finished`, `not-reached`, `stopped`; or `failed`, `diverged` with the failure that ended it."""
    reason: str
    progress: Progress
    seconds: float
    """Training seconds, earlier sessions included."""
    failure: Failure | None = None
    signal: int | None = None
    test: FinalScores | None = None
    trivial: dict[str, dict[str, float]] = field(default_factory=dict)
    """Numbers of answers that need no training."""
    comparisons: dict[str, BesideTrivial] = field(default_factory=dict)
    """The network beside these answers."""
