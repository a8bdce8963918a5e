"""The state of a step for the display: what it does, how far it is, since when."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from partrain.record.events import JudgementEvent, decode
from partrain.record.run_state import RunState
from partrain.system.environment import boot_seconds
from partrain.system.regular_file import open_regular
from partrain.workflow.resources import Resources

SETTLED = ("done", "unchanged", "given")
"""States of steps whose results are there."""


@dataclass
class StepState:
    """The state of a step."""

    name: str
    folder: Path
    status: str = "waiting"
    """`waiting`, `running`, `done`, `unchanged`, `given`, `skipped`, `blocked`, `failed` or `stopped`."""
    note: str = ""
    """Reason of the state."""
    continuing: bool = False
    resources: Resources | None = None
    where: str = ""
    """The host that runs it, or the reason why it waits; "" for this machine."""
    started: float = 0.0
    """The moment at which it began to run, by `boot_seconds`; 0 before that."""
    seconds: float = 0.0
    run: RunState | None = None
    """State of the step's training, if it trains."""
    judgements: list[JudgementEvent] = field(default_factory=list)
    """Judgements of the step's training."""
    _read: int = 0
    """Bytes of its events that were read."""

    @property
    def settled(self) -> bool:
        """True if the results are there."""
        return self.status in SETTLED

    def begin(self, resources: Resources) -> None:
        """Note that the step runs."""
        self.status, self.resources, self.started = "running", resources, boot_seconds()
        self.forget()

    def forget(self) -> None:
        """Forget what was read of the step's training."""
        self.run, self._read, self.judgements = None, 0, []

    def end(self, status: str, note: str) -> None:
        """Note that the step has ended, or need not run."""
        self.status, self.note = status, note
        if self.started:
            self.seconds = boot_seconds() - self.started

    def look(self) -> None:
        """Read the new events of the step's training."""
        path = self.folder / "events.jsonl"
        try:
            if path.stat().st_size < self._read:  # a resume removed lines
                self.forget()
            with open_regular(path) as file:
                file.seek(self._read)
                data = file.read()
        except OSError:
            return
        whole = data.rpartition(b"\n")[0]
        if not whole:
            return
        self._read += len(whole) + 1
        self.run = self.run or RunState()
        for line in whole.split(b"\n"):
            try:
                event = decode(line)
            except ValueError:
                continue
            self.run.apply(event)
            if isinstance(event, JudgementEvent):
                self.judgements.append(event)
