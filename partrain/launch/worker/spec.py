"""What the coordinator tells a worker's process. Free of torch, which the coordinator never imports."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partrain.config.usercode import UserCode
from partrain.data import DatasetInfo
from partrain.job.load import Job
from partrain.job.plan import Plan
from partrain.system.memory import MemoryLimits
from partrain.train.stop import Progress

if TYPE_CHECKING:
    from partrain.comm.machine import Machine


@dataclass(frozen=True)
class ProcessSpec:
    """The work of one process."""

    job: Job
    folder: Path
    """Where the job's relative paths start."""
    plan: Plan
    ranks: tuple[int, ...]
    """The workers that live in this process: one, or all where they are simulated. Where process k of the center of an
    asynchronous rule on several machines lives, ~k (below 0) takes the place of a worker's rank."""
    members: range
    """The workers of this machine."""
    machine: Machine | None
    """Which machine this is, where there are several."""
    arena: Any
    """The arena's memory file, on its way to its new owner."""
    stock: Any
    """The data's memory file, likewise."""
    card: DatasetInfo
    pipe: Connection
    progress: Progress
    elapsed: float
    """Training seconds before this start."""
    resuming: bool
    parent: int
    """The forkserver's process: its children end with it."""
    room: MemoryLimits
    """Memory that was there before the first process started."""


def user_code_under_test(job: Job) -> str:
    """The user's own network and task, in words; nothing if there are none. A data set is checked where it is read."""
    return " and ".join(f"`{table.name}`" for table in (job.model, job.task) if isinstance(table, UserCode))
