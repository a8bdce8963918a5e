"""The task a network is trained for: the `[task]` table. Only `make` imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Discriminator, Tag

from partrain.config.section import Section
from partrain.config.usercode import UserCode

if TYPE_CHECKING:
    from partrain.tasks.kinds import Task

Kind = Literal["classification", "regression", "forecast", "language", "autoencoder"]

COMPATIBLE_TASKS: dict[str, tuple[Kind, ...]] = {
    "classification": ("classification", "autoencoder"),
    "regression": ("regression", "forecast", "autoencoder"),
    "forecast": ("forecast", "regression", "autoencoder"),
    "language": ("language",),
}
"""Kinds of task that are possible with the items of each kind of data set; the data set's own kind first."""


class BuiltinTask(Section):
    """A built-in task. The table is optional if the data set or the model implies the task."""

    kind: Kind
    """Answers: labels, numbers, future numbers, the next token of each token, or the item itself."""


class UserTask(UserCode):
    """A user task: a subclass of `partrain.Task` with its own loss, metrics or backward pass. Other keys are its arguments."""


def _tag(table: Any) -> str:
    named = "name" in table if isinstance(table, dict) else isinstance(table, UserTask)
    return "user" if named else "known"


AnyTask = Annotated[
    Annotated[BuiltinTask, Tag("known")] | Annotated[UserTask, Tag("user")],
    Discriminator(_tag),
]


def make(section: BuiltinTask | UserTask | None, implied: Kind, folder: Path) -> Task:
    """Make the task of a `[task]` table, or the implied task. `folder` holds the job."""
    from partrain.tasks import kinds

    if isinstance(section, UserTask):
        from partrain.config import usercode

        return usercode.make("task", section, folder, kinds.Task, "partrain.Task")
    return kinds.KINDS[section.kind if section else implied]()


assert set(get_args(Kind)) == {kind for fitting in COMPATIBLE_TASKS.values() for kind in fitting}
