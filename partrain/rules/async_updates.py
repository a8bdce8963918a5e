"""Updates that arrive at the center under the rule `async`: their weight, and the moment they are applied.

All of this works on one slice of the center. The worker that pushes an update does the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from partrain.protocols.asynchronous import Center

if TYPE_CHECKING:
    from torch import Tensor

Discount = Literal["none", "inverse", "polynomial", "hinge"]


def phi(discount: Discount, staleness: int) -> float:
    """Compute phi(s), the weight of an update of staleness s."""
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
    """Apply each update as it arrives: c <- c - eta delta."""

    vectors = 0
    """Vectors (d,) that the center keeps beside c."""

    def apply(self, center: Center, delta: Tensor, lr: float) -> None:
        """Apply delta (d',) at the outer learning rate eta."""
        center.vectors[0].sub_(delta * lr)
        center.version += 1


@dataclass(frozen=True)
class SoftSync:
    """Gather n updates, then apply their mean."""

    count: int
    """n"""
    vectors = 1
    """The updates' sum."""

    def apply(self, center: Center, delta: Tensor, lr: float) -> None:
        """Apply delta (d',) at the outer learning rate eta."""
        if (mean := gather(center, delta, self.count)) is not None:
            center.vectors[0].sub_(mean * lr)
            center.version += 1


@dataclass(frozen=True)
class DelayedNesterov:
    """Apply 1/N of each update as it arrives; after every N updates m <- beta m + mean delta, c <- c - eta beta m."""

    momentum: float
    """beta"""
    vectors = 2
    """The updates' sum, and m."""

    def apply(self, center: Center, delta: Tensor, lr: float) -> None:
        """Apply delta (d',) at the outer learning rate eta."""
        center.vectors[0].sub_(delta * (lr / center.size))
        center.version += 1
        if (mean := gather(center, delta, center.size)) is not None:
            step = center.vectors[2].mul_(self.momentum).add_(mean) * self.momentum
            center.vectors[0].sub_(step * lr)


def gather(center: Center, delta: Tensor, count: int) -> Tensor | None:
    """Add an update (d',); return the mean of `count` updates once they have arrived, else None."""
    gathered = center.vectors[1].add_(delta)
    center.numbers[0] += 1
    if center.numbers[0] < count:
        return None
    mean = gathered / count
    gathered.zero_()
    center.numbers[0] = 0
    return mean
