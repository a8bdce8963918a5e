"""Gossip: no worker ever meets all others, and yet replicas draw together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from partrain.protocols import DivergentReplicas, Group, Remark, Worker
from partrain.rules.topology import Topology, pairable, pairs, peers

if TYPE_CHECKING:
    from torch import Tensor


class Gossip(DivergentReplicas):
    """Each worker mixes with a few others only.

        x_i <- K_i local steps from x_i,  then  x_i <- sum_j W_ij x_j                         (`order = "after"`)
        x_i <- sum_j W_ij x_j + (K_i local steps from x_i) - x_i                              (`order = "before"`)

    W is the mixing matrix of the topology (`style = "neighbours"`), or 1/2 for a worker and its partner of the round (`"pairs"`).
    "before" is D-PSGD, where K_i = 1: gradients are taken at the own, unmixed x_i, so messages could travel meanwhile.
    `"push-sum"` is GoSGD, where nobody waits. A visit is

        x_i <- (a_i x_i + sum_m a_m x_m) / (a_i + sum_m a_m),  a_i <- a_i + sum_m a_m         (m: messages that have come)
        x_i <- K_i local steps from x_i
        with probability 1 - (1 - p)^K_i:  a_i <- a_i / 2,  send (x_i, a_i) to any other worker

    In the paper K_i = 1; a longer visit sends as often as one of its iterations would have sent. At a round's end all messages
    are taken in. The network that counts is the mean of all replicas, under push-sum sum_i a_i x_i.

    Source: Lian et al. Can Decentralized Algorithms Outperform Centralized Algorithms? 2017. arXiv:1705.09056
    Source: Blot, Picard, Cord, Thome. Gossip Training for Deep Learning. 2016. arXiv:1611.09726
    """

    rule: Literal["gossip"]
    style: Literal["neighbours", "pairs", "push-sum"] = "neighbours"
    """With all neighbours in the topology, with one partner at a time, or one-way messages that nobody waits for."""
    topology: Topology = "ring"
    """Who is whose neighbour; not for push-sum, where anyone may write to anyone."""
    order: Literal["after", "before"] = "after"
    """Whether what is mixed are replicas after the round's local iterations, or as they were before them."""
    visits: int = Field(32, ge=1)
    """Push-sum: visits of each worker in a round, on average."""
    probability: float = Field(0.02, ge=0, le=1)
    """Push-sum: p, probability of a message after a local iteration."""

    @property
    def visits_per_worker(self) -> int | None:
        return self.visits if self.style == "push-sum" else None

    def remarks(self, workers: int) -> Iterator[Remark]:
        idle = ("topology", "order") if self.style == "push-sum" else ("visits", "probability")
        for key in idle:
            if key in self.model_fields_set:
                yield Remark(key, f'`{key}` means nothing to style = "{self.style}"', "leave it out", "warning")
        if workers == 1:
            yield Remark("rule", "a single worker has no one to gossip with", 'use rule = "average"', "warning")
        elif self.style == "push-sum" and self.probability == 0:
            yield Remark("probability", "at 0 nothing is ever sent, and replicas never mix", "0.02 is the authors'", "warning")
        elif self.style == "pairs" and not pairable(self.topology, workers):
            message = f"{workers} workers, no power of two, cannot be paired along an exponential topology"
            yield Remark("topology", message, 'use topology = "complete" or "ring"')
        elif self.style == "pairs" and self.alone(workers):
            message = f"{workers} workers do not come out even: in some rounds {self.alone(workers)} of them have no partner"
            yield Remark("topology", message, "use an even number of workers", "warning")

    def alone(self, workers: int) -> int:
        """Most workers without a partner in a round."""
        if self.topology == "complete":
            return workers % 2
        rounds = (pairs(self.topology, workers, round) for round in range(4))
        return max(sum(partner == rank for rank, partner in enumerate(partners)) for partners in rounds)

    def init(self, worker: Worker, group: Group) -> Share | None:
        return Share(1 / worker.size) if self.style == "push-sum" else None

    def round(self, worker: Worker, group: Group, state: Share | None) -> None:
        if state is not None:
            state.round(worker, group, self.open_visits(worker), self.probability)
        elif self.order == "after":
            worker.train()
            worker.params.add_(self.pull(worker, group))
        else:
            pull = self.pull(worker, group)
            worker.train()
            worker.params.add_(pull)

    def pull(self, worker: Worker, group: Group) -> Tensor:
        """sum_j W_ij (x_j - x_i) (d,)"""
        links = [link for link in self.links(worker) if link[0] != worker.rank]
        theirs = group.exchange(worker.params, [peer for peer, _ in links])
        pull = worker.params.new_zeros(worker.params.shape)
        for (_, weight), x in zip(links, theirs, strict=True):
            pull.add_(x.sub_(worker.params), alpha=weight)
        return pull

    def links(self, worker: Worker) -> list[tuple[int, float]]:
        """Whom a worker mixes with in this round, with their W_ij."""
        if self.style == "neighbours":
            return peers(self.topology, worker.rank, worker.size, worker.round)
        return [(pairs(self.topology, worker.size, worker.round, worker.draw("pairs", common=True))[worker.rank], 0.5)]

    def result(self, worker: Worker, group: Group, state: Share | None) -> Tensor:
        network = worker.params.clone()
        group.all_reduce_mean(network, weight=1.0 if state is None else state.share)
        return network


@dataclass
class Share:
    """The state of push-sum."""

    share: float
    """a_i: how much of all replicas' sum is this worker's; those of all workers and messages add up to 1."""

    def round(self, worker: Worker, group: Group, visits: int, probability: float) -> None:
        """A round of so many visits of all, after which no message is under way; each iteration sends with `probability`."""
        draw, chance = worker.draw("push-sum"), 1 - (1 - probability) ** worker.iterations
        group.barrier()  # until now messages might have come to where others still read means
        while group.claim(visits):
            self.take_in(worker, group)
            worker.train()
            if worker.size > 1 and draw.random() < chance:
                self.share /= 2
                group.send(worker.params, self.share, int(worker.rank + draw.integers(1, worker.size)) % worker.size)
        group.barrier()
        self.take_in(worker, group)

    def take_in(self, worker: Worker, group: Group) -> None:
        """Mix what has come into the params."""
        total, share = group.receive()
        if share:
            self.share += share
            # Own share: what is left of 1. So equal replicas stay equal, up to rounding.
            worker.params.mul_(1 - share / self.share).add_(total[: len(worker.params)], alpha=1 / self.share)
