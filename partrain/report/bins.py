"""Long runs in few numbers: thinned curves, and workers' time in equal parts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from partrain.record.round_record import ACTIVITIES

"""Parts of a worker's time, in their order within a round."""


class WorkerSpan(NamedTuple):
    """A worker's time in one round, by the training clock."""

    end: float
    compute: float
    wait: float
    mix: float
    items: int


def thinned(points: Sequence[tuple[float, float]], most: int) -> Iterator[tuple[float, float]]:
    """Yield at most `most` points: means of neighbors, each at the last one's place."""
    size = -(-len(points) // most) if points else 1
    for first in range(0, len(points), size):
        part = points[first : first + size]
        yield part[-1][0], sum(y for _, y in part) / len(part)


@dataclass
class Bin:
    """Seconds of a worker by activity within a part of the run, and the item-iterations then."""

    compute: float = 0.0
    wait: float = 0.0
    mix: float = 0.0
    items: float = 0.0


def binned(spans: Sequence[WorkerSpan], end: float, count: int) -> list[Bin]:
    """Spread a worker's rounds over `count` equal parts of the time from 0 to `end`: computing first, then waiting, then mixing."""
    bins = [Bin() for _ in range(count)]
    width = end / count
    for span in spans:
        lasted = span.compute + span.wait + span.mix
        if not (math.isfinite(span.end) and math.isfinite(lasted)) or lasted <= 0:
            continue
        at = max(0.0, span.end - lasted)
        _spread(bins, "items", at, span.end, span.items, width)
        for name, seconds in zip(ACTIVITIES, (span.compute, span.wait, span.mix), strict=True):
            _spread(bins, name, at, at + seconds, seconds, width)
            at += seconds
    return bins


def _spread(bins: list[Bin], name: str, start: float, end: float, amount: float, width: float) -> None:
    """Add an amount to the bins that an interval touches, in proportion."""
    if end <= start:
        return
    last = len(bins) - 1
    first, final = min(int(start / width), last), min(int(end / width), last)
    for index in range(first, final + 1):
        low = start if index == first else index * width
        high = end if index == final else (index + 1) * width
        one = bins[index]
        setattr(one, name, getattr(one, name) + amount * max(0.0, high - low) / (end - start))
