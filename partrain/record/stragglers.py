"""Stragglers: workers that take longer for an item than other workers of their kind.

The measure is seconds of computing per item-iteration, over a span of rounds of at least SPAN_S: a worker's factor in a span is its
measure over the median of the others'. Its current factor is the median over the newest SPANS spans. A hiccup in one or two of
them does not change it, and a machine that is slow as a whole changes nothing. A worker is slow from SLOW until it falls below
RECOVERED.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from itertools import dropwhile, takewhile
from statistics import median

from partrain.record.events import SlowEvent
from partrain.record.round_record import RoundRecord

SLOW, RECOVERED = 1.5, 1.25
"""Factors from which a worker is slow, and below which it no longer is."""
CHANGED = 1.5
"""A slow worker is reported again if its factor rises or falls by this factor."""
SPANS = 5
"""Number of spans that decide. A worker that is slow in three of them is slow."""
SPAN_S = 0.5
"""Smallest number of training seconds in a span, by the workers' clocks; a longer round is its own span."""


class Stragglers:
    """The slow workers of a run. The cost of a round does not grow with the run."""

    def __init__(self, kinds: Sequence[Hashable]) -> None:
        """Compare only workers of the same kind, such as device and threads. `kinds`: by rank."""
        self._kinds = kinds
        self._slow: dict[int, SlowEvent] = {}
        """The newest report of each slow worker."""
        self.rewind(0)

    def rewind(self, round_number: int) -> None:
        """Forget the measurements, and the reports after a round: the rounds run again in another way."""
        self._slow = {rank: event for rank, event in self._slow.items() if event.round <= round_number}
        self._factors: list[deque[tuple[int, float]]] = [deque(maxlen=SPANS) for _ in self._kinds]
        """First round and factor of the newest spans, by rank."""
        self._begin(0, -SPAN_S)

    def _begin(self, round_number: int, seconds: float) -> None:
        """Begin a span after a round that ended after `seconds` of training."""
        self._first, self._began = round_number + 1, seconds
        self._compute, self._items = [0.0] * len(self._kinds), [0] * len(self._kinds)

    def add(self, t: float, records: Sequence[RoundRecord]) -> Iterator[SlowEvent]:
        """Add a round of all workers, by rank. Yield an event for each worker that became slow, changed much or recovered."""
        first = records[0]
        if self._began < 0:
            self._begin(first.round - 1, max(0.0, first.seconds - first.compute - first.wait - first.mix))
        for rank, record in enumerate(records):
            self._compute[rank] += record.compute
            self._items[rank] += record.items
        if first.seconds - self._began < SPAN_S:
            return
        self._close_span()
        self._begin(first.round, first.seconds)
        for rank, spans in enumerate(self._factors):
            if len(spans) == SPANS and (event := self._judge(t, first.round, rank)):
                yield event

    def _close_span(self) -> None:
        """Compute the factors of a span among the workers of each kind that trained in it."""
        for kind in set(self._kinds):
            measured = {
                rank: self._compute[rank] / self._items[rank]
                for rank, other in enumerate(self._kinds)
                if other == kind and self._items[rank] and self._compute[rank] > 0
            }
            ordered = sorted(measured.values())
            for rank, value in measured.items() if len(ordered) > 1 else ():
                self._factors[rank].append((self._first, value / median_of_others(ordered, value)))

    def _judge(self, t: float, round_number: int, rank: int) -> SlowEvent | None:
        """Decide whether a worker's state is worth a report."""
        factors, before = [factor for _, factor in self._factors[rank]], self._slow.get(rank)
        if (factor := median(factors)) >= SLOW:  # without the span in which it became slow
            factor = median(value for value in factors if value >= SLOW)
        changed = before is not None and not 1 / CHANGED < factor / before.factor < CHANGED
        if factor >= SLOW and (changed or before is None):
            since = before.since if before else self._slow_since(rank)
            event = SlowEvent(t=t, round=round_number, rank=rank, factor=round_to(factor), since=since)
            self._slow[rank] = event
            return event
        if before and (factor < RECOVERED or (changed and factor < SLOW)):
            del self._slow[rank]
            return SlowEvent(t=t, round=round_number, rank=rank, factor=round_to(factor), since=before.since, recovered=True)
        return None

    def _slow_since(self, rank: int) -> int:
        """Find the first round of the newest slow spans in a row; a hiccup before them does not count."""
        newest_first = dropwhile(lambda span: span[1] < SLOW, reversed(self._factors[rank]))
        return min(first for first, _ in takewhile(lambda span: span[1] >= SLOW, newest_first))


def median_of_others(ordered: Sequence[float], value: float) -> float:
    """Return the median of sorted numbers without one of them."""
    own, count = bisect_left(ordered, value), len(ordered) - 1
    low, high = (ordered[place + (place >= own)] for place in ((count - 1) // 2, count // 2))
    return (low + high) / 2


def round_to(factor: float) -> float:
    """Round a factor to three digits: further digits are noise."""
    return float(f"{factor:.3g}")
