"""The state of a step for the display: activity, progress and start time."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from partrain.record.events import JudgementEvent
from partrain.record.file_names import EVENTS
from partrain.record.run_state import RunState
from partrain.record.tail import FollowedState
from partrain.system.environment import boot_seconds
from partrain.workflow.resources import Resources

SETTLED = ("done", "pruned", "unchanged", "given")
"""States of steps whose results exist."""


@dataclass
class StepState:
    """The state of a step."""

    name: str
    folder: Path
    status: str = "waiting"
    """`waiting`, `running`, `done`, `pruned`, `unchanged`, `given`, `skipped`, `blocked`, `failed` or `stopped`."""
    note: str = ""
    """Reason of the state."""
    continuing: bool = False
    resources: Resources | None = None
    where: str = ""
    """The host that runs the step, or the reason why it waits; "" for this machine."""
    started: float = 0.0
    """The moment at which the step began to run, by `boot_seconds`; 0 before that."""
    seconds: float = 0.0
    run: RunState | None = None
    """State of the step's training, if it trains."""
    judgements: list[JudgementEvent] = field(default_factory=list)
    """Judgements of the step's training."""
    _followed: FollowedState | None = None
    """Reader of the step's events."""

    @property
    def settled(self) -> bool:
        """True if the results exist."""
        return self.status in SETTLED

    def begin(self, resources: Resources) -> None:
        """Note that the step runs."""
        self.status, self.resources, self.started = "running", resources, boot_seconds()
        self.forget()

    def forget(self) -> None:
        """Forget the data read from the step's training."""
        self.run, self._followed, self.judgements = None, None, []

    def end(self, status: str, note: str) -> None:
        """Note that the step has ended, or need not run."""
        self.status, self.note = status, note
        if self.started:
            self.seconds = boot_seconds() - self.started

    def look(self) -> None:
        """Read the new events of the step's training."""
        self._followed = self._followed or FollowedState(self.folder / EVENTS)
        with suppress(OSError):
            state = self._followed.read()
            self.run, self.judgements = state if state.t else None, self._followed.judgements
