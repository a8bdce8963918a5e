"""The state of one worker, built round by round: totals of the run, recent rates and a history of its loss."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from partrain.record.events import CountsBefore, SlowEvent
from partrain.record.loss_band import LossBand
from partrain.record.round_record import RoundRecord, finite, time_shares

WINDOW_S = 4.0
"""Seconds over which rates are averaged; three rounds if those take longer."""
MARK_S = 0.5
"""Seconds between two marks of the window: rounds may take milliseconds, and memory is bounded."""
SMOOTHING = 5
"""Rounds over which a worker's training loss is smoothed."""
CELLS = 16
"""Values of a worker's loss history."""


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


class Totals(NamedTuple):
    """A worker's totals at one moment."""

    seconds: float = 0.0
    """Seconds of training."""
    rounds: int = 0
    """Rounds in this folder's events."""
    items: int = 0
    """Item-iterations of the run."""
    compute: float = 0.0
    wait: float = 0.0
    mix: float = 0.0
    """Seconds computing, waiting for others, and mixing."""

    @property
    def spent(self) -> tuple[float, float, float]:
        """Seconds by activity, in the order of ACTIVITIES."""
        return self[3:]


@dataclass(slots=True)
class WorkerState:
    """One worker: totals of the whole run, and its recent rates."""

    rank: int
    device: str = "?"
    round: int = 0
    """The newest round that the worker finished."""
    total: Totals = field(default_factory=Totals)
    iterations: int = 0
    elsewhere: int = 0
    """Item-iterations in another folder, whose seconds are unknown here."""
    bytes: int = 0
    """Bytes of messages in this folder's events."""
    core_wait: float = 0.0
    """Seconds without a core in this folder's events."""
    round_items: int = 0
    round_loss: float | None = None
    """Item-iterations and mean training loss of the newest round."""
    loss: float | None = None
    """Training loss, smoothed."""
    distance: float | None = None
    """Consensus distance of all replicas, when last measured."""
    unevenness: float | None = None
    """Label skew of the partition against all items, from 0 to 1, if measured."""
    lost: bool = False
    left: bool = False
    """The run goes on without it, after a resume with other workers."""
    slow: SlowEvent | None = None
    """The newest report of a slow worker."""
    curve: Curve = field(default_factory=Curve)
    band: LossBand = field(default_factory=LossBand)
    """Its usual training losses."""
    marks: deque[Totals] = field(default_factory=deque)
    t: float = 0.0

    def begin(self, device: str, round_: int, before: CountsBefore | None, unevenness: float | None = None) -> None:
        """Begin a session after this round; `before` holds the worker's totals in another folder."""
        if before and not self.total.rounds:
            self.iterations, self.elsewhere = before["iterations"], before["item_iterations"]
            self.total = Totals(items=self.elsewhere)
        self.device, self.round, self.unevenness = device, round_, unevenness
        self.lost = self.left = False
        self.slow = None
        self.marks.clear()

    def count(self, t: float, record: RoundRecord, seconds: float) -> None:
        """Add a round that ended at `t`, after `seconds` of training."""
        items, loss, distance = record.items, finite(record.loss), finite(record.distance)
        total, compute, wait, mix = self.total, record.compute, record.wait, record.mix
        if not self.marks:
            self.marks.append(total._replace(seconds=seconds - compute - wait - mix))
        self.t, self.round, self.lost = t, record.round, False
        self.iterations += record.iterations
        self.total = Totals(
            seconds, total.rounds + 1, total.items + items, total.compute + compute, total.wait + wait, total.mix + mix
        )
        self.bytes += int(finite(record.bytes) or 0)
        self.core_wait += finite(record.core_wait) or 0.0
        self.round_items, self.round_loss = items, loss
        if loss is not None:
            self.loss = loss if self.loss is None else self.loss + (loss - self.loss) / min(self.total.rounds, SMOOTHING)
            self.curve.add(loss)
        if distance is not None:
            self.distance = distance
        if seconds - self.marks[-1].seconds >= MARK_S:
            self.marks.append(self.total)
            while len(self.marks) > 4 and self.marks[1].seconds <= seconds - WINDOW_S:
                self.marks.popleft()

    def recent(self) -> Totals | None:
        """Return the totals of the window as differences; `seconds` is its length. None before the first round."""
        if not self.marks or self.total.seconds <= self.marks[0].seconds:
            return None
        return Totals._make(now - then for now, then in zip(self.total, self.marks[0], strict=True))

    def waiting(self) -> float:
        """Return the share of the worker's seconds that it spent waiting for others."""
        return time_shares([self.total.spent]).get("wait", 0.0)

    def rate(self) -> float:
        """Item-iterations per second lately."""
        recent = self.recent()
        return recent.items / recent.seconds if recent else 0.0
