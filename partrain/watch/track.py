"""The judgements of a run as a curve of bounded size, over time, rounds and item-iterations."""

from __future__ import annotations

import math
from typing import NamedTuple

from partrain.record.events import JudgementEvent
from partrain.record.round_record import NAN

POINTS = 1024
"""Maximum number of points of a curve: four for each column of a wide terminal."""


class Point(NamedTuple):
    """One judgement, or the mean of several; NaN for a number that was not judged."""

    seconds: float
    rounds: float
    items: float
    loss: float
    accuracy: float


class Track:
    """Points over the whole run. If there are too many, neighbours become their mean."""

    def __init__(self) -> None:
        self._means: list[Point] = []
        self._pending: list[Point] = []
        self._stride = 1
        self._last: Point | None = None

    def add(self, event: JudgementEvent) -> None:
        """Append a judgement."""
        loss = NAN if event.loss is None else event.loss
        self._last = Point(event.seconds, event.round, event.item_iterations, loss, event.metrics.get("accuracy", NAN))
        self._pending.append(self._last)
        if len(self._pending) == self._stride:
            self._means.append(_mean(self._pending))
            self._pending = []
            if len(self._means) == POINTS:
                self._means = [_mean(list(pair)) for pair in zip(self._means[::2], self._means[1::2], strict=True)]
                self._stride *= 2

    def points(self) -> list[Point]:
        """Return the curve; its last point is the newest judgement."""
        return self._means if self._stride == 1 or self._last is None else [*self._means, self._last]


def _mean(points: list[Point]) -> Point:
    """Average points, each number over the points that have it."""
    columns = ([value for value in column if math.isfinite(value)] for column in zip(*points, strict=True))
    return Point._make(sum(column) / len(column) if column else NAN for column in columns)
