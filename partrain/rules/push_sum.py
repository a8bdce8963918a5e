"""Push-sum: one-way messages that nobody waits for, and the mean of all replicas is kept. The rule `gossip` in that style."""

from __future__ import annotations

from dataclasses import dataclass

from partrain.protocols import Group, Worker


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
