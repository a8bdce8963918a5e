"""The task a network is trained for: the `[task]` table. Only `make` imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from partrain.tasks.section import COMPATIBLE_TASKS, KEYS, NUMBER_LOSSES, AnyTask, BuiltinTask, Kind, UserTask

if TYPE_CHECKING:
    from partrain.tasks.kinds import Task

__all__ = ["COMPATIBLE_TASKS", "KEYS", "NUMBER_LOSSES", "AnyTask", "BuiltinTask", "Kind", "UserTask", "make"]


def make(section: BuiltinTask | UserTask | None, implied: Kind, folder: Path, weights: Sequence[float] | None = None) -> Task:
    """Make the task of a `[task]` table, or the implied task.

    `folder` holds the job; `weights`: the resolved `class_weights`, in the order of the classes.
    """
    from partrain.tasks import kinds

    if isinstance(section, UserTask):
        from partrain.config import usercode

        return usercode.make("task", section, folder, kinds.Task, "partrain.Task")
    section = section or BuiltinTask()
    return kinds.KINDS[section.kind or implied].of(section, weights)
