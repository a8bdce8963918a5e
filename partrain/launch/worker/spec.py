"""The work that the coordinator hands to a new process. Free of torch, which the coordinator never imports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partrain.checkpoint.start_file import StartFile
from partrain.config.usercode import UserCode
from partrain.data import DatasetInfo
from partrain.job.load import Job
from partrain.job.plan import Plan
from partrain.launch.resume_point import ResumePoint
from partrain.system.memory import MemoryLimits

if TYPE_CHECKING:
    from partrain.comm.machine import Machine


@dataclass(frozen=True)
class CenterPart:
    """A part of the center of an asynchronous rule on several machines. A process without workers serves it."""

    number: int


@dataclass(frozen=True)
class ProcessSpec:
    """The work of one process."""

    job: Job
    folder: Path
    """Folder that relative paths of the job start from."""
    plan: Plan
    ranks: tuple[int, ...]
    """The workers in this process: one, its `replicas`, or all simulated ones; none beside a `center_part`."""
    members: range
    """The workers of this machine."""
    machine: Machine | None
    """This machine, if there are several."""
    arena_fd: Any
    """Memory file of the arena; `detach()` gives its descriptor in the new process."""
    dataset_fd: Any
    """Memory file of the data set, likewise."""
    dataset: DatasetInfo
    point: ResumePoint
    memory: MemoryLimits
    """Free memory before the first process started."""
    center_part: CenterPart | None = None
    start_file: StartFile | None = None
    """The file that the network starts from, or in the dry run of a resumed run, the network of its checkpoint; None if its numbers are
    drawn, or restored from a checkpoint."""
    start_fd: Any = None
    """Memory file of its arrays, likewise."""
    run_folder: Path | None = None
    """Folder of the run; None on machines without it."""
    try_built_in: bool = False
    """The dry run trains and judges a batch although network and task are built in."""


def user_code_under_test(job: Job, *, judging: bool = False) -> str:
    """Name the job's user network and user task; if `judging`, its metrics and hooks, too; "" if there are none.

    A data set is checked where it is read.
    """
    names = [table.name for table in (job.model, job.task) if isinstance(table, UserCode)]
    if judging:
        names += job.task.metrics_code if job.task else []
        names += [job.hooks.code.name] if job.hooks.code else []
    return " and ".join(f"`{name}`" for name in names)
