"""Hooks: programs that follow a run event by event, such as the writers for TensorBoard, MLflow and Weights & Biases.

Hooks run in a separate process with a low priority. It reads `events.jsonl`, so the training never waits for a hook, and
an error in a hook costs the run only that hook. A hook is an entry point of the group `partrain.hooks`: a factory that
takes a `FollowedRun` and returns a `Hook`. Any installed package may declare one; `--log NAME` selects it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from partrain.record.events import KnownEvent
from partrain.record.run_state import RunState

GROUP = "partrain.hooks"
"""Group of the entry points."""


class Hook(Protocol):
    """A program that follows a run. If it has a true attribute `replay`, a resumed run begins with the events of earlier sessions."""

    def event(self, event: KnownEvent, state: RunState) -> None:
        """Receive the next event. `state` is the state of the run after it; the hook only reads it."""

    def close(self) -> None:
        """Write the remaining data. The run may have ended without an `end` event, if it was killed."""


@dataclass(frozen=True)
class FollowedRun:
    """The run that a hook follows."""

    folder: Path
    """The run folder, absolute."""
    job: dict[str, Any]
    """The tables of `job.toml`."""
    id: str
    """Identifier of the run folder's events: 16 hexadecimal digits, the same in every session."""
    started: float
    """Unix time at which the run began."""
