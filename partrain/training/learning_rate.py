"""The learning rate of one worker: the optimizer's schedule over planned global item-iterations, times the rule's scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

from partrain.optim import AnyOptimizer
from partrain.protocols import Rule


class LearningRate:
    """A schedule that needs no communication: progress is planned, not measured."""

    def __init__(self, optimizer: AnyOptimizer, rule: Rule, horizon: int | None) -> None:
        """Make the schedule.

        Args:
            optimizer: The `[optimizer]` table, which holds the schedule.
            rule: The sync rule, which scales the rate (`lr_scale`, `warmup_rounds`).
            horizon: Item-iterations of all workers over which the schedule runs.
        """
        self._optimizer, self._rule = optimizer, rule
        self._horizon = horizon or 1

    def begin(self, round_number: int, item_iterations: int, planned_items: Sequence[int], planned_iterations: int) -> None:
        """Start a round (from 1) after `item_iterations` of all workers.

        Args:
            round_number: The round's number.
            item_iterations: Item-iterations of all workers so far.
            planned_items: Item-iterations in the round of each worker that trains in it.
            planned_iterations: Local iterations of this worker in the round.
        """
        self._start, self._expected, self._planned_iterations = item_iterations, sum(planned_items), planned_iterations
        self._scale = self._scale_in(round_number, len(planned_items))

    def at(self, iterations: float) -> float:
        """Return the rate after this many local iterations of the round."""
        progress = self._start + iterations / self._planned_iterations * self._expected
        return self._scale * self._optimizer.rate(progress, self._horizon)

    def after(self, iterations: int, count: int) -> list[float]:
        """Return the rates of the next `count` local iterations after this many of the round."""
        if not self._optimizer.needs_horizon:
            return [self.at(0.0)] * count
        return [self.at(iterations + number + 0.5) for number in range(count)]

    def _scale_in(self, round_number: int, active_workers: int) -> float:
        scale = {"none": 1.0, "linear": float(active_workers), "sqrt": math.sqrt(active_workers)}[self._rule.lr_scale]
        if self._rule.warmup_rounds and round_number <= self._rule.warmup_rounds:
            return 1 + (scale - 1) * round_number / self._rule.warmup_rounds
        return scale
