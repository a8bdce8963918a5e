"""Swapping: networks are not mixed; they travel, and so see all partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from partrain.protocols import DivergentReplicas, Group, Remark, State, Worker

if TYPE_CHECKING:
    from torch import Tensor


class Swap(DivergentReplicas):
    """After its local iterations each worker changes its network for that of a partner, in random disjoint pairs.

        x_i <- K_i local steps from x_i                (in parallel)
        x_i, x_j <- x_j, x_i                           for each pair (i, j), drawn alike on all workers

    Made for networks that must not be averaged, as the two of a GAN: each discriminator meets other generators' work. Only the
    parameters travel: moments stay with the worker by default (`optimizer_state`), for they belong to its items as much as
    to a network.

    The network that counts is worker 0's, as in Theano-MPI. The mean of networks that never meet is none that anybody has
    trained, and may be worse than each of them; worker 0 always trains and in time has every network in its hands.

    Source: Im, Ma, Kim, Taylor. Generative Adversarial Parallelization. 2016. arXiv:1612.04021
    Source: Ma, Mao, Taylor. Theano-MPI: a Theano-based Distributed Training Framework. 2016. arXiv:1605.08325
    """

    rule: Literal["swap"]
    every: int = Field(1, ge=1)
    """Swap at the end of every so many rounds."""
    in_rounds: ClassVar[tuple[str, ...]] = ("ramp_workers", "every")

    def remarks(self, workers: int) -> Iterator[Remark]:
        if workers == 1:
            yield Remark("rule", "a single worker has no one to swap with", 'use rule = "average"', "warning")
        elif workers % 2:
            message = f"{workers} workers are an odd number: each time one of them, drawn at random, keeps its network"
            yield Remark("rule", message, "use an even number of workers", "warning")

    def round(self, worker: Worker, group: Group, state: State) -> None:
        worker.train()
        if worker.round % self.every == 0:
            (theirs,) = group.exchange(worker.params, [self.partner(worker)])
            worker.params.copy_(theirs)

    def partner(self, worker: Worker) -> int:
        """The worker to swap with; itself if it is left over, or does not train yet and has nothing to give."""
        order = worker.draw("pairs", common=True).permutation(self.active_workers(worker.size, worker.round)).tolist()
        pairs = dict(zip(order[::2], order[1::2], strict=False))
        return int((pairs | {other: one for one, other in pairs.items()}).get(worker.rank, worker.rank))

    def result(self, worker: Worker, group: Group, state: State) -> Tensor:
        network = worker.params.clone()
        group.broadcast(network)
        return network
