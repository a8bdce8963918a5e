"""The state of one worker, built round by round: totals of the run, recent rates and a history of its loss."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from partrain.record.events import CountsBefore, SlowEvent
from partrain.record.loss_band import LossBand
from partrain.record.numbers import Merge, Merged
from partrain.record.round_record import ACTIVITIES, ELSEWHERE, NUMBERS, RoundRecord, time_shares

WINDOW_S = 4.0
"""Seconds over which rates are averaged; three rounds if those take longer."""
MARK_S = 0.5
"""Seconds between two marks of the window: rounds may take milliseconds, and memory is bounded."""
COUNTED = [(name, number.rounds) for name, number in NUMBERS.items() if name not in ("round", "seconds", *ELSEWHERE)]
"""Numbers that a worker's state merges over its rounds."""
NOTHING = {name: 0 for name, merge in COUNTED if merge is Merge.SUM}
"""Sums before the first round."""
CELLS = 16
"""Number of values in a worker's loss history."""


class Curve:
    """A history of any length as at most 2 x `cells` means, each over the same number of values."""

    __slots__ = ("_cells", "_count", "_stride", "_sum", "means")

    def __init__(self, cells: int = CELLS) -> None:
        self._cells = cells
        self.means: list[float] = []
        self._stride, self._count, self._sum = 1, 0, 0.0

    def add(self, value: float) -> None:
        """Append a value; if the list is full, merge neighbours."""
        self._sum += value
        self._count += 1
        if self._count == self._stride:
            self.means.append(self._sum / self._count)
            self._count, self._sum = 0, 0.0
            if len(self.means) == 2 * self._cells:
                self.means = [(mean + other) / 2 for mean, other in zip(self.means[::2], self.means[1::2], strict=True)]
                self._stride *= 2

    def resampled(self) -> list[float]:
        """Return at most `cells` means over the whole history."""
        means, size, cells = self.means, len(self.means), self._cells
        if size <= cells:
            return list(means)
        cuts = [cell * size // cells for cell in range(cells + 1)]
        return [sum(means[first:last]) / (last - first) for first, last in pairwise(cuts)]


class Moment(NamedTuple):
    """A worker's progress at one moment, or between two."""

    seconds: float = 0.0
    """Seconds of training."""
    items: float = 0
    """Item-iterations."""
    spent: tuple[float, ...] = ()
    """Seconds by activity, in the order of ACTIVITIES."""


@dataclass(slots=True)
class WorkerState:
    """A worker's totals of the whole run, and its recent rates."""

    rank: int
    device: str = "?"
    round: int = 0
    """The newest round that the worker finished."""
    numbers: Merged = field(default_factory=lambda: Merged(NOTHING))
    """The numbers of a round, each merged over the rounds of this folder's events; work in another folder also counts."""
    elsewhere: int = 0
    """Item-iterations in another folder, whose seconds are unknown here."""
    rounds: int = 0
    """Number of its rounds in this folder's events."""
    unevenness: float | None = None
    """Label skew of the partition compared with all items, from 0 to 1, if measured."""
    lost: bool = False
    left: bool = False
    """True if the run continues without it, after a resume with other workers."""
    slow: SlowEvent | None = None
    """The newest report of a slow worker."""
    curve: Curve = field(default_factory=Curve)
    band: LossBand = field(default_factory=LossBand)
    """Its usual training losses."""
    marks: deque[Moment] = field(default_factory=deque)
    t: float = 0.0
    seconds: float = 0.0
    """Seconds of training at the end of its newest round."""
    trained_rounds: int = 0
    """Rounds of this folder's events in which the worker trained."""
    round_items: int = 0
    """Item-iterations of its newest round."""

    def begin(self, device: str, round_: int, before: CountsBefore | None, unevenness: float | None = None) -> None:
        """Begin a session after this round; `before` holds the worker's totals in another folder."""
        if before and not self.rounds:
            self.elsewhere = before["item_iterations"]
            self.numbers.values |= {"iterations": before["iterations"], "items": self.elsewhere}
        self.device, self.round, self.unevenness = device, round_, unevenness
        self.lost = self.left = False
        self.slow = None
        self.marks.clear()

    def count(self, t: float, record: RoundRecord, seconds: float) -> None:
        """Add a round that ended at `t`, after `seconds` of training."""
        if not self.marks:
            elsewhere = self.elsewhere and not self.rounds  # the seconds before its first round here are unknown
            spent = record.compute + record.wait + record.mix
            self.marks.append(self._at(seconds - spent if elsewhere else self.seconds))
        self.t, self.round, self.lost, self.seconds = t, record.round, False, seconds
        self.rounds, self.round_items = self.rounds + 1, record.items
        self.trained_rounds += record.items > 0
        self.numbers.add(vars(record), COUNTED, record.items)
        if math.isfinite(record.loss):
            self.curve.add(record.loss)
        if seconds - self.marks[-1].seconds >= MARK_S:
            self.marks.append(self._at(seconds))
            while len(self.marks) > 4 and self.marks[1].seconds <= seconds - WINDOW_S:
                self.marks.popleft()

    def _at(self, seconds: float) -> Moment:
        return Moment(seconds, self.items, self.spent)

    @property
    def items(self) -> int:
        """Item-iterations of the run."""
        return int(self.numbers["items"])

    @property
    def spent(self) -> tuple[float, ...]:
        """Seconds by activity, in the order of ACTIVITIES."""
        return tuple(self.numbers[name] for name in ACTIVITIES)

    def recent(self) -> Moment | None:
        """Return the progress in the window; `seconds` is its length. None before the first round."""
        if not self.marks or self.seconds <= (first := self.marks[0]).seconds:
            return None
        spent = tuple(now - then for now, then in zip(self.spent, first.spent, strict=True))
        return Moment(self.seconds - first.seconds, self.items - first.items, spent)

    def waiting(self) -> float:
        """Return the share of the worker's seconds that it spent waiting for others."""
        return time_shares([self.spent]).get("wait", 0.0)

    def rate(self) -> float:
        """Item-iterations per second lately."""
        recent = self.recent()
        return recent.items / recent.seconds if recent else 0.0
