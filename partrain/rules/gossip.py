"""Gossip: each worker mixes with few others, yet all replicas draw together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from partrain.protocols import Group, Worker
from partrain.protocols.asynchronous import AsyncGroup, AsyncRule
from partrain.rules.divergent import DivergentReplicas
from partrain.rules.findings import error, warning
from partrain.rules.topology import Topology, pairable, pairs, peers

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.config.problems import Finding
    from partrain.protocols.rule_traits import JobContext


class Gossip(DivergentReplicas, AsyncRule):
    """Each worker mixes with only a few others.

        x_i <- K_i local steps from x_i,  then  x_i <- sum_j W_ij x_j                         (`order = "after"`)
        x_i <- sum_j W_ij x_j + (K_i local steps from x_i) - x_i                              (`order = "before"`)

    W is the mixing matrix of the topology (`style = "neighbours"`), or 1/2 for a worker and its partner of the round (`"pairs"`).
    "before" is D-PSGD, where K_i = 1: gradients are taken at the unmixed x_i, so messages between machines travel meanwhile. With
    `topology = "complete"` it is averaging with a mean that is one round late: delayed averaging, Overlap-Local-SGD.
    `"push-sum"` is GoSGD, whose messages are one-way and never make a worker wait. A visit is

        x_i <- (a_i x_i + sum_m a_m x_m) / (a_i + sum_m a_m),  a_i <- a_i + sum_m a_m         (m: messages that have arrived)
        x_i <- K_i local steps from x_i
        with probability 1 - (1 - p)^K_i:  a_i <- a_i / 2,  send (x_i, a_i) to any other worker

    In the paper K_i = 1. A longer visit sends with the probability that at least one of its iterations would. At a round's end all
    workers receive all messages. The judged network is the mean of all replicas; under push-sum it is sum_i a_i x_i.

    Source: Lian et al. Can Decentralized Algorithms Outperform Centralized Algorithms? 2017. arXiv:1705.09056
    Source: Wang, Liang, Joshi. Overlap Local-SGD: An Algorithmic Approach to Hide Communication Delays in Distributed SGD. 2020.
        arXiv:2002.09539
    Source: Blot, Picard, Cord, Thome. Gossip Training for Deep Learning. 2016. arXiv:1611.09726
    """

    round_vectors: ClassVar[int] = 2

    rule: Literal["gossip"]
    style: Literal["neighbours", "pairs", "push-sum"] = "neighbours"
    """`neighbours`: mix with all neighbours in the topology. `pairs`: with one partner at a time. `push-sum`: by one-way
    messages, without waiting."""
    topology: Topology = "ring"
    """Graph of the workers: each mixes with its neighbours in it. Not for `push-sum`, in which a worker may send to any other."""
    order: Literal["after", "before"] = "after"
    """`after`: mix the replicas after the local iterations of the round. `before`: mix them as they were before these, so that
    messages between machines travel meanwhile."""
    visits: int = Field(32, ge=1)
    """`push-sum`: number of visits of each worker in a round, on average. `iterations` is per visit."""
    probability: float = Field(0.02, ge=0, le=1)
    """`push-sum`: p, the probability that a worker sends a message after a local iteration."""

    @property
    def visits_per_worker(self) -> int | None:
        return self.visits if self.style == "push-sum" else None

    def check(self, context: JobContext) -> Iterator[Finding]:
        workers = context.workers
        unused = ("topology", "order") if self.style == "push-sum" else ("visits", "probability")
        for key in unused:
            if key in self.model_fields_set:
                yield warning(key, f'`{key}` has no effect under style = "{self.style}"', "leave it out")
        if workers == 1:
            yield warning("rule", "a single worker has no peer to gossip with", 'use rule = "average"')
        elif self.style == "push-sum" and self.probability == 0:
            yield warning("probability", "at 0 no message is ever sent, and replicas never mix", "0.02 is the authors'")
        elif self.style == "pairs" and not pairable(self.topology, workers):
            message = f"{workers} workers cannot be paired along an exponential topology: it needs a power of two"
            yield error("topology", message, 'use topology = "complete" or "ring"')
        elif self.style == "pairs" and (unpaired := self.most_unpaired(workers)):
            message = f"{workers} workers do not make whole pairs: in some rounds {unpaired} of them have no partner"
            yield warning("topology", message, "use an even number of workers")

    def most_unpaired(self, workers: int) -> int:
        """Return the largest number of workers without a partner in any round."""
        if self.topology == "complete":
            return workers % 2
        rounds = (pairs(self.topology, workers, round_number) for round_number in range(4))
        return max(sum(partner == rank for rank, partner in enumerate(partners)) for partners in rounds)

    def init(self, worker: Worker, group: Group) -> PushSumState | None:
        return PushSumState(1 / worker.size) if self.style == "push-sum" else None

    def round(self, worker: Worker, group: AsyncGroup, state: PushSumState | None) -> None:
        if state is not None:
            state.round(worker, group, self.open_visits(worker), self.probability)
            return
        others = [(peer, weight) for peer, weight in self.mixing_row(worker) if peer != worker.rank]
        peers, weights = [peer for peer, _ in others], [weight for _, weight in others]
        if self.order == "after":
            worker.train()
            pull = self.pull(worker.params, group.exchange(worker.params, peers), weights)
        else:
            before, arrived = worker.params.clone(), group.start_exchange(worker.params, peers)
            worker.train()
            pull = self.pull(before, arrived(), weights)
        worker.params.add_(pull)

    def pull(self, own: Tensor, replicas: list[Tensor], weights: list[float]) -> Tensor:
        """Compute sum_j W_ij (x_j - x_i) (d,), in the memory of the x_j."""
        if not replicas:
            return own.new_zeros(own.shape)
        first, *others = (x.sub_(own) for x in replicas)
        first.mul_(weights[0])
        for x, weight in zip(others, weights[1:], strict=True):
            first.add_(x, alpha=weight)
        return first

    def mixing_row(self, worker: Worker) -> list[tuple[int, float]]:
        """Return the peers that a worker mixes with in this round, with their W_ij."""
        if self.style == "neighbours":
            return peers(self.topology, worker.rank, worker.size, worker.round)
        return [(pairs(self.topology, worker.size, worker.round, worker.draw("pairs", common=True))[worker.rank], 0.5)]

    def result(self, worker: Worker, group: Group, state: PushSumState | None) -> Tensor:
        network = worker.params.clone()
        group.all_reduce_mean(network, weight=1.0 if state is None else state.share)
        return network


@dataclass
class PushSumState:
    """The state of push-sum."""

    share: float
    """a_i: the worker's share of the mean. The shares of all workers and messages add up to 1."""

    def round(self, worker: Worker, group: AsyncGroup, visits: int, probability: float) -> None:
        """Run a round of `visits` shared visits; each iteration sends with `probability`. All messages arrive before it ends."""
        draw, chance = worker.draw("push-sum"), 1 - (1 - probability) ** worker.iterations
        group.barrier()  # before it, messages could overwrite memory where others still read means
        while group.claim(visits):
            self.mix_messages(worker, group)
            worker.train()
            if worker.size > 1 and draw.random() < chance:
                self.share /= 2
                group.send(worker.params, self.share, int(worker.rank + draw.integers(1, worker.size)) % worker.size)
        group.barrier()
        self.mix_messages(worker, group)

    def mix_messages(self, worker: Worker, group: AsyncGroup) -> None:
        """Mix the messages that have arrived into the params."""
        total, share = group.receive()
        if share:
            self.share += share
            # The worker's own weight is what is left of 1: equal replicas stay equal, up to rounding.
            worker.params.mul_(1 - share / self.share).add_(total[: len(worker.params)], alpha=1 / self.share)
