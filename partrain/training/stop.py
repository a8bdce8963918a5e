"""The end of a run: the `[stop]` table and its decision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from pydantic import Field

from partrain.config.section import Section
from partrain.record.stop_conditions import Standing, StopCondition, conditions_of


class Stop(Section):
    """The `[stop]` table. The first condition that holds ends the run.

    `loss`, `accuracy`, `at_least` and `at_most` are targets, all others limits.
    """

    rounds: int | None = Field(None, ge=1, le=10**12)
    """Limit: number of rounds, each of local training and mixing."""
    item_iterations: int | None = Field(None, ge=1, le=10**15)
    """Limit: items that went through a backward pass, over all workers. A batch of 64 items is 64 item-iterations."""
    seconds: float | None = Field(None, gt=0)
    """Limit: seconds of training, with waits and judgements."""
    loss: float | None = None
    """Target: the judged loss is at or below this number. Like all targets it needs held-out items: `[dataset] validation`."""
    accuracy: float | None = Field(None, gt=0, le=1)
    """Target: the judged accuracy is at or above this number, from 0 to 1."""
    at_least: dict[str, float] | None = Field(None, min_length=1)
    """Targets: judged metrics are at or above these numbers, by their names in `[task] metrics`."""
    at_most: dict[str, float] | None = Field(None, min_length=1)
    """Targets: judged metrics are at or below these numbers, by their names in `[task] metrics`."""
    patience: int | None = Field(None, ge=1)
    """Limit: judgements in a row without a new best (early stopping). An equal number is not a new best."""
    patience_by: str | None = Field(None, min_length=1)
    """Number that decides which judgement is the best: "loss", "accuracy" or a metric. Default: accuracy, or loss if
    the task has none."""
    judge_every: int | None = Field(None, ge=1)
    """Number of rounds from one judgement to the next. Default: the smallest number that keeps judged items under 5 % of the
    trained items."""

    def conditions(self) -> list[StopCondition]:
        """Return the conditions that are set, in the order of the table."""
        return conditions_of(self.__dict__)

    @property
    def has_target(self) -> bool:
        """True if the table has a target: then the run can succeed or fail."""
        return any(condition.kind == "target" for condition in self.conditions())

    def reached(self, progress: Progress) -> bool:
        """Return whether the last judgement meets a target."""
        at = progress.standing()
        return any(condition.holds(at) for condition in self.conditions() if condition.kind == "target")

    def limit(self, progress: Progress, *, out_of_time: bool) -> str | None:
        """Return the limit that ends the run now, if any. Only `out_of_time` depends on a clock; all else repeats exactly."""
        at = progress.standing(math.inf if out_of_time else 0.0)
        return next(
            (condition.name for condition in self.conditions() if condition.kind == "limit" and condition.holds(at)), None
        )


class Criterion(NamedTuple):
    """The number by which judgements are compared."""

    name: str
    """"loss", "accuracy" or the name of a metric."""
    lower: bool
    """True if lower is better."""


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
    """Best value so far of the judged number that `patience_by` names; by default accuracy, or loss for tasks without accuracy."""
    best_loss: float | None = None
    """Judged loss with the best number. Of equal numbers, the one with the lower loss is the best."""
    best_round: int = 0
    lead: float | None = None
    """Best result of regular evaluations."""
    misses: int = 0
    """Regular evaluations since the best of them, except those with an undefined number; `patience` limits these."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Judged numbers by name, such as `[task] metrics`, without loss and accuracy. Numbers that are not finite are left out."""
    caps: list[int] = field(default_factory=list)
    """Caps on each worker's local iterations in the next round, by rank; empty if no measured seconds set them, and before the
    first round."""

    def standing(self, seconds: float = 0.0) -> Standing:
        """Return the numbers that stop conditions compare with their goals; `seconds`: training time."""
        return Standing(self.round, self.item_iterations, seconds, self.loss, self.accuracy, self.misses, self.metrics)

    def stored(self) -> dict[str, Any]:
        """Return the fields as a checkpoint holds them. Without metrics, caps and judgements, the bytes equal those of older versions."""
        return {
            name: value
            for name, value in asdict(self).items()
            if name not in ("metrics", "caps", "best_loss") or value not in ({}, [], None)
        }

    def without_best(self) -> Progress:
        """Return the same progress for changed code, without a best: numbers of the former code do not measure the new code."""
        return replace(self, best=None, best_loss=None, best_round=0, lead=None, misses=0)

    def judge(
        self,
        loss: float,
        accuracy: float | None,
        metrics: Mapping[str, float] | None = None,
        by: Criterion | None = None,
        *,
        regular: bool = True,
    ) -> bool:
        """Record an evaluation of this round; return True if it is the best so far.

        Args:
            loss: Judged loss.
            accuracy: Judged accuracy, if the task has one.
            metrics: Judged metrics by name.
            by: The number to compare with the best; default: the accuracy, or the loss without it.
            regular: False for an evaluation only because the run ends: a resumed run must be as patient as an uninterrupted one.
        """
        self.judged_round, self.loss, self.accuracy = self.round, loss, accuracy
        self.metrics = {name: value for name, value in (metrics or {}).items() if math.isfinite(value)}
        values = {**self.metrics, "loss": loss, **({} if accuracy is None else {"accuracy": accuracy})}
        by = by or Criterion("loss" if accuracy is None else "accuracy", lower=accuracy is None)
        value, sign = values.get(by.name, math.nan), -1 if by.lower else 1

        def beats(other: float | None) -> bool:
            return not math.isnan(value) and (other is None or sign * value > sign * other)

        if regular and beats(self.lead):
            self.lead, self.misses = value, 0
        elif regular and not math.isnan(value):  # an undefined number is not a measurement
            self.misses += 1
        tied = value == self.best and self.best_loss is not None and loss < self.best_loss
        if best := beats(self.best) or tied:
            self.best, self.best_loss, self.best_round = value, loss, self.round
        return best
