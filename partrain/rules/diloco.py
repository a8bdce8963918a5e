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


@dataclass
class StreamingState(DilocoState):
    """The state if replicas differ at a round's end."""

    anchor: Tensor = replicated()
    """a (d,): the network that counts."""


class Diloco(Rule):
    """An outer optimizer takes the mean's movement in a round, the delta, as its gradient.

        x_i   <- K_i local steps from a            (in parallel)
        delta <- a - sum_i w_i x_i / sum_i w_i
        m     <- mu m + delta
        a     <- a - eta (delta + mu m)            (`nesterov`; otherwise a - eta m)

    a: the params at the round's start; eta: `outer_lr`; mu: `outer_momentum`. With eta = 1 and mu = 0 this is averaging. With one
    worker it is a Lookahead optimizer. The paper's local optimizer is AdamW, whose moments stay with each worker.

    Streaming DiLoCo has P `fragments`: round r mixes only fragment r mod P of the vectors, and the others keep their a. Under
    `order = "before"` the mean averages the x_i from before the local steps, which messages carry meanwhile; then, with the new
    a,

        x_i   <- (K_i local steps from x_i) + a - x_i

    Source: Douillard et al. DiLoCo: Distributed Low-Communication Training of Language Models. 2023. arXiv:2311.08105
    Source: Douillard et al. Streaming DiLoCo with overlapping communication. 2025. arXiv:2501.18512. There a fragment is a set of
        layers, and x_i a weighted mean of both.
    Source: Hsu, Qi, Brown. Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification. 2019.
        arXiv:1909.06335 (FedAvgM)
    """

    round_vectors: ClassVar[int] = 5
    mixes_once: ClassVar[bool] = True
    counted_in_rounds: ClassVar[tuple[str, ...]] = ("ramp_workers", "fragments")

    rule: Literal["diloco"]
    outer_lr: float = Field(0.7, gt=0)
    """Learning rate of the outer optimizer."""
    outer_momentum: float = Field(0.9, ge=0, lt=1)
    """Momentum of the outer optimizer."""
    nesterov: bool = True
    """Use Nesterov's momentum in the outer optimizer."""
    fragments: int = Field(1, ge=1)
    """Equal parts of the network, of which each round mixes the next one. A round sends one part."""
    order: Literal["after", "before"] = "after"
    """`after`: mix the replicas after the local iterations of the round. `before`: mix them as they were before these, all alike
    whatever their `weights`, so that messages between machines travel meanwhile."""
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

    @property
    def keeps_replicas_equal(self) -> bool:
        return self.fragments == 1 and self.order == "after"

    @property
    def uses_weights(self) -> bool:
        return self.order == "after"

    @property
    def no_exclusion_reason(self) -> str:
        reason = "with `fragments`, or before its local iterations, it mixes only parts of a replica"
        return "" if self.keeps_replicas_equal else reason

    def init(self, worker: Worker, group: Group) -> DilocoState:
        momentum = worker.params.new_zeros(worker.params.shape)
        return DilocoState(momentum) if self.keeps_replicas_equal else StreamingState(momentum, worker.params.clone())

    def round(self, worker: Worker, group: Group, state: DilocoState) -> None:
        anchor = state.anchor if isinstance(state, StreamingState) else worker.params.clone()
        x, anchor, momentum = (self.fragment(vector, worker.round) for vector in (worker.params, anchor, state.momentum))
        if self.order == "after":
            worker.train()
            group.all_reduce_mean(x, weight=self.weight(worker.items))
            self.step(anchor, momentum, x)
            x.copy_(anchor)
        else:
            before, arrived = x.clone(), group.start_exchange(x, range(worker.size))
            worker.train()
            first, *others = arrived()
            self.step(anchor, momentum, sum(others, first) / worker.size)
            x.add_(anchor - before)

    def step(self, anchor: Tensor, momentum: Tensor, mean: Tensor) -> None:
        """Move the anchor (d,) by a step of the outer optimizer."""
        delta = anchor - mean
        momentum.mul_(self.outer_momentum).add_(delta)
        step = delta + self.outer_momentum * momentum if self.nesterov else momentum
        anchor.sub_(self.outer_lr * step)

    def fragment(self, vector: Tensor, round_number: int) -> Tensor:
        """Return the fragment of a vector (d,) that a round mixes."""
        return vector.tensor_split(self.fragments)[round_number % self.fragments]

    def result(self, worker: Worker, group: Group, state: DilocoState) -> Tensor:
        return state.anchor.clone() if isinstance(state, StreamingState) else worker.params
