"""DiLoCo: long rounds of a local optimizer, and an outer one with Nesterov momentum between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from partrain.protocols import Group, Remark, Rule, Worker, replicated

if TYPE_CHECKING:
    from torch import Tensor

FAR, FEW = 13.0, 4
"""So many times a delta's length are too many to follow it, half as many for fewer workers than this, whose mean is noisier: the
paper's 0.7 / (1 - 0.9) is 7. On MNIST (`benchmarks/momentum.py`) that is the best beside AdamW; beside SGD two workers lose by it."""


@dataclass
class Outer:
    """The state."""

    momentum: Tensor = replicated()
    """m (d,)"""


class Diloco(Rule):
    """What the mean has moved in a round, the delta, is the gradient that an outer optimizer sees.

        x_i   <- K_i local steps from a            (in parallel)
        delta <- a - sum_i w_i x_i / sum_i w_i
        m     <- mu m + delta
        a     <- a - eta (delta + mu m)            (`nesterov`; otherwise a - eta m)

    a: the params at the round's start; eta: `outer_lr`; mu: `outer_momentum`. With eta = 1 and mu = 0 it is averaging; with one
    worker it looks ahead as Lookahead does. The paper's local optimizer is AdamW, of which each worker keeps its moments.

    Source: Douillard et al. DiLoCo: Distributed Low-Communication Training of Language Models. 2023. arXiv:2311.08105
    """

    rule: Literal["diloco"]
    outer_lr: float = Field(0.7, gt=0)
    """Learning rate of the outer optimizer."""
    outer_momentum: float = Field(0.9, ge=0, lt=1)
    """Momentum of the outer optimizer."""
    nesterov: bool = True
    """Whether the outer momentum is Nesterov's."""
    optimizer_state: Literal["average", "local", "reset"] = "local"
    """What happens to momentum and moments when replicas are mixed: here they stay with the worker, as in the paper."""

    def remarks(self, workers: int) -> Iterator[Remark]:
        reach, few = self.outer_lr / (1 - self.outer_momentum), workers < FEW
        if reach >= (FAR / 2 if few else FAR):
            message = (
                f"with an outer momentum of {self.outer_momentum:g} each delta is followed {reach:.3g} times its length in all"
            )
            advice = (
                "0.8 or less suits fewer than 4 workers, unless the optimizer is AdamW"
                if few
                else "the paper's 0.9 makes that 7 times"
            )
            yield Remark("outer_momentum", message, advice, "warning")

    def init(self, worker: Worker, group: Group) -> Outer:
        return Outer(worker.params.new_zeros(worker.params.shape))

    def round(self, worker: Worker, group: Group, state: Outer) -> None:
        anchor = worker.params.clone()
        worker.train()
        group.all_reduce_mean(worker.params, weight=self.weight(worker.items))
        delta = anchor - worker.params
        state.momentum.mul_(self.outer_momentum).add_(delta)
        step = delta + self.outer_momentum * state.momentum if self.nesterov else state.momentum
        worker.params.copy_(anchor - self.outer_lr * step)
