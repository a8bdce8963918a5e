"""What the coordinator tells a worker's process. Free of torch, which the coordinator never imports."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partrain.data import Card
from partrain.job import Job
from partrain.plan import Plan
from partrain.stop import Progress

if TYPE_CHECKING:
    from partrain.comm.machine import Machine


CENTER = -1
"""Takes the place of a worker's rank: the process that has the center of an asynchronous rule on several machines."""


@dataclass(frozen=True)
class Order:
    """The work of one process."""

    job: Job
    folder: Path
    """Where the job's relative paths start."""
    plan: Plan
    ranks: tuple[int, ...]
    """The workers that live in this process: one, or all where they are simulated; none where the center lives."""
    members: range
    """The workers of this machine."""
    machine: Machine | None
    """Which machine this is, where there are several."""
    arena: Any
    """The arena's memory file, on its way to its new owner."""
    stock: Any
    """The data's memory file, likewise."""
    card: Card
    pipe: Connection
    progress: Progress
    elapsed: float
    """Training seconds before this start."""
    resuming: bool


def obey(order: Order) -> None:
    """Entry point of a worker's process: only there is torch at hand."""
    from partrain.launch import replica

    replica.main(order)
