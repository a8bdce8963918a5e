"""Caps on the workers' local iterations, so that the local part of a round takes about `[faults] round_seconds`.

All workers decide alike, from the seconds per iteration that each measured in the round before. The caps of the next round are part of
the run's progress, and so of every checkpoint. The clock decides about them; a round that runs again takes its caps from the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RoundCaps:
    """The rule by which caps follow from seconds."""

    seconds: float
    """Wanted seconds of a round's local part."""
    iterations: Sequence[int]
    """Each worker's local iterations without this cap, by rank: per round, or per visit under an asynchronous rule."""
    visits: int = 1
    """Visits of a worker in a round, on average."""
    recorded: Sequence[Sequence[int]] = ()
    """Caps of rounds that run again."""
    first: int = 1
    """The first of these rounds."""

    def decide(self, round_number: int, caps: Sequence[int], measured: Sequence[Sequence[float]]) -> list[int]:
        """Decide the caps of a round, by rank.

        Args:
            round: The round, from 1.
            caps: Caps of the round before; empty if it had none.
            measured: Local iterations and seconds of computing of each worker in the round before.
        """
        if 0 <= round_number - self.first < len(self.recorded):
            return list(self.recorded[round_number - self.first])
        return [
            self._cap(most, now, int(done), seconds)
            for most, now, (done, seconds) in zip(self.iterations, caps or self.iterations, measured, strict=True)
        ]

    def items(self, planned: Sequence[int], caps: Sequence[int]) -> list[int]:
        """Scale the item-iterations of each worker in a full round to a round with these caps."""
        return [items * cap // full for items, cap, full in zip(planned, caps, self.iterations, strict=True)]

    def _cap(self, most: int, now: int, done: int, seconds: float) -> int:
        """Compute one worker's cap. A worker without iterations, or without a measured time, keeps its own."""
        if not done or seconds <= 0:
            return now
        fitting = self.seconds * done / (seconds * self.visits)
        return max(1, int(min(fitting + 1e-6, most)))  # a simulated time of 10 iterations is not 9.999999
