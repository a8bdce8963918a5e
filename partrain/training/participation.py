"""The workers that train in a round: all, the first of a ramp, or clients drawn from those that can be reached."""

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

    def __init__(self, rule: Rule, seed: int, sizes: Sequence[int], availability: Sequence[float] = ()) -> None:
        """Prepare the draws.

        Args:
            rule: The sync rule (`clients`, `ramp_workers`).
            seed: The job's seed.
            sizes: Items of each worker's partition, by rank.
            availability: Chance that a worker can be reached in a round, by rank; empty: always.
        """
        self._rule, self._seed, self._sizes, self._availability = rule, seed, sizes, availability
        self.of = lru_cache(maxsize=2)(self._of)  # the workers of a process ask in turn
        """Function that returns the ranks of the workers that train in a round (its number), ascending; at least one."""

    def _of(self, round_number: int) -> Sequence[int]:
        workers = len(self._sizes)
        count = self._rule.active_workers(workers, round_number)
        if self._rule.clients is None and not self._availability:
            return range(count)
        draw = generator(self._seed, "clients", round_number)
        reached = list(range(workers))
        if self._availability:
            reached = []
            while not reached:  # a round begins when a worker can be reached
                reached = [rank for rank, chance in enumerate(self._availability) if draw.random() < chance]
        if len(reached) <= count:
            return reached
        chances = None
        if self._rule.client_sampling == "items":
            items = sum(self._sizes[rank] for rank in reached)
            chances = [self._sizes[rank] / items for rank in reached]
        return sorted(draw.choice(reached, count, replace=False, p=chances).tolist())
