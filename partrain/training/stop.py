"""The end of a run: the `[stop]` table and the decision that follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from partrain.config.section import Section
from partrain.display.stop_conditions import Standing, StopCondition, conditions_of


class Stop(Section):
    """The `[stop]` table. The first condition that holds ends the run. `loss` and `accuracy` are targets, all others limits."""

    rounds: int | None = Field(None, ge=1, le=10**12)
    """Rounds of local training and mixing."""
    item_iterations: int | None = Field(None, ge=1, le=10**15)
    """Items that went through a backward pass, over all workers."""
    seconds: float | None = Field(None, gt=0)
    """Training time, waits and evaluation included."""
    loss: float | None = None
    """Target: judged loss at or below this."""
    accuracy: float | None = Field(None, gt=0, le=1)
    """Target: judged accuracy at or above this (0 to 1)."""
    patience: int | None = Field(None, ge=1)
    """Evaluations in a row without a new best before the run ends."""
    judge: Literal["mixed", "any-worker"] = "mixed"
    """Judge the mixed network on held-out items or, as older trainers did, the worker with the lowest training loss."""
    judge_every: int | None = Field(None, ge=1)
    """Rounds between evaluations; default: the smallest number that keeps judged items under 5 % of the items trained."""

    def conditions(self) -> list[StopCondition]:
        """Return the conditions that are set, in the order of the table."""
        return conditions_of(self.__dict__)

    @property
    def has_target(self) -> bool:
        """True if the table has a target: then the run can succeed or fail."""
        return any(each.kind == "target" for each in self.conditions())

    def reached(self, progress: Progress) -> bool:
        """Return whether the last judgement meets a target."""
        at = progress.standing()
        return any(each.holds(at) for each in self.conditions() if each.kind == "target")

    def limit(self, progress: Progress, out_of_time: bool) -> str | None:
        """Return the limit that ends the run now, if any. Only `out_of_time` depends on a clock; all else repeats exactly."""
        at = progress.standing(math.inf if out_of_time else 0.0)
        return next((each.name for each in self.conditions() if each.kind == "limit" and each.holds(at)), None)


@dataclass
class Progress:
    """The progress of a run, equal on every worker; part of every checkpoint."""

    round: int = 0
    item_iterations: int = 0
    judged_round: int = 0
    """Round of the last evaluation; 0 = none."""
    loss: float | None = None
    """Judged loss."""
    accuracy: float | None = None
    """Judged accuracy (0 to 1), for classification."""
    best: float | None = None
    """Best judged accuracy, or loss for tasks without accuracy."""
    best_round: int = 0
    lead: float | None = None
    """Best result of regular evaluations."""
    misses: int = 0
    """Regular evaluations since the best of them; `patience` limits these."""

    def standing(self, seconds: float = 0.0) -> Standing:
        """Return the numbers that stop conditions compare with their goals; `seconds`: training time."""
        return Standing(self.round, self.item_iterations, seconds, self.loss, self.accuracy, self.misses)

    def judge(self, loss: float, accuracy: float | None, regular: bool = True) -> bool:
        """Record an evaluation of this round; return True if it is the best so far.

        An evaluation only because the run ends is not `regular`: a resumed run must be as patient as one that never ended.
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
