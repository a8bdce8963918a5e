"""User functions that a run calls: the `[hooks]` table, and the argument of such a function. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field, PrivateAttr, model_validator

from partrain.config.section import Section
from partrain.config.usercode import NAME, UserCode

if TYPE_CHECKING:
    from torch import nn


class HookCode(UserCode):
    """A user's function as code to import."""

    table: ClassVar[str] = "hooks"


class HookSection(Section):
    """The `[hooks]` table."""

    after_judgement: str | None = Field(None, pattern=rf"{NAME}|^<python>$")
    """Function that worker 0 calls after each judgement: `file.py:function` next to the job, or `package.module:function`. It may
    log, add numbers to the judgement, and ask the run to stop."""

    _code: HookCode | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _name_code(self) -> Self:
        self._code = HookCode(name=self.after_judgement) if self.after_judgement else None
        return self

    @property
    def code(self) -> HookCode | None:
        """The function as user code; None if the job names none."""
        return self._code


@dataclass(frozen=True)
class Judgement:
    """A judgement: the argument of a function `after_judgement`.

    The function returns None, or a dict of numbers to add to the judgement, or "stop" to end the run after this round. A dict may
    also hold `"stop": True`.
    """

    round: int
    """Number of the round that was judged, from 1; 0 in the dry run before training."""
    item_iterations: int
    """Item-iterations of all workers so far."""
    loss: float
    """Judged loss."""
    accuracy: float | None
    """Judged accuracy (0 to 1); None for tasks without."""
    metrics: Mapping[str, float]
    """All judged metrics by name."""
    best: bool
    """True if this is the best judgement so far."""
    module: nn.Module
    """The judged network, in evaluation mode. The function may call it, but not change it."""
    dry_run: bool = False
    """True in the dry run before training, with an untrained network. Log nothing then."""


Answer = Mapping[str, Any] | str | None
"""The value that a function may return."""
