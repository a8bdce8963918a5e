"""Slow momentum: averaging with a momentum of its own, from round to round."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from partrain.protocols import Group, Remark, Rule, Worker, replicated

if TYPE_CHECKING:
    from torch import Tensor

SUITED = {16: 0.6, 8: 0.5, 4: 0.2, 1: 0.0}
"""Momentum from so many workers on, as fairscale advises for so many machines: the mean of few replicas is too noisy to build on.
Beyond half the way from there to 1 it costs accuracy on MNIST (`benchmarks/momentum.py`)."""


@dataclass
class Slow:
    """The state."""

    momentum: Tensor = replicated()
    """u (d,), in units of a gradient."""


class Slowmo(Rule):
    """Averaging, and what the mean has moved in a round is a gradient to an optimizer with momentum.

        x_i <- K_i local steps from a            (in parallel)
        u   <- beta u + (a - sum_i w_i x_i / sum_i w_i) / gamma
        a   <- a - alpha gamma u

    a: the params at the round's start; alpha: `outer_lr`; beta: `momentum`; gamma: worker 0's newest learning rate, for all.
    Where gamma never changes this is BMUF, blockwise model-update filtering, gamma u being its block momentum. With beta = 0
    and alpha = 1 it is averaging.

    Source: Wang, Tantia, Ballas, Rabbat. SlowMo: Improving Communication-Efficient Distributed SGD with Slow Momentum. 2020.
        arXiv:1910.00643
    Source: Chen, Huo. Scalable Training of Deep Learning Machines by Incremental Block Training with Intra-Block Parallel
        Optimization and Blockwise Model-Update Filtering. 2016. doi:10.1109/ICASSP.2016.7472805
    """

    rule: Literal["slowmo"]
    outer_lr: float = Field(1.0, gt=0)
    """Share of the slow step that is taken; the authors keep it at 1."""
    momentum: float | None = Field(None, ge=0, lt=1)
    """Slow momentum; default by number of workers: 0, from 4 on 0.2, from 8 on 0.5, from 16 on 0.6."""

    def remarks(self, workers: int) -> Iterator[Remark]:
        if self.momentum is not None and self.momentum > (1 + suited(workers)) / 2:
            message = f"a slow momentum of {self.momentum:g} carries on the noise of a mean of only {workers} replicas"
            yield Remark("momentum", message, f"{suited(workers):g} suits them, which is the default", "warning")

    def init(self, worker: Worker, group: Group) -> Slow:
        return Slow(worker.params.new_zeros(worker.params.shape))

    def round(self, worker: Worker, group: Group, state: Slow) -> None:
        anchor = worker.params.clone()
        worker.train()
        group.all_reduce_mean(worker.params, weight=self.weight(worker.items))
        rate = group.scores(worker.lr)[0][0]  # with unequal caps each worker's newest is another one
        if rate == 0:  # a warm-up may begin at 0
            return
        # Product by product, never fused or divided: so every device gets the same bits.
        gradient = (anchor - worker.params) * (1 / rate)
        state.momentum.mul_(suited(worker.size) if self.momentum is None else self.momentum).add_(gradient)
        worker.params.copy_(anchor - state.momentum * (self.outer_lr * rate))


def suited(workers: int) -> float:
    """The momentum that suits so many workers."""
    return next(momentum for least, momentum in SUITED.items() if workers >= least)
