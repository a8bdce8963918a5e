"""The task a network is trained for: the `[task]` table. Only `make` imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from partrain.tasks.kinds import KINDS, Kind
from partrain.tasks.section import AnyTask, BuiltinTask, UserTask

if TYPE_CHECKING:
    from partrain.tasks.task import Task

__all__ = ["KINDS", "AnyTask", "BuiltinTask", "Kind", "UserTask", "make"]


def make(section: BuiltinTask | UserTask | None, implied: Kind, folder: Path, weights: Sequence[float] | None = None) -> Task:
    """Make the task of a `[task]` table, or the implied task.

    `folder` holds the job; `weights`: the resolved `class_weights`, in the order of the classes.
    """
    from partrain.tasks import task

    if isinstance(section, UserTask):
        from partrain.config import usercode

        return usercode.make("task", section, folder, task.Task, "partrain.Task")
    section = section or BuiltinTask.model_construct()  # validation makes pydantic look for plugins in each worker
    made: Task = getattr(task, KINDS[section.kind or implied].loss_class).of(section, weights)
    return made
