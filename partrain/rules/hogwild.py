"""Hogwild: all workers train the same numbers at the same time, without locks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from partrain.protocols import State, Worker
from partrain.protocols.asynchronous import AsyncGroup, AsyncRule
from partrain.rules.findings import warning

if TYPE_CHECKING:
    from partrain.config.problems import Finding
    from partrain.protocols.rule_traits import JobContext


class Hogwild(AsyncRule):
    """Workers never wait or copy: their parameters are one vector c in shared memory.

        c <- c - gamma g_i(c)                               when worker i has a gradient
        x_i <- c;  b <- x_i;  x_i <- K_i local steps;  c <- c + (x_i - b)           (`local`: the form of A3C)

    Neither update is atomic: parts of a step may be lost, and a gradient may read numbers from before and after another worker's
    step. With sparse gradients steps rarely collide, and this does little harm. Here the rule is a baseline: it shows the cost of
    locks and copies. All workers need one machine; the first form needs CPU workers. The same job gives the same bits on the
    simulated transport, which never interrupts a visit, but not on the others.

    Source: Recht, Re, Wright, Niu. Hogwild!: A Lock-Free Approach to Parallelizing Stochastic Gradient Descent. 2011.
        arXiv:1106.5730
    Source: Mnih et al. Asynchronous Methods for Deep Reinforcement Learning. 2016. arXiv:1602.01783
    """

    round_vectors: ClassVar[int] = 2

    rule: Literal["hogwild"]
    visits: int = Field(10, ge=1)
    """Number of visits of each worker in a round, on average. `iterations` is per visit."""
    local: bool = False
    """false: apply each step to c immediately. true: train a copy in each visit, and add its change to c."""
    optimizer_state: Literal["average", "local", "reset"] = "local"
    """State of the optimizers (momentum and moments) at the end of a round: average it, keep each worker's (`local`), or reset
    it. Default: it stays with the worker."""
    buffers: Literal["average", "recalibrate", "local"] = "recalibrate"
    """BatchNorm statistics of the judged network: pool means and variances (`average`), recompute them (`recalibrate`), or keep
    each worker's (`local`)."""

    @property
    def visits_per_worker(self) -> int:
        return self.visits

    @property
    def shared_vectors(self) -> int:
        return 1

    @property
    def shares_params(self) -> bool:
        return not self.local

    @property
    def single_machine_reason(self) -> str:
        return 'under "hogwild" workers change numbers in one memory: run the job on one machine, or use rule = "async"'

    def check(self, context: JobContext) -> Iterator[Finding]:
        if context.workers == 1:
            yield warning("rule", "a single worker shares its parameters with no other", 'use rule = "average"')

    def init(self, worker: Worker, group: AsyncGroup) -> State:
        if self.local and worker.rank == 0:
            group.center[0].copy_(worker.params)
        group.barrier()
        return None

    def round(self, worker: Worker, group: AsyncGroup, state: State) -> None:
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
