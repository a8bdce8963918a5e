"""What a network is trained to do: the `[task]` table. torch is imported only when a task is made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Discriminator, Tag

from partrain.config.section import Section
from partrain.config.usercode import UserCode

if TYPE_CHECKING:
    from partrain.tasks.kinds import Task

Kind = Literal["classification", "regression", "forecast", "language", "autoencoder"]

FITTING: dict[str, tuple[Kind, ...]] = {
    "classification": ("classification", "autoencoder"),
    "regression": ("regression", "forecast", "autoencoder"),
    "forecast": ("forecast", "regression", "autoencoder"),
    "language": ("language",),
}
"""The kinds of task that items of each kind can serve, what they are made for first."""


class KnownTask(Section):
    """One of ours; may be left out where the data set or the model implies it."""

    kind: Kind
    """Labels to name, numbers to give, numbers to come, the next token of each, or the item itself to give back."""


class UserTask(UserCode):
    """The user's own: a subclass of `partrain.Task` that owns loss, metrics or backward pass; other keys are its arguments."""


def _which(table: Any) -> str:
    named = "name" in table if isinstance(table, dict) else isinstance(table, UserTask)
    return "user" if named else "known"


AnyTask = Annotated[
    Annotated[KnownTask, Tag("known")] | Annotated[UserTask, Tag("user")],
    Discriminator(_which),
]


def make(section: KnownTask | UserTask | None, implied: Kind, folder: Path) -> Task:
    """The task of a `[task]` table, or the implied one; `folder` holds the job."""
    from partrain.tasks import kinds

    if isinstance(section, UserTask):
        from partrain.config import usercode

        return usercode.make("task", section, folder, kinds.Task, "partrain.Task")
    return kinds.KINDS[section.kind if section else implied]()


assert set(get_args(Kind)) == {kind for fitting in FITTING.values() for kind in fitting}
