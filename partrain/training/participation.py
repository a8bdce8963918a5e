"""The workers that train in a round: all, the first of a ramp, or those drawn from all that can be reached; and their clients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from partrain.protocols import Rule
from partrain.seeds import generator


class Participation:
    """The draw of the workers of each round. All workers draw the same, without communication.

    Source: McMahan et al. Communication-Efficient Learning of Deep Networks from Decentralized Data. 2017. arXiv:1602.05629
    Source: Li, Huang, Yang, Wang, Zhang. On the Convergence of FedAvg on Non-IID Data. 2020. arXiv:1907.02189, whose scheme with
        chances by items (there with replacement) is `client_sampling = "items"`.
    """

    def __init__(
        self,
        rule: Rule,
        seed: int,
        sizes: Sequence[int],
        availability: Sequence[Sequence[float]] = (),
        workers: int | None = None,
    ) -> None:
        """Prepare the draws.

        Args:
            rule: The sync rule (`clients`, `ramp_workers`).
            seed: The job's seed.
            sizes: Items of each client, by number. A client is a worker, or has one for a round only.
            availability: Chances that a client can be reached in the rounds of a cycle, by number; empty: always.
            workers: Number of workers that take clients in turn (`[partition] clients`); None: each client is a worker.
        """
        self._rule, self._seed, self._sizes, self._availability = rule, seed, sizes, availability
        self._workers = workers
        self.clients = lru_cache(maxsize=2)(self._drawn)  # the workers of a process ask in turn
        """Function that returns the clients that train in a round (its number), ascending; at least one."""

    def of(self, round_number: int) -> Sequence[int]:
        """Return the ranks of the workers that train in a round, ascending. Worker k takes the k-th client that trains."""
        clients = self.clients(round_number)
        return clients if self._workers is None else range(len(clients))

    def client_of(self, rank: int, round_number: int) -> int:
        """Return the client of a worker in a round; the last one for a worker that sits the round out."""
        clients = self.clients(round_number)
        return clients[min(rank, len(clients) - 1)]

    def _drawn(self, round_number: int) -> Sequence[int]:
        count = self._workers or self._rule.active_workers(len(self._sizes), round_number)
        if self._rule.clients is None and self._workers is None and not self._availability:
            return range(count)
        draw = generator(self._seed, "clients", round_number)
        reached = list(range(len(self._sizes)))
        if self._availability:
            reached, moment = [], round_number - 1
            while not reached:  # a round begins when one can be reached
                now = [cycle[moment % len(cycle)] for cycle in self._availability]
                reached = [client for client, chance in enumerate(now) if draw.random() < chance]
                moment += 1
        if len(reached) <= count:
            return reached
        chances = None
        if self._rule.client_sampling == "items":
            items = sum(self._sizes[rank] for rank in reached)
            chances = [self._sizes[rank] / items for rank in reached]
        return sorted(draw.choice(reached, count, replace=False, p=chances).tolist())
