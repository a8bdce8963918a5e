"""An average of the mixed network over rounds, which then counts as the run's network: it is judged, named and exported.

Training continues from the mixed network itself. With x_r the mixed network after round r and a_r its average:

    EMA   a_r <- f a_{r-1} + (1 - f) x_r        f = product over the K iterations of the round of min(t / (t + 1), decay)
    SWA   a_r <- a_{r-1} + (x_r - a_{r-1}) / n  n: networks averaged, the first one at `swa` of the run's length

t counts, from 0, the local iterations of the worker that ran most. So the decay is per optimizer step, as in timm's ModelEma, and
early networks weigh as in a plain mean until the exponential mean is more correct: the initial weights do not count.

Source: Polyak, Juditsky. Acceleration of Stochastic Approximation by Averaging. 1992. doi:10.1137/0330046
Source: Tarvainen, Valpola. Mean teachers are better role models. 2017. arXiv:1703.01780 (f, in the authors' code)
Source: Izmailov et al. Averaging Weights Leads to Wider Optima and Better Generalization. 2018. arXiv:1803.05407
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from partrain.protocols import Rule
from partrain.training.replica import Replica, persistent_buffers


class NetworkAverage:
    """The average of the mixed network, equal on every worker. Each keeps a copy on its device."""

    def __init__(self, replica: Replica, rule: Rule, start: int | None) -> None:
        """Make an empty average. `start`: item-iterations from which networks count under `swa`."""
        self._replica, self._decay, self._start = replica, rule.ema, start
        self.recalibrates = rule.swa is not None or rule.buffers == "recalibrate"
        """True: BatchNorm statistics are recomputed for the average. False: floating-point buffers are averaged like parameters."""
        self.params = torch.zeros_like(replica.params)
        """a_r (d,)"""
        self.buffers = torch.zeros_like(replica.buffers)
        """Average of the replica's buffers (B,)."""
        self.count = 0
        """Local iterations (`ema`) or networks (`swa`) averaged so far; 0: the mixed network itself counts."""
        self._kept: dict[str, Tensor] | None = None
        """Copies of the buffers in training, while `shown` shows others."""

    @property
    def own_buffers(self) -> dict[str, Tensor]:
        """The buffers in training by name, also while `shown` shows others."""
        return dict(persistent_buffers(self._replica.module)) if self._kept is None else self._kept

    def update(self, network: Tensor, iterations: int, items: int) -> None:
        """Take in the mixed network (d,) after a round of K `iterations` that ended at `items` global item-iterations."""
        if self._decay is not None:
            share, count = 1 - kept(self._decay, self.count, iterations), self.count + iterations
        elif items >= (self._start or 0):
            count = self.count + 1
            share = 1 / count
        else:
            return
        for average, newest in (self.params, network), (self.buffers, self._replica.buffers):
            average.mul_(1 - share).add_(newest * share)  # separate products, not fused: every device gets the same bits
        self.count = count

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Let the module show the average for a while: parameters and averaged buffers. Afterwards it has its own again."""
        buffers = self.own_buffers
        self._kept = {name: buffer.clone() for name, buffer in buffers.items()}
        with self._replica.swapped_params(self.params):
            if not self.recalibrates:
                self._replica.buffers.copy_(self.buffers)
            yield
        for name, buffer in buffers.items():
            buffer.copy_(self._kept[name])
        self._kept = None

    def restore(self, count: int) -> None:
        """Take over the network in the module, an average over `count` so far."""
        self.params.copy_(self._replica.params)
        self.buffers.copy_(self._replica.buffers)
        self.count = count


def kept(decay: float, steps: int, iterations: int) -> float:
    """Return f, the share of the old average that is left after some iterations, the first of which is number `steps`."""
    turn = math.floor(decay / (1 - decay) + 1e-9) + 1  # from this iteration on the decay is the smaller factor
    end = steps + iterations
    plain = min(max(turn, steps), end)
    return (steps / plain if plain > steps else 1.0) * decay ** (end - plain)
