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
    """The network, or a part of it, trains in compiled code."""
    parameters: int
    """Numbers in the network."""
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
    """User code computes something else with the checkpoint's network than before the checkpoint was written."""

    text: str


@dataclass(frozen=True)
class CodeRead:
    """The dry run has imported user code and built the network."""

    files: dict[str, str]
    """Digests of its files, by name."""


@dataclass(frozen=True)
class StartedFrom:
    """The network fits the file that it starts from."""

    text: str
    """The arrays that it takes, in words."""


@dataclass(frozen=True)
class DryRunPassed:
    """User code did what a worker's first batch needs, and the network fits the file that it starts from."""

    moved: list[str]
    """Frozen parameters that the network moves itself, by name."""


@dataclass(frozen=True)
class TrainingStarted:
    """Worker 0 is about to run its first iteration."""

    moment: float
    """Now, by `boot_seconds`."""


@dataclass(frozen=True)
class TrainingFinished:
    """Worker 0 has trained its last iteration. The test follows."""


@dataclass(frozen=True)
class NumbersAdded:
    """The user's function has been called after the judgement of a round; worker 0 sends this before its record of the round."""

    round: int
    numbers: dict[str, float]
    """Numbers that it adds to the judgement."""


@dataclass(frozen=True)
class SnapshotFilled:
    """All workers of the machine have copied their state to a slot."""

    slot: int
    progress: dict[str, Any]
    durable: bool
    """True if it is to become a file."""
    seconds: float
    """Training seconds up to its round."""
    reason: str | None
    """Reason for the end of training, if its round was the last."""


@dataclass(frozen=True)
class Done:
    """A worker has left the loop (`train.loop.Ending`)."""

    rank: int
    reason: str
    reached: bool
    seconds: float
    test: list[Any] | None
    """Fields of the `FinalScores`, if there is a test set."""
    trivial: dict[str, dict[str, float]]
    """Numbers of trivial answers; worker 0 alone has them."""
    comparisons: dict[str, BesideTrivial]
    """The network beside these answers; worker 0 alone has them."""


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
