"""Hogwild: all workers train the same numbers at the same time, without locks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from partrain.protocols import Group, Remark, Rule, State, Worker


class Hogwild(Rule):
    """Nobody waits and nothing is copied: everyone's parameters are the one vector c in shared memory.

        c <- c - gamma g_i(c)                               whenever worker i has a gradient
        x_i <- c;  b <- x_i;  x_i <- K_i local steps;  c <- c + (x_i - b)           (`local`: the form of A3C)

    Neither is atomic: a step may be lost in part, and a gradient may see numbers of before and after another's step. That does
    little harm where steps rarely meet, as with sparse gradients; here it is a baseline for what locks and copies cost. It is for
    the workers of one machine, the first form for its CPUs. The same job gives the same bits on the simulated transport, where
    visits are never interrupted; not where workers really run side by side.

    Source: Recht, Re, Wright, Niu. Hogwild!: A Lock-Free Approach to Parallelizing Stochastic Gradient Descent. 2011.
        arXiv:1106.5730
    Source: Mnih et al. Asynchronous Methods for Deep Reinforcement Learning. 2016. arXiv:1602.01783
    """

    rule: Literal["hogwild"]
    visits: int = Field(10, ge=1)
    """Visits of each worker in a round, on average; `iterations` are those of one visit."""
    local: bool = False
    """Whether a visit trains a copy and adds what it has changed, instead of each step going to the shared numbers."""
    optimizer_state: Literal["average", "local", "reset"] = "local"
    """What happens to momentum and moments at the end of a round: here they stay with the worker."""
    buffers: Literal["average", "recalibrate", "local"] = "recalibrate"
    """BatchNorm statistics: pooled, recomputed for the network that counts, or each worker's own."""

    @property
    def visits_per_worker(self) -> int:
        return self.visits

    @property
    def shared_vectors(self) -> int:
        return 1

    @property
    def shares_params(self) -> bool:
        return not self.local

    def remarks(self, workers: int) -> Iterator[Remark]:
        if workers == 1:
            yield Remark("rule", "a single worker has no one to share its parameters with", 'use rule = "average"', "warning")

    def init(self, worker: Worker, group: Group) -> State:
        if self.local and worker.rank == 0:
            group.center[0].copy_(worker.params)
        group.barrier()
        return None

    def round(self, worker: Worker, group: Group, state: State) -> None:
        while group.claim(self.open_visits(worker)):
            if self.local:
                worker.params.copy_(group.center[0])
                start = worker.params.clone()
                worker.train()
                group.center[0].add_((worker.params - start).cpu())
            else:
                worker.train()
        group.barrier()
        if self.local:
            worker.params.copy_(group.center[0])
