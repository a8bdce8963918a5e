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
from partrain.launch.folder.resume_point import ResumePoint
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
    """Folder from which relative paths of the job start."""
    plan: Plan
    ranks: tuple[int, ...]
    """The workers in this process: one, its `replicas`, or all simulated ones; none with a `center_part`."""
    members: range
    """The workers of this machine."""
    machine: Machine | None
    """This machine, if there are several."""
    arena_fd: Any
    """Memory file of the arena; `detach()` gives its descriptor in the new process."""
    dataset_fd: Any
    """Likewise, memory file of the data set."""
    dataset: DatasetInfo
    point: ResumePoint
    memory: MemoryLimits
    """Free memory before the first process started."""
    center_part: CenterPart | None = None
    start_file: StartFile | None = None
    """The file that the network starts from, or, in the dry run of a resumed run, its checkpoint's network; None if the network's numbers
    are drawn, or restored from a checkpoint."""
    start_fd: Any = None
    """Likewise, memory file of its arrays."""
    run_folder: Path | None = None
    """Folder of the run; None on machines without it."""
    tries_built_in: bool = False
    """True if the dry run trains and judges a batch even of a built-in network and task."""


def user_code_under_test(job: Job, *, judging: bool = False) -> str:
    """Name the job's user network and user task, and if `judging` also its metrics and hooks; "" without any.

    The reader of a data set checks it.
    """
    names = [table.name for table in (job.model, job.task) if isinstance(table, UserCode)]
    if judging:
        names += job.task.metrics_code if job.task else []
        names += [job.hooks.code.name] if job.hooks.code else []
    return " and ".join(f"`{name}`" for name in names)
