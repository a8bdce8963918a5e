"""The point of training where workers begin. Free of torch, which the coordinator never imports."""

from __future__ import annotations

from dataclasses import dataclass, field

from partrain.training.stop import Progress


@dataclass
class ResumePoint:
    """The first round, or a recorded state for workers to restore."""

    progress: Progress = field(default_factory=Progress)
    elapsed: float = 0.0
    """Training seconds before it."""
    resuming: bool = False
    """True if workers restore a state before they train."""
    other_workers: bool = False
    """True if the state is of other workers: each worker's state of the rule starts again."""
    caps: list[list[int]] = field(default_factory=list)
    """Recorded caps of the following rounds, which run again (`round_seconds`, `balance`): by round, then by rank."""
    known_rounds: int = 0
    """Last round known from an earlier attempt. Rounds up to it run again unchanged: no request or time limit ends them."""
    ended: str | None = None
    """Reason for the end of training, if only the test is left."""
    moved: list[str] = field(default_factory=list)
    """Frozen parameters that the network moves itself, by name, once the dry run has seen it."""
