"""CHOCO-SGD: gossip with compressed differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from partrain.protocols import DivergentReplicas, Group, Remark, Worker
from partrain.rules.compression import AnyCompressor, TopK
from partrain.rules.topology import Topology, peers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

STEP, TOO_FAR = 2.0, 4.0
"""Consensus step size by density: what draws replicas together soonest, and beyond what they stay apart or diverge. The paper
tunes it, to 0.04 where the largest of a hundred are sent (its code); these were measured on Gaussian vectors without training,
densities 0.01 to 0.3, four workers in a ring and eight of all."""


@dataclass
class Public:
    """What the others know of a worker, and it of them."""

    estimate: Tensor
    """xhat_i (d,)"""
    mixed: Tensor
    """s_i = sum_j W_ij xhat_j (d,)"""


class Choco(DivergentReplicas):
    """Each worker trains alone, shows its neighbours a compressed form of what they do not know yet, and moves towards them.

        x_i    <- K local steps from x_i                   (in parallel)
        q_i    <- C(x_i - xhat_i)
        xhat_j <- xhat_j + q_j                             (for all neighbours j and i itself)
        x_i    <- x_i + gamma sum_j W_ij (xhat_j - xhat_i)

    K is `iterations`, C the compressor, W the mixing matrix of the topology, gamma the consensus step size. In place of all xhat_j
    a worker keeps the one sum it needs, s_i = sum_j W_ij xhat_j. All estimates start as the network all replicas start from. The
    mean of the replicas moves by local steps only, whatever is lost in messages; it is the network that counts, all replicas alike.
    With nothing lost and gamma = 1 this is gossip: x_i <- sum_j W_ij x_j. The authors' code moves by the estimates of the step
    before, so that messages travel while gradients are computed; here nothing travels meanwhile, and the newest are used.

    Source: Koloskova, Stich, Jaggi. Decentralized Stochastic Optimization and Gossip Algorithms with Compressed Communication.
        2019. arXiv:1902.00340
    """

    rule: Literal["choco"]
    topology: Topology = "ring"
    """Who mixes with whom."""
    compressor: AnyCompressor = Field(default_factory=lambda: TopK(kind="topk"))
    """C: `kind` is "topk" (with `density`, `values`, `chunk`), "fp32", "fp16", "bf16", "2bit" or "identity"."""
    gamma: float | None = Field(None, gt=0, le=1)
    """Consensus step size: the fewer entries are sent, the smaller it has to be. Default: twice the density, at most 1."""

    def remarks(self, workers: int) -> Iterator[Remark]:
        most = TOO_FAR * self.density
        if self.step > most:
            message = f"{self.step} is too far for messages of {self.density:g} of all entries: replicas may run apart"
            yield Remark("gamma", message, f"about {STEP * self.density:g}; at most {most:g}", "warning")

    @property
    def density(self) -> float:
        """Share of the entries that are sent."""
        return self.compressor.density if isinstance(self.compressor, TopK) else 1.0

    @property
    def step(self) -> float:
        """gamma as it is used."""
        return self.gamma or min(STEP * self.density, 1.0)

    def init(self, worker: Worker, group: Group) -> Public:
        return Public(worker.params.clone(), worker.params.clone())

    def round(self, worker: Worker, group: Group, state: Public) -> None:
        from partrain.rules.compression.messages import total

        worker.train()
        message, sent = self.compressor.compress(worker.params - state.estimate)
        state.estimate += sent
        messages = group.gather(message)
        near, weights = zip(*peers(self.topology, worker.rank, worker.size, worker.round), strict=True)
        said = [self.compressor.read(messages[peer], len(sent)) for peer in near]
        state.mixed += total(said, list(weights), len(sent)).to(sent)
        worker.params += self.step * (state.mixed - state.estimate)
