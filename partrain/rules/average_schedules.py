"""How many local iterations a round has, where that changes as training goes on: `[sync] schedule` of the rule `average`.

Everything here is decided from numbers that all workers see alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from partrain.protocols import replicated

SETTINGS = {
    "post-local": ["switch_round"],
    "qsr": ["alpha", "most"],
    "adacomm": ["every", "most"],
    "overhead": ["target", "most"],
}
"""What belongs to a schedule."""


@dataclass
class Rate:
    """What `qsr` remembers."""

    rate: float = replicated()
    """Learning rate of the round before; 0 before the first, which may be a warm-up's."""

    def iterations(self, base: int, alpha: float, most: int, rate: float) -> int:
        """K = max(base, floor((alpha / rate)^2)); `base` while the rate still rises, as in the authors' code (its `init_h`)."""
        rising, self.rate = rate > self.rate, rate
        if rising or rate == 0:
            return base
        return max(base, math.floor(min(alpha / rate * (alpha / rate), most)))


@dataclass
class Overhead:
    """What `overhead` remembers: measured times, which no replay would give again, end here."""

    period: int = replicated()
    """K"""

    def adapt(self, target: float, most: int, seen: Sequence[Sequence[float]]) -> None:
        """Seconds that every worker computed, and those it spent on the round besides.

        What counts is the worker that waits least: others wait for it the longer, the longer a round is.
        """
        overhead = min((spent / computed for computed, spent in seen if computed), default=0.0)
        if overhead > target:
            self.period = min(self.period + math.ceil(self.period * overhead / target), most)
        elif overhead < target / 2:
            self.period = max(self.period - 1, 1)


@dataclass
class Losses:
    """What `adacomm` remembers."""

    period: int = replicated()
    """tau: what the losses alone have made of K."""
    first: float = replicated()
    """F_0: mean loss over the first window; 0 until it is known."""
    losses: float = replicated()
    """Sum of the losses of all items in this window."""
    items: int = replicated()
    """Items in this window."""
    rate: float = replicated()
    """lr_0: highest learning rate so far."""

    def iterations(self, most: int, rate: float) -> int:
        """K = ceil(tau sqrt(lr_0 / rate)). (PaddlePaddle's `adaptive_localsgd`, by the same paper, has F lr_0 / (F_0 lr) under the root, too,
        and K_0 beside it.)"""
        self.rate = max(self.rate, rate)
        return math.ceil(min(self.period * math.sqrt(self.rate / rate), most)) if rate else self.period

    def add(self, seen: Sequence[Sequence[float]]) -> None:
        """Items and mean loss of every worker's round."""
        self.items += int(sum(items for items, _ in seen))
        self.losses += sum(items * loss for items, loss in seen)

    def close(self, base: int) -> None:
        """A window ends: tau = ceil(base sqrt(F / F_0)) if that is less than before, else half of what it was."""
        loss, self.losses, self.items = self.losses / self.items, 0.0, 0
        if self.first == 0:
            self.first = loss
            return
        period = math.ceil(min(base * math.sqrt(loss / self.first), base))
        self.period = max(1, period if period < self.period else self.period // 2)
