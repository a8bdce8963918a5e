"""When a run ends: the `[stop]` table and the decision that follows from it."""

from typing import Literal

from pydantic import Field

from partrain.section import Section


class Stop(Section):
    """The `[stop]` table: whichever comes first. Targets are `loss` and `accuracy`; all others are limits."""

    rounds: int | None = Field(None, ge=1, le=10**12)
    """Rounds of local training and mixing."""
    item_iterations: int | None = Field(None, ge=1, le=10**15)
    """Items that went through a backward pass, over all workers."""
    seconds: float | None = Field(None, gt=0)
    """Training time, waits and judging included."""
    loss: float | None = None
    """Target: judged loss at or below this."""
    accuracy: float | None = Field(None, gt=0, le=1)
    """Target: judged accuracy at or above this (0 to 1)."""
    patience: int | None = Field(None, ge=1)
    """Judgements in a row without a new best before the run ends."""
    judge: Literal["mixed", "any-worker"] = "mixed"
    """Who is judged: the mixed network on held-out items, or (the older trainers' rule, for comparison) the luckiest worker's own training loss."""
    judge_every: int | None = Field(None, ge=1)
    """Rounds between judgements; default: the smallest number that keeps judged items under 5 % of the items trained."""
