"""What the rule `rprop` remembers: step sizes, and where steps may be taken back, the newest of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from partrain.protocols import Group, same

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Steps:
    """The state."""

    steps: Tensor = same()
    """Delta (d,)"""
    signs: Tensor = same()
    """Of the gradient before (d,); 0 where a step was taken back or left out."""


@dataclass
class Backtracking(Steps):
    """The state where steps may be taken back."""

    move: Tensor = same()
    """What the newest iteration has added to the params (d,)."""
    loss: float = same()
    """E: mean loss of all items before it."""

    def risen(self, group: Group, weight: float, losses: float, items: int) -> bool:
        """Whether the mean loss has risen since the iteration before, given this worker's weight and its losses' sum."""
        seen = group.scores(weight, weight * losses / max(items, 1))
        before, self.loss = self.loss, sum(loss for _, loss in seen) / sum(weight for weight, _ in seen)
        return self.loss > before
