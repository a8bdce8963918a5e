"""DiLoCo: long rounds of a local optimizer, and an outer one with Nesterov momentum between them."""

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

MAX_GAIN, FEW_WORKERS = 13.0, 4
"""Gain from which the outer optimizer moves too far: outer_lr / (1 - outer_momentum). Half of it for fewer workers than this, whose
mean is noisier. The paper's gain is 0.7 / (1 - 0.9) = 7. On MNIST (`benchmarks/momentum.py`) that is best with AdamW; with SGD two
workers lose accuracy by it."""


@dataclass
class DilocoState:
    """The outer optimizer's state."""

    momentum: Tensor = replicated()
    """m (d,)"""


class Diloco(Rule):
    """An outer optimizer takes the mean's movement in a round, the delta, as its gradient.

        x_i   <- K_i local steps from a            (in parallel)
        delta <- a - sum_i w_i x_i / sum_i w_i
        m     <- mu m + delta
        a     <- a - eta (delta + mu m)            (`nesterov`; otherwise a - eta m)

    a: the params at the round's start; eta: `outer_lr`; mu: `outer_momentum`. With eta = 1 and mu = 0 this is averaging. With one
    worker it is a Lookahead optimizer. The paper's local optimizer is AdamW, whose moments stay with each worker.

    Source: Douillard et al. DiLoCo: Distributed Low-Communication Training of Language Models. 2023. arXiv:2311.08105
    """

    round_vectors: ClassVar[int] = 5
    mixes_once: ClassVar[bool] = True

    rule: Literal["diloco"]
    outer_lr: float = Field(0.7, gt=0)
    """Learning rate of the outer optimizer."""
    outer_momentum: float = Field(0.9, ge=0, lt=1)
    """Momentum of the outer optimizer."""
    nesterov: bool = True
    """Use Nesterov's momentum in the outer optimizer."""
    optimizer_state: Literal["average", "local", "reset"] = "local"
    """State of the optimizers (momentum and moments) at the end of a round: average it, keep each worker's (`local`), or reset
    it. Default: it stays with the worker, as in the paper."""

    def check(self, context: JobContext) -> Iterator[Finding]:
        gain = self.outer_lr / (1 - self.outer_momentum)
        few = context.workers < FEW_WORKERS and getattr(context.optimizer, "name", "") != "adamw"
        if gain >= (MAX_GAIN / 2 if few else MAX_GAIN):
            message = f"outer_lr / (1 - outer_momentum) = {gain:.3g}: the outer optimizer moves {gain:.3g} times each delta"
            suited = "0.8 or less suits fewer than 4 workers; the paper's 0.9 suits AdamW"
            yield warning("outer_momentum", message, suited if few else "the paper's 0.9 makes that 7 times")

    @property
    def still_moves(self) -> str:
        return "the outer momentum" if self.outer_momentum else ""

    def init(self, worker: Worker, group: Group) -> DilocoState:
        return DilocoState(worker.params.new_zeros(worker.params.shape))

    def round(self, worker: Worker, group: Group, state: DilocoState) -> None:
        anchor = worker.params.clone()
        worker.train()
        group.all_reduce_mean(worker.params, weight=self.weight(worker.items))
        delta = anchor - worker.params
        state.momentum.mul_(self.outer_momentum).add_(delta)
        step = delta + self.outer_momentum * state.momentum if self.nesterov else state.momentum
        worker.params.copy_(anchor - self.outer_lr * step)
