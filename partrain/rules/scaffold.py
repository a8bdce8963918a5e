"""SCAFFOLD: averaging, with control variates against the drift of workers whose partitions are unlike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from partrain.protocols import Group, Worker, replicated
from partrain.rules.corrected_steps import CorrectedSteps
from partrain.rules.findings import warning

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.config.problems import Finding
    from partrain.protocols.rule_traits import JobContext


@dataclass
class ScaffoldState:
    """The control variates, in units of a gradient."""

    own: Tensor
    """c_i (d,): estimate of the worker's mean gradient."""
    common: Tensor = replicated()
    """c (d,): the mean of all c_i."""


class Scaffold(CorrectedSteps):
    """Averaging, whose workers step along an estimate of the common gradient: the mean of all replaces their own estimate.

        x_i <- K_i local steps from a with g_i(x_i) - c_i + c            (in parallel)
        c_i <- c_i - c + (a - x_i) / (sum of the K_i learning rates)
        a   <- a + alpha (sum_i w_i x_i / sum_i w_i - a)
        c   <- sum_i c_i / N

    a: the params at the round's start; alpha: `outer_lr`. This is the paper's option II with all clients in each round. A
    worker that does not train in a round keeps its c_i.

    Source: Karimireddy, Kale, Mohri, Reddi, Stich, Suresh. SCAFFOLD: Stochastic Controlled Averaging for Federated Learning. 2020.
        arXiv:1910.06378
    """

    round_vectors: ClassVar[int] = 9

    rule: Literal["scaffold"]
    weights: Literal["items", "equal"] = "equal"
    """Weight of each replica in the mean: the same for all, as in the paper (`equal`), or its item-iterations of the round (`items`)."""
    outer_lr: float = Field(1.0, gt=0)
    """alpha: factor of the mean movement, the paper's global step size."""

    def check(self, context: JobContext) -> Iterator[Finding]:
        optimizer = context.optimizer
        if optimizer is not None and (optimizer.name != "sgd" or getattr(optimizer, "momentum", 0.0)):
            what = f'"{optimizer.name}"' + (" with momentum" if optimizer.name == "sgd" else "")
            message = f"control variates are estimated from the steps of plain SGD; those of {what} are no mean of gradients"
            yield warning(("optimizer", "name"), message, 'use "sgd" without momentum')

    @property
    def keeps_worker_state(self) -> bool:
        return True

    def init(self, worker: Worker, group: Group) -> ScaffoldState:
        return ScaffoldState(worker.params.new_zeros(worker.params.shape), worker.params.new_zeros(worker.params.shape))

    def round(self, worker: Worker, group: Group, state: ScaffoldState) -> None:
        anchor = worker.params.clone()
        shift = state.common - state.own
        rates = self.local_steps(worker, lambda _: shift)
        if rates:  # 0 for a worker that does not train yet, and at a rate of 0
            state.own.sub_(state.common).add_((anchor - worker.params) * (1 / rates))
        group.all_reduce_mean(worker.params, weight=self.weight(worker.items))
        worker.params.copy_(anchor.lerp(worker.params, self.outer_lr))
        state.common.copy_(state.own)
        group.all_reduce_mean(state.common)
