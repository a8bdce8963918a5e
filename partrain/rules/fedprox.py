"""FedProx: averaging, with a pull of each local step towards the network that the round began with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from partrain.protocols import Group, State, Worker
from partrain.rules.corrected_steps import CorrectedSteps, overshoot

if TYPE_CHECKING:
    from partrain.config.problems import Finding
    from partrain.protocols.rule_traits import JobContext


class Fedprox(CorrectedSteps):
    """Averaging, whose workers minimise their loss and half of mu times the squared distance from the round's start.

        x_i <- K_i local steps from a with g_i(x_i) + mu (x_i - a)            (in parallel)
        a   <- sum_i w_i x_i / sum_i w_i

    a: the params at the round's start; mu: `proximal`. The pull keeps replicas together that train for long or on unlike
    partitions. With mu = 0 this is averaging.

    Source: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith. Federated Optimization in Heterogeneous Networks. 2020. arXiv:1812.06127
    """

    round_vectors: ClassVar[int] = 7
    mixes_once: ClassVar[bool] = True

    rule: Literal["fedprox"]
    proximal: float = Field(0.01, ge=0)
    """mu: strength of the pull. The authors try 0.001, 0.01, 0.1 and 1."""

    def check(self, context: JobContext) -> Iterator[Finding]:
        yield from overshoot(self.proximal, context)

    def round(self, worker: Worker, group: Group, state: State) -> None:
        anchor = worker.params.clone()
        self.local_steps(worker, lambda x: (x - anchor).mul_(self.proximal))
        group.all_reduce_mean(worker.params, weight=self.weight(worker.items))
