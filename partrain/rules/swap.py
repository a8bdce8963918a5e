"""Swapping: networks are not mixed; they travel between workers, and so train on all partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from partrain.protocols import Group, State, Worker
from partrain.rules.divergent import DivergentReplicas
from partrain.rules.findings import warning

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.config.problems import Finding
    from partrain.protocols.rule_traits import JobContext


class Swap(DivergentReplicas):
    """After its local iterations each worker swaps its network with a partner's, in random disjoint pairs.

        x_i <- K_i local steps from x_i                (in parallel)
        x_i, x_j <- x_j, x_i                           for each pair (i, j), drawn alike on all workers

    This suits networks that must not be averaged, such as a GAN's two: each discriminator meets other generators' work. Only
    parameters travel. Moments stay with the worker by default (`optimizer_state`), because they depend on its items as much as on
    a network.

    The judged network is worker 0's, as in Theano-MPI. The mean of networks that never mix may be worse than each of them.
    Worker 0 always trains, and in time every network passes through it.

    Source: Im, Ma, Kim, Taylor. Generative Adversarial Parallelization. 2016. arXiv:1612.04021
    Source: Ma, Mao, Taylor. Theano-MPI: a Theano-based Distributed Training Framework. 2016. arXiv:1605.08325
    """

    round_vectors: ClassVar[int] = 2

    rule: Literal["swap"]
    every: int = Field(1, ge=1)
    """Number of rounds from one swap to the next."""
    counted_in_rounds: ClassVar[tuple[str, ...]] = ("ramp_workers", "every")

    @property
    def still_moves(self) -> str:
        return "the exchange of replicas"

    def check(self, context: JobContext) -> Iterator[Finding]:
        if context.workers == 1:
            yield warning("rule", "a single worker has no partner to swap with", 'use rule = "average"')
        elif context.workers % 2:
            message = f"{context.workers} workers are an odd number: each time one of them, drawn at random, keeps its network"
            yield warning("rule", message, "use an even number of workers")

    def round(self, worker: Worker, group: Group, state: State) -> None:
        worker.train()
        if worker.round % self.every == 0:
            (theirs,) = group.exchange(worker.params, [self.partner(worker)])
            worker.params.copy_(theirs)

    def partner(self, worker: Worker) -> int:
        """Return the rank to swap with; the worker's own rank if it is left over or inactive."""
        order = worker.draw("pairs", common=True).permutation(len(worker.participants)).tolist()
        pairs = dict(zip(order[::2], order[1::2], strict=False))
        return int((pairs | {other: rank for rank, other in pairs.items()}).get(worker.rank, worker.rank))

    def result(self, worker: Worker, group: Group, state: State) -> Tensor:
        network = worker.params.clone()
        group.broadcast(network)
        return network
