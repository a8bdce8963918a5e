"""What becomes of an update when it arrives at the center of the rule `async`: how much it counts, and when.

Everything here works on one slice of the center, and is done by whoever pushes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from partrain.protocols import Center

if TYPE_CHECKING:
    from torch import Tensor

Discount = Literal["none", "inverse", "polynomial", "hinge"]


def phi(discount: Discount, staleness: int) -> float:
    """phi(s): how much an update of this staleness counts."""
    match discount:
        case "inverse":
            return 1 / max(1, staleness)
        case "polynomial":
            return float((1 + staleness) ** -0.5)
        case "hinge" if staleness > 4:
            return 1 / (10 * (staleness - 4) + 1)
    return 1.0


@dataclass(frozen=True)
class AtOnce:
    """Each update is applied as it comes: c <- c - eta delta."""

    vectors = 0
    """What is kept beside c: vectors (d,)."""

    def take(self, center: Center, delta: Tensor, lr: float) -> None:
        """Take in delta (d',) at the outer learning rate eta."""
        center.vectors[0].sub_(delta * lr)
        center.version += 1


@dataclass(frozen=True)
class SoftSync:
    """Updates wait until there are n, and their mean is applied."""

    count: int
    """n"""
    vectors = 1
    """Their sum."""

    def take(self, center: Center, delta: Tensor, lr: float) -> None:
        """Take in delta (d',) at the outer learning rate eta."""
        if (mean := gather(center, delta, self.count)) is not None:
            center.vectors[0].sub_(mean * lr)
            center.version += 1


@dataclass(frozen=True)
class DelayedNesterov:
    """Each arrival is followed by a share of 1/N; every N of them m <- beta m + mean delta, c <- c - eta beta m besides."""

    momentum: float
    """beta"""
    vectors = 2
    """The updates' sum, and m."""

    def take(self, center: Center, delta: Tensor, lr: float) -> None:
        """Take in delta (d',) at the outer learning rate eta."""
        center.vectors[0].sub_(delta * (lr / center.size))
        center.version += 1
        if (mean := gather(center, delta, center.size)) is not None:
            step = center.vectors[2].mul_(self.momentum).add_(mean) * self.momentum
            center.vectors[0].sub_(step * lr)


def gather(center: Center, delta: Tensor, count: int) -> Tensor | None:
    """The mean of so many updates (d',), this one the last of them; None while there are fewer."""
    gathered = center.vectors[1].add_(delta)
    center.numbers[0] += 1
    if center.numbers[0] < count:
        return None
    mean = gathered / count
    gathered.zero_()
    center.numbers[0] = 0
    return mean
