"""Slow momentum: averaging, with momentum from round to round."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from partrain.protocols import Group, Rule, Worker, replicated
from partrain.rules.findings import warning

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.config.problems import Finding
    from partrain.protocols.rule_traits import JobContext

DEFAULT_MOMENTUM_BY_WORKERS = {16: 0.6, 8: 0.5, 4: 0.2, 1: 0.0}
"""Momentum from this number of workers on, as fairscale advises by number of machines: the mean of few replicas is too noisy for more.
Momentum beyond halfway between this and 1 costs accuracy on MNIST (`benchmarks/momentum.py`)."""


@dataclass
class SlowmoState:
    """The slow optimizer's state."""

    momentum: Tensor = replicated()
    """u (d,), in units of a gradient."""


class Slowmo(Rule):
    """Averaging; a slow optimizer with momentum takes the mean's movement in a round as its gradient.

        x_i <- K_i local steps from a            (in parallel)
        u   <- beta u + (a - sum_i w_i x_i / sum_i w_i) / gamma
        a   <- a - alpha gamma u

    a: the params at the round's start; alpha: `outer_lr`; beta: `momentum`; gamma: worker 0's newest learning rate, for all.
    With constant gamma this is BMUF, blockwise model-update filtering, and gamma u its block momentum. With beta = 0 and alpha = 1
    it is averaging. Groups of parameters with their own rates, r_j gamma, need no separate gamma: the constant r_j would cancel
    out.

    Source: Wang, Tantia, Ballas, Rabbat. SlowMo: Improving Communication-Efficient Distributed SGD with Slow Momentum. 2020.
        arXiv:1910.00643
    Source: Chen, Huo. Scalable Training of Deep Learning Machines by Incremental Block Training with Intra-Block Parallel
        Optimization and Blockwise Model-Update Filtering. 2016. doi:10.1109/ICASSP.2016.7472805
    """

    round_vectors: ClassVar[int] = 4
    mixes_once: ClassVar[bool] = True

    rule: Literal["slowmo"]
    outer_lr: float = Field(1.0, gt=0)
    """alpha: factor of the slow step; the authors keep it at 1."""
    momentum: float | None = Field(None, ge=0, lt=1)
    """beta: momentum of the slow optimizer. Default by the number of workers: 0; from 4 workers 0.2, from 8 0.5, from 16 0.6."""

    def check(self, context: JobContext) -> Iterator[Finding]:
        workers, default = context.workers, default_momentum(context.workers)
        if self.momentum is not None and self.momentum > (1 + default) / 2:
            number = f"{workers} worker{'s'[: workers > 1]}"
            message = f"slow momentum {self.momentum:g} is too high for {number}: the mean of few replicas is noisy"
            yield warning("momentum", message, f"{default:g} is the default")

    def init(self, worker: Worker, group: Group) -> SlowmoState:
        return SlowmoState(worker.params.new_zeros(worker.params.shape))

    def round(self, worker: Worker, group: Group, state: SlowmoState) -> None:
        anchor = worker.params.clone()
        worker.train()
        group.all_reduce_mean(worker.params, weight=self.weight(worker.items))
        rate = group.scores(worker.lr)[0][0]  # with unequal caps workers end on different ones
        if rate == 0:  # a warm-up may begin at 0
            return
        # Separate products, not fused and without division: every device gets the same bits.
        gradient = (anchor - worker.params) * (1 / rate)
        state.momentum.mul_(default_momentum(worker.size) if self.momentum is None else self.momentum).add_(gradient)
        worker.params.copy_(anchor - state.momentum * (self.outer_lr * rate))


def default_momentum(workers: int) -> float:
    """Return the default momentum for N workers."""
    return next(momentum for least, momentum in DEFAULT_MOMENTUM_BY_WORKERS.items() if workers >= least)
