"""FedDyn: averaging; a linear and a proximal term for each worker move the minima of all to the minimum of their mean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from partrain.protocols import Group, Worker, replicated
from partrain.rules.corrected_steps import CorrectedSteps, overshoot
from partrain.rules.findings import warning

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.config.problems import Finding
    from partrain.protocols.rule_traits import JobContext

LEAST_FADING, GOOD_FADING = 0.02, 0.2
"""alpha gamma K: share of the server's correction that a round of K steps at the rate gamma forgets. The workers of `benchmarks/drift.py`
do best near 0.2, in its rounds of 100 steps and in shorter ones of 10 (one seed). At 0.02 they end like averaging, at 0.002 worse."""


@dataclass
class FeddynState:
    """The linear terms, in units of a gradient."""

    own: Tensor
    """h_i (d,): the gradient of the worker's loss at its last x_i, if that is the minimum of its objective."""
    common: Tensor = replicated()
    """h (d,): the mean of all h_i."""


class Feddyn(CorrectedSteps):
    """Averaging, whose workers minimise f_i(x) - <h_i, x> + alpha/2 |x - a|^2. At rest each has its own gradient h_i, and their mean is 0.

        x_i <- K_i local steps from a with g_i(x_i) - h_i + alpha (x_i - a)            (in parallel)
        h_i <- h_i - alpha (x_i - a)
        x   <- sum_i w_i x_i / sum_i w_i
        h   <- h - alpha S/N (x - a)
        a   <- x - h / alpha

    a: the params at the round's start; alpha: `proximal`; S: number of the workers that train in the round.
    The other workers keep their h_i. The paper's workers minimise exactly; here K_i steps do so in part, as in the authors' code.
    With unequal `weights` h is the weighted mean of all h_i, and the minimised loss has the same weights.

    -h / alpha is the sum of all movements so far: a momentum that only the pull dampens. In a direction where losses are flat, a round of
    K steps at the rate gamma keeps (1 - alpha gamma)^K of it.

    Source: Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama. Federated Learning Based on Dynamic Regularization. 2021.
        arXiv:2111.04263
    """

    round_vectors: ClassVar[int] = 9
    mixes_once: ClassVar[bool] = True

    rule: Literal["feddyn"]
    weights: Literal["items", "equal"] = "equal"
    """Weight of each replica in the mean: the same for all, as in the paper (`equal`), or its item-iterations of the round (`items`)."""
    proximal: float = Field(0.01, gt=0)
    """alpha: strength of the pull to the round's start, and of all corrections. The authors try 0.001, 0.01 and 0.1."""

    def check(self, context: JobContext) -> Iterator[Finding]:
        yield from overshoot(self.proximal, context)
        if (optimizer := context.optimizer) is None or optimizer.name != "sgd":  # others' steps follow no learning rate
            return
        rates = optimizer.lr / (1 - optimizer.momentum) * (self.iterations or 0)
        if 0 < (fading := self.proximal * rates) < LEAST_FADING:
            message = f"the server's correction, a sum of all movements, forgets only {fading:.2g} of itself in a round"
            yield warning("proximal", message, f"with {GOOD_FADING / rates:.2g} it forgets {GOOD_FADING}")

    @property
    def still_moves(self) -> str:
        return "the server's correction"

    @property
    def keeps_worker_state(self) -> bool:
        return True

    def init(self, worker: Worker, group: Group) -> FeddynState:
        return FeddynState(worker.params.new_zeros(worker.params.shape), worker.params.new_zeros(worker.params.shape))

    def round(self, worker: Worker, group: Group, state: FeddynState) -> None:
        anchor, alpha = worker.params.clone(), self.proximal
        self.local_steps(worker, lambda x: (x - anchor).mul_(alpha).sub_(state.own))
        state.own.sub_((worker.params - anchor).mul_(alpha))
        group.all_reduce_mean(worker.params, weight=self.weight(worker.items))
        share = len(worker.participants) / worker.size
        # Separate products, not fused: every device gets the same bits.
        state.common.sub_((worker.params - anchor).mul_(alpha * share))
        worker.params.sub_(state.common * (1 / alpha))
