"""When a run ends: the `[stop]` table and the decision that follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from partrain.config.section import Section

LIMITS = ("rounds", "item_iterations", "seconds")
"""Keys that end every run, however well it does."""


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

    @property
    def has_target(self) -> bool:
        """Whether success is defined."""
        return self.loss is not None or self.accuracy is not None

    def reached(self, progress: Progress) -> bool:
        """Whether the last judgement meets a target."""
        by_loss = self.loss is not None and progress.loss is not None and progress.loss <= self.loss
        by_accuracy = self.accuracy is not None and progress.accuracy is not None and progress.accuracy >= self.accuracy
        return by_loss or by_accuracy

    def limit(self, progress: Progress, out_of_time: bool) -> str | None:
        """The limit that ends the run now, if any. `out_of_time` is a clock's word; all else repeats exactly."""
        if self.rounds is not None and progress.round >= self.rounds:
            return "rounds"
        if self.item_iterations is not None and progress.item_iterations >= self.item_iterations:
            return "item_iterations"
        if self.seconds is not None and out_of_time:
            return "seconds"
        if self.patience is not None and progress.misses >= self.patience:
            return "patience"
        return None


@dataclass
class Progress:
    """Where a run stands, the same on every worker; part of every checkpoint."""

    round: int = 0
    item_iterations: int = 0
    judged_round: int = 0
    """Round of the last judgement; 0 = none."""
    loss: float | None = None
    """Judged loss."""
    accuracy: float | None = None
    """Judged accuracy (0 to 1), for classification."""
    best: float | None = None
    """Best judged accuracy, or loss where there is none."""
    best_round: int = 0
    lead: float | None = None
    """The best of regular judgements."""
    misses: int = 0
    """Regular judgements since the best of them: what patience goes by."""

    def judge(self, loss: float, accuracy: float | None, regular: bool = True) -> bool:
        """Take note of a judgement of this round; True if it is the best so far.

        One that only the end of a run has brought about is not `regular`: a run that goes on from there is to be as patient as
        one that never ended.
        """
        self.judged_round, self.loss, self.accuracy = self.round, loss, accuracy
        value, sign = (loss, -1) if accuracy is None else (accuracy, 1)

        def beats(other: float | None) -> bool:
            return not math.isnan(value) and (other is None or sign * value > sign * other)

        if regular and beats(self.lead):
            self.lead, self.misses = value, 0
        elif regular:
            self.misses += 1
        if best := beats(self.best):
            self.best, self.best_round = value, self.round
        return best
