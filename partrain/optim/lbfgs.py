"""L-BFGS over whole rows: it computes the direction of a quasi-Newton step from the last steps and changes of the gradient.

Symbols: g (d,) gradient; pair k: s_k a step, y_k the change of g along it. The oldest pair has the first row. Unused rows are zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from partrain.flat import Layout
from partrain.optim.sections import Lbfgs

MIN_CURVATURE = 1e-10
"""Smallest s y of a usable pair; below it the pair shows no positive curvature."""


class LbfgsStepper:
    """Steps of one replica. `moments` (2 m + 2, d) holds the y of m pairs, their s, the previous x and the previous g."""

    def __init__(self, section: Lbfgs, params: Tensor, moments: Tensor, layout: Layout) -> None:
        self._section, self._params, self._layout = section, params, layout
        self._changes, self._steps, (self._last, self._before) = torch.split(
            moments, [section.history_size, section.history_size, 2]
        )
        self._gradient = torch.zeros_like(params)
        self._parts = layout.views(self._gradient)

    def step(self, gradients: Sequence[Tensor | None], lr: float) -> None:
        """Compute x <- x - lr H g. A missing gradient counts as zero, as in torch."""
        g = self._gradient
        for part, gradient in zip(self._parts, gradients, strict=True):
            part.zero_() if gradient is None else part.copy_(gradient)
        if float(g.abs().max()) <= self._section.tolerance_grad:
            return
        first = not self._before.any()
        if first:
            direction, length = g.neg(), min(1.0, 1.0 / float(g.abs().sum())) * lr
        else:
            self._remember(g)
            direction, length = self._direction(g), lr
        self._last.copy_(self._params)
        self._before.copy_(g)
        if float(g.dot(direction)) <= -self._section.tolerance_change:
            self._params.add_(direction, alpha=length)

    def _remember(self, g: Tensor) -> None:
        """Add the newest pair and drop the oldest."""
        y, s = g - self._before, self._params - self._last
        if float(y.dot(s)) > MIN_CURVATURE:
            for rows, newest in (self._changes, y), (self._steps, s):
                rows.copy_(rows.roll(-1, 0))
                rows[-1].copy_(newest)

    def _direction(self, g: Tensor) -> Tensor:
        """Compute - H g (d,) by the two loops of algorithm 7.4."""
        pairs = [(y, s, float(y.dot(s))) for y, s in zip(self._changes, self._steps, strict=True)]
        pairs = [pair for pair in pairs if pair[2] > MIN_CURVATURE]
        direction, shares = g.neg(), []
        for y, s, ys in reversed(pairs):
            shares.append(float(s.dot(direction)) / ys)
            direction.add_(y, alpha=-shares[-1])
        if pairs:
            y, _, ys = pairs[-1]
            direction.mul_(ys / float(y.dot(y)))
        for y, s, ys in pairs:
            direction.add_(s, alpha=shares.pop() - float(y.dot(direction)) / ys)
        return direction
