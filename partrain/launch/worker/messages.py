"""Messages from worker processes to the coordinator. Free of torch, which the coordinator never imports."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from partrain.record.events import BesideTrivial


@dataclass(frozen=True)
class Ready:
    """A worker has built its network and joined the group."""

    rank: int
    pid: int
    compiled: bool
    """True if the network, or a part of it, trains in compiled code."""
    parameters: int
    """Count of the network's numbers."""
    slots_at: int
    """Byte of the arena where the snapshot slots begin."""
    map: dict[str, Any]
    """`SlotMap` of a snapshot, as JSON."""
    fixed: dict[str, str]
    """Digests of the tensors that the worker does not train, by name."""


@dataclass(frozen=True)
class RunRemark:
    """A warning to the user."""

    text: str


@dataclass(frozen=True)
class CodeChanged:
    """With the checkpoint's network, user code computes other numbers than when the checkpoint was written."""

    text: str


@dataclass(frozen=True)
class CodeRead:
    """The dry run imported user code and built the network."""

    files: dict[str, str]
    """Digests of the code's files, by name."""


@dataclass(frozen=True)
class StartedFrom:
    """The network fits its start file."""

    text: str
    """The arrays taken from the file, in words."""


@dataclass(frozen=True)
class DryRunPassed:
    """User code passed a worker's first batch, and the network fits its start file."""

    moved: list[str]
    """Frozen parameters that the network moves itself, by name."""


@dataclass(frozen=True)
class TrainingStarted:
    """Worker 0 is about to run its first iteration."""

    moment: float
    """Current moment, by `boot_seconds`."""


@dataclass(frozen=True)
class TrainingFinished:
    """Worker 0 has trained its last iteration. The test follows."""


@dataclass(frozen=True)
class NumbersAdded:
    """Worker 0 called the user's function after the judgement of a round; it sends this before its record of the round."""

    round: int
    numbers: dict[str, float]
    """Numbers that the function adds to the judgement."""


@dataclass(frozen=True)
class SnapshotFilled:
    """All workers of the machine copied their state to a slot."""

    slot: int
    progress: dict[str, Any]
    durable: bool
    """True if it will become a file."""
    seconds: float
    """Training seconds up to its round."""
    reason: str | None
    """Reason for the end of training, if its round was the last."""


@dataclass(frozen=True)
class Done:
    """A worker left the loop (`training.loop.Ending`)."""

    rank: int
    reason: str
    reached: bool
    seconds: float
    test: list[Any] | None
    """Fields of the `FinalScores`, with a test set."""
    trivial: dict[str, dict[str, float]]
    """Numbers of trivial answers; only worker 0 has them."""
    comparisons: dict[str, BesideTrivial]
    """The network compared with these answers; only worker 0 has them."""


@dataclass(frozen=True)
class Failed:
    """A process ends with a failure. `rank` is None for processes of the center."""

    rank: int | None
    code: int
    name: str
    message: str
    detail: str
    finding: list[Any] | None = None
    """Fields of the finding, if a value of the job is wrong."""


Message = (
    Ready
    | RunRemark
    | CodeChanged
    | CodeRead
    | StartedFrom
    | DryRunPassed
    | TrainingStarted
    | TrainingFinished
    | NumbersAdded
    | SnapshotFilled
    | Done
    | Failed
)
_KINDS = {kind.__name__: kind for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """Write a message as JSON."""
    return json.dumps({"kind": type(message).__name__, **vars(message)}).encode()


def decode(data: bytes) -> Message:
    """Read a message from JSON. Nothing that a worker sends is unpickled."""
    content = json.loads(data)
    message: Message = _KINDS[content.pop("kind")](**content)
    return message
