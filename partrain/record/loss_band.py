"""The band of usual losses: the newest ones of one worker, or of the judged network, and the leaps above them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

WINDOW, LEAST = 32, 16
"""Number of newest losses that define the band, and number of losses before which none leaps."""
MAX_Z, MIN_RISE = 10.0, 0.5
"""A loss leaps if its modified z-score, 0.6745 (loss - median) / MAD, is above the first, and it rises above the median by more than the
second as a share. MAD is the median distance from the median. The source advises 3.5 for outliers in
general. Losses of mini-batches have heavier tails, and there are thousands of them."""

LEAST_RISE = 0.01
"""Rise above the median below which a loss does not leap, as a share of the median of the first losses, or of the
largest one if that is 0: losses near zero vary by factors."""


class Leap(NamedTuple):
    """A loss above the band, and the band."""

    loss: float
    usual: tuple[float, float]
    """The lowest and the highest of the newest losses before it."""
    bound: float
    """The upper end of the band."""


class LossBand:
    """The newest losses in their order.

    A leap is reported once; the next leap needs a loss within the band before it. All losses enter the window, so the band
    follows a run that stays on another level.

    Source: Iglewicz, Hoaglin. How to Detect and Handle Outliers. 1993. ASQC Basic References in Quality Control 16
    """

    __slots__ = ("_above", "_least_rise", "_losses")

    def __init__(self) -> None:
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._above = False
        self._least_rise: float | None = None

    def add(self, loss: float) -> Leap | None:
        """Append a finite loss; return the leap if it is the first above the band."""
        losses, spike = self._losses, None
        if self._least_rise is None and len(losses) == LEAST:
            self._least_rise = LEAST_RISE * abs(_median(losses) or max(losses))
        if len(losses) >= LEAST and loss <= (1 + MIN_RISE) * min(losses):  # within any band: most losses need no median
            self._above = False
        elif len(losses) >= LEAST:
            center = _median(losses)
            bound = center + max(MIN_RISE * abs(center), self._least_rise or 0.0)
            if loss > bound:
                bound = max(bound, center + MAX_Z / 0.6745 * _median([abs(other - center) for other in losses]))
            if loss > bound and not self._above:
                spike = Leap(loss, (min(losses), max(losses)), bound)
            self._above = loss > bound
        losses.append(loss)
        return spike


def _median(values: Collection[float]) -> float:
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
