"""The workers that train in a round: all, the first ones of a ramp, or clients drawn among those that can be reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from partrain.protocols import Rule
from partrain.seeds import generator


@dataclass(frozen=True)
class Participation:
    """The draw of the workers of each round. All workers draw alike, so none has to tell the others.

    Source: McMahan et al. Communication-Efficient Learning of Deep Networks from Decentralized Data. 2017. arXiv:1602.05629
    Source: Li, Huang, Yang, Wang, Zhang. On the Convergence of FedAvg on Non-IID Data. 2020. arXiv:1907.02189, whose scheme with
        chances by items (there with replacement) is `client_sampling = "items"`.
    """

    rule: Rule
    seed: int
    sizes: Sequence[int]
    """Items of each worker's partition, by rank."""
    availability: Sequence[float] = field(default=())
    """Chance that a worker can be reached in a round, by rank; empty: always."""

    def of(self, round_number: int) -> Sequence[int]:
        """Return the ranks of the workers that train in a round, ascending; at least one."""
        workers = len(self.sizes)
        count = self.rule.active_workers(workers, round_number)
        if self.rule.clients is None and not self.availability:
            return range(count)
        draw = generator(self.seed, "clients", round_number)
        reached = list(range(workers))
        if self.availability:
            reached = []
            while not reached:  # a round begins when a worker can be reached
                reached = [rank for rank, chance in enumerate(self.availability) if draw.random() < chance]
        if len(reached) <= count:
            return reached
        chances = None
        if self.rule.client_sampling == "items":
            items = sum(self.sizes[rank] for rank in reached)
            chances = [self.sizes[rank] / items for rank in reached]
        return sorted(draw.choice(reached, count, replace=False, p=chances).tolist())
