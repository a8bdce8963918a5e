"""CHOCO-SGD: gossip with compressed differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from partrain.protocols import Group, Worker
from partrain.rules.compression import AnyCompressor, TopK
from partrain.rules.divergent import DivergentReplicas
from partrain.rules.findings import warning
from partrain.rules.topology import Topology, peers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from partrain.config.problems import Finding
    from partrain.protocols.rule_traits import JobContext

BEST_GAMMA, MAX_GAMMA = 2.0, 4.0
"""Consensus step size, divided by the density: the value that draws replicas together fastest, and the largest that draws them
together at all. The paper tunes it: 0.04 at density 0.01 (its code). Measured on Gaussian vectors without training, at densities
0.01 to 0.3, with four workers in a ring and eight in a complete graph."""


@dataclass
class ChocoState:
    """The public estimates."""

    estimate: Tensor
    """xhat_i (d,)"""
    mixed: Tensor
    """s_i = sum_j W_ij xhat_j (d,)"""


class Choco(DivergentReplicas):
    """Each worker trains alone, sends its neighbours the compressed change of its parameters, and moves towards theirs.

        x_i    <- K local steps from x_i                   (in parallel)
        q_i    <- C(x_i - xhat_i)
        xhat_j <- xhat_j + q_j                             (for all neighbours j and i itself)
        x_i    <- x_i + gamma sum_j W_ij (xhat_j - xhat_i)

    K is `iterations`, C the compressor, W the mixing matrix of the topology, gamma the consensus step size. xhat_i is the public
    estimate of x_i, initially the network that all replicas start from. A worker does not keep all xhat_j, only the sum it needs,
    s_i = sum_j W_ij xhat_j.

    The judged network is the mean of the replicas, with equal weights. Only local steps move it, whatever messages lose. With
    lossless messages and gamma = 1 this is gossip: x_i <- sum_j W_ij x_j. The authors' code mixes the previous step's estimates,
    so that messages travel while gradients are computed. Here messages do not travel meanwhile, and mixing uses the newest
    estimates.

    Source: Koloskova, Stich, Jaggi. Decentralized Stochastic Optimization and Gossip Algorithms with Compressed Communication.
        2019. arXiv:1902.00340
    """

    round_vectors: ClassVar[int] = 4

    rule: Literal["choco"]
    topology: Topology = "ring"
    """Graph of the workers: each mixes with its neighbours in it."""
    compressor: AnyCompressor = Field(default_factory=lambda: TopK(kind="topk"))
    """C, the compression of messages: `kind` is "topk" (with `density`, `values`, `chunk`), "fp32", "fp16", "bf16", "2bit" or
    "identity" (none). Default: "topk"."""
    gamma: float | None = Field(None, gt=0, le=1)
    """Consensus step size. Messages of fewer entries need a smaller one. Default: twice the density, at most 1."""

    def check(self, context: JobContext) -> Iterator[Finding]:
        most = MAX_GAMMA * self.density
        if self.step > most:
            message = f"{self.step} is too large for messages of {self.density:g} of all entries: replicas may diverge"
            yield warning("gamma", message, f"about {BEST_GAMMA * self.density:g}; at most {most:g}")

    @property
    def density(self) -> float:
        """Share of the parameters that are sent."""
        return self.compressor.density if isinstance(self.compressor, TopK) else 1.0

    @property
    def step(self) -> float:
        """gamma, or its default."""
        return self.gamma or min(BEST_GAMMA * self.density, 1.0)

    def init(self, worker: Worker, group: Group) -> ChocoState:
        return ChocoState(worker.params.clone(), worker.params.clone())

    def round(self, worker: Worker, group: Group, state: ChocoState) -> None:
        from partrain.rules.compression.messages import total

        worker.train()
        message, sent = self.compressor.compress(worker.params - state.estimate, worker.parameters)
        state.estimate += sent
        messages = group.gather(message)
        neighbours, weights = zip(*peers(self.topology, worker.rank, worker.size, worker.round), strict=True)
        changes = [self.compressor.read(messages[peer], len(sent)) for peer in neighbours]
        state.mixed += total(changes, list(weights), len(sent)).to(sent)
        worker.params += self.step * (state.mixed - state.estimate)
