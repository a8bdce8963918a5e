"""The items, local iterations, losses and seconds of one worker."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from partrain.record.round_record import NAN


class RoundCounts(NamedTuple):
    """The counts of a round at one moment."""

    items: int
    done: int
    losses: int


class WorkerTally:
    """The counts of one worker in the current round, and its totals of the rounds before."""

    def __init__(self) -> None:
        self.total_items = self.total_iterations = 0
        """Item-iterations and local iterations of all closed rounds."""
        self.begin()

    def begin(self) -> None:
        """Begin a round."""
        self.items = self.done = self.discarded = 0
        """Item-iterations and local iterations since the round began; undone item-iterations."""
        self.seconds = 0.0
        """Seconds spent computing since the round began."""
        self._losses: list[float | Tensor] = []
        """Loss of each mini-batch of the round: a number, or a tensor () on a device that is still computing."""
        self._sizes: list[int] = []
        self._mean_loss = (0, NAN)
        """Cache of `loss`: (mini-batches so far, value)."""

    def add(self, losses: Sequence[float | Tensor], sizes: Sequence[int]) -> None:
        """Add the losses of mini-batches of these sizes."""
        self._losses += losses
        self._sizes += sizes
        self.items += sum(sizes)

    def close(self) -> None:
        """Add the round to the totals."""
        self.total_items += self.items
        self.total_iterations += self.done

    @property
    def iterations(self) -> int:
        """Local iterations since the run began."""
        return self.total_iterations + self.done

    def loss(self) -> float:
        """Return the mean training loss over the items of the round; NaN without items."""
        if not self._losses:
            return NAN
        if self._mean_loss[0] != len(self._losses):
            losses = torch.stack(self._losses).tolist() if isinstance(self._losses[0], Tensor) else self._losses  # type: ignore[arg-type]
            self._mean_loss = len(losses), float(sum(map(operator.mul, losses, self._sizes)) / sum(self._sizes))
        return self._mean_loss[1]

    def has_finite_loss(self) -> bool:
        """Return whether the round's mean loss is finite; also true without items."""
        return not self._losses or math.isfinite(self.loss())

    def counts(self) -> RoundCounts:
        """Return the present counts, for `take_back`."""
        return RoundCounts(self.items, self.done, len(self._losses))

    def take_back(self, counts: RoundCounts) -> None:
        """Count only what had been done at a moment of the round; what came later counts as discarded."""
        self.discarded += self.items - counts.items
        self.items, self.done = counts.items, counts.done
        del self._losses[counts.losses :], self._sizes[counts.losses :]
