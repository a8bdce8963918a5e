"""The point of training that workers begin at. Free of torch, which the coordinator never imports."""

from __future__ import annotations

from dataclasses import dataclass, field

from partrain.training.stop import Progress


@dataclass
class ResumePoint:
    """The first round, or a recorded state that workers restore."""

    progress: Progress = field(default_factory=Progress)
    elapsed: float = 0.0
    """Training seconds before it."""
    resuming: bool = False
    """Workers restore a state before they train."""
    other_workers: bool = False
    """The state is of other workers: each worker's own state of the rule starts again."""
    caps: list[list[int]] = field(default_factory=list)
    """Recorded caps of the rounds that follow, which run again (`round_seconds`, `balance`): by round, then by rank."""
    known_rounds: int = 0
    """Rounds up to this one are known from an earlier attempt, and run again as they were: no request or time limit ends them."""
    ended: str | None = None
    """Reason for the end of training, if only the test is left."""
    moved: list[str] = field(default_factory=list)
    """Frozen parameters that the network moves itself, by name, once the dry run has seen it."""
