"""The learning rate of one worker: the optimizer's schedule over planned global item-iterations, times the rule's scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

from partrain.optim import AnyOptimizer
from partrain.protocols import Rule


class LearningRate:
    """A schedule that needs no communication: progress is planned, not measured."""

    def __init__(
        self, optimizer: AnyOptimizer, rule: Rule, planned_items: Sequence[int], planned_iterations: int, horizon: int | None
    ) -> None:
        """Plan for workers with `planned_items` item-iterations in a full round.

        Args:
            optimizer: The `[optimizer]` table, which holds the schedule.
            rule: The sync rule, which scales the rate (`lr_scale`, `warmup_rounds`).
            planned_items: Item-iterations of each worker in a full round, by rank.
            planned_iterations: Local iterations of this worker in a round.
            horizon: Item-iterations of all workers over which the schedule runs.
        """
        self._optimizer, self._rule = optimizer, rule
        self.plan(planned_items, planned_iterations)
        self._horizon = horizon or 1
        self.begin(1, 0, range(len(planned_items)))

    def plan(self, planned_items: Sequence[int], planned_iterations: int) -> None:
        """Plan for rounds of another length; the arguments are those of the constructor."""
        self._planned_items, self._planned_iterations = planned_items, planned_iterations

    def begin(self, round_number: int, item_iterations: int, participants: Sequence[int]) -> None:
        """Start a round (from 1) after `item_iterations` of all workers. `participants`: the ranks that train in it."""
        self._start = item_iterations
        self._expected = sum(self._planned_items[rank] for rank in participants)
        self._scale = self._scale_in(round_number, len(participants))

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
