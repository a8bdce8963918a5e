"""Caps on the workers' local iterations, from the seconds that each worker measured.

All workers decide the same. The caps of the next round are part of the run's progress, and so of every checkpoint. They depend on
the clock; a round that runs again takes its caps from the record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

FIRST_MEASURED, LAST_MEASURED = 2, 20
"""Rounds whose seconds decide about balance; the first round has the costs of a start."""
STEP, ENOUGH_S = 3, 0.05
"""Number of rounds, and of each worker's seconds in them, that is enough for a decision."""
LIKE = 0.25
"""Change of a worker's iterations, as a share, up to which earlier rounds still count."""
EVEN = 1.05
"""Ratio of the slowest to the fastest local part of a round up to which workers count as equally fast."""


@dataclass
class RoundCaps(ABC):
    """A rule for deriving caps from seconds."""

    iterations: Sequence[int]
    """Each worker's planned local iterations, by rank: per round, or per visit under an asynchronous rule."""
    visits: int = 1
    """Visits of a worker in a round, on average."""
    recorded: Sequence[Sequence[int]] = ()
    """Caps of rounds that run again."""
    first: int = 1
    """The first of these rounds."""

    def decide(self, round_number: int, caps: Sequence[int], measured: Sequence[Sequence[float]]) -> list[int]:
        """Decide the caps of a round, by rank; none: the planned iterations.

        Args:
            round_number: The round, from 1.
            caps: Caps of the previous round; empty if it had none.
            measured: Local iterations and seconds of computing of each worker in the previous round.
        """
        if 0 <= round_number - self.first < len(self.recorded):
            return self.restored(self.recorded[round_number - self.first])
        return self.measured_caps(round_number, caps, measured)

    def items(self, planned: Sequence[int], caps: Sequence[int]) -> list[int]:
        """Scale the item-iterations of each worker in a full round to a round with these caps."""
        return [items * cap // full for items, cap, full in zip(planned, caps, self.iterations, strict=True)]

    @abstractmethod
    def restored(self, caps: Sequence[int]) -> list[int]:
        """Return the caps in a checkpoint or the record of a round, in the form that `decide` returns."""

    @abstractmethod
    def measured_caps(self, round_number: int, caps: Sequence[int], measured: Sequence[Sequence[float]]) -> list[int]:
        """Decide from the measurements; see `decide`."""


@dataclass
class TimeLimit(RoundCaps):
    """Caps that make the local part of a round take about `[faults] round_seconds`, from the previous round."""

    seconds: float = field(kw_only=True)
    """Wanted seconds of a round's local part."""

    def restored(self, caps: Sequence[int]) -> list[int]:
        return [min(cap, most) for cap, most in zip(caps, self.iterations, strict=True)] if caps else []

    def measured_caps(self, round_number: int, caps: Sequence[int], measured: Sequence[Sequence[float]]) -> list[int]:
        return [
            self._cap(most, now, int(done), seconds)
            for most, now, (done, seconds) in zip(self.iterations, caps or self.iterations, measured, strict=True)
        ]

    def _cap(self, most: int, now: int, done: int, seconds: float) -> int:
        """Compute one worker's cap. A worker without iterations, or without a measured time, keeps its own."""
        if not done or seconds <= 0:
            return now
        fitting = self.seconds * done / (seconds * self.visits)
        return max(1, int(min(fitting + 1e-6, most)))  # a simulated time of 10 iterations is not 9.999999


@dataclass
class Balance(RoundCaps):
    """Iterations in proportion to speed (`[partition] balance = "rate"`), about as many in total as planned.

    Every few rounds they follow the speed with the previous iterations, because a round has costs that do not grow with them;
    then they are fixed.
    """

    _measured: list[Sequence[Sequence[float]]] = field(default_factory=list)
    """Iterations and seconds of each worker in the newest rounds."""
    _new: int = 0
    """Rounds since the newest decision."""

    def restored(self, caps: Sequence[int]) -> list[int]:
        return [] if list(caps) == list(self.iterations) else list(caps)

    def measured_caps(self, round_number: int, caps: Sequence[int], measured: Sequence[Sequence[float]]) -> list[int]:
        before = round_number - 1
        if not FIRST_MEASURED <= before <= LAST_MEASURED:
            return list(caps)
        self._measured.append(measured)
        self._new += 1
        by_worker = list(zip(*self._measured, strict=True))
        seconds = [sum(spent for _, spent in rounds) for rounds in by_worker]
        if (self._new < STEP or min(seconds) < ENOUGH_S) and before < LAST_MEASURED:
            return list(caps)
        self._new = 0
        if (
            min(seconds) <= 0
            or max(seconds) <= EVEN * min(seconds)
            or not all(done for rounds in by_worker for done, _ in rounds)
        ):
            return list(caps)
        rates = [median(done / spent for done, spent in rounds) for rounds in by_worker]  # a median: some rounds are disturbed
        slowest = min(rates)
        span = max(1, round(slowest * sum(self.iterations) / sum(rates))) / slowest  # whole iterations of the slowest worker
        now, then = [max(1, round(span * rate)) for rate in rates], caps or self.iterations
        if any(abs(new - old) > LIKE * old for new, old in zip(now, then, strict=True)):
            self._measured = []  # the costs of a round now weigh differently
        return self.restored(now)


def parts_by(caps: Sequence[int], items: int, batches: Sequence[int], overlap: float = 0.0) -> list[int]:
    """Return the sizes of partitions of `items` items in proportion to the caps, so that all items are trained equally often.

    `batches`: items of each worker's iteration. A partition has one item more if a pass would end with a batch of a single item,
    on which BatchNorm cannot train.
    """
    sizes = [-int(-items * cap // (sum(caps) * (1 - overlap))) for cap in caps]
    return [min(items, max(1, size + (size % batch == 1))) for size, batch in zip(sizes, batches, strict=True)]
