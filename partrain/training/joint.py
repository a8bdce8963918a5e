"""Local iterations of several workers of one process at once: their replicas are one batched set of rows (R, d).

A layer of a small network takes longer to call than to compute. R replicas of a plain stack of layers (`fast_mlp`) need one batched
product where separate workers need R, and one fused step of the optimizer. The numbers of each are those of a separate worker, up to
rounding: for some shapes a batched product adds in another order. Other networks train one after the other: on a CPU
`torch.func.vmap` is slower than that (benchmarks/NOTES.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from partrain.training.batches import Batches
from partrain.training.feed import BLOCK_BYTES

if TYPE_CHECKING:
    from partrain.training.worker import LocalWorker

Wait = Callable[[Callable[[], bool], str], None]
"""Function that returns when a condition holds, and lets the other workers of the process run meanwhile."""


class JointTraining:
    """The workers of one process that wait to train together."""

    def __init__(self) -> None:
        self._waiting: dict[LocalWorker, tuple[int, bool]] = {}
        self._replicas: dict[tuple[int, ...], Replicas] = {}
        self._failure: Exception | None = None

    def add(self, worker: LocalWorker, wait: Wait) -> None:
        """Let the local iterations of a worker run with those of others, if it trains a plain stack of layers on items in memory."""
        if worker.mlp and isinstance(worker.batches, Batches):
            worker.together = partial(self._train, worker, wait)

    def _train(self, worker: LocalWorker, wait: Wait, *, iterations: int, step: bool) -> None:
        """Wait until no worker of the process can go on, and all that wait here have trained. Without `step` only compute gradients."""
        self._waiting[worker] = iterations, step
        wait(lambda: worker not in self._waiting, "the training of this process's workers")
        if self._failure:  # the first of the workers reports it, and the others stop
            raise self._failure

    def run(self) -> bool:
        """Train the workers that wait; return False if there are none."""
        waiting, self._waiting = self._waiting, {}
        try:
            for workers in _alike(waiting):
                ranks = tuple(worker.rank for worker in workers)
                if ranks not in self._replicas:
                    self._replicas[ranks] = Replicas(workers)
                iterations, step = waiting[workers[0]]
                self._replicas[ranks].train(iterations, step=step)
        except Exception as error:
            self._failure = error
        return bool(waiting)


class Replicas:
    """The replicas of R workers of successive ranks and of the same pace, as tensors (R, ...)."""

    def __init__(self, workers: Sequence[LocalWorker]) -> None:
        self._workers = workers
        replicas = [worker.replica for worker in workers]
        gradients = [replica.gradient_views for replica in replicas]
        parameters = [replica.layout.params.views(replica.params) for replica in replicas]
        assert workers[0].mlp
        self._mlp = workers[0].mlp.of_replicas(
            *(list(map(_stacked, zip(*views, strict=True))) for views in (parameters, gradients))
        )
        others = zip([replica.optimizer for replica in replicas[1:]], gradients[1:], strict=True)
        self._step = replicas[0].optimizer.bind(gradients[0], *others)

    def train(self, iterations: int, *, step: bool) -> None:
        """Run local iterations of all workers, each on its next mini-batches."""
        task, bytes_at_once = self._workers[0].task, BLOCK_BYTES // len(self._workers)
        for pieces in zip(*(worker.pieces(iterations, bytes_at_once) for worker in self._workers), strict=True):
            sizes, losses, first, rate = pieces[0].sizes, [], 0, 0.0
            inputs = torch.stack([piece.inputs for piece in pieces])
            targets = torch.stack([task.targets(piece.inputs, piece.targets) for piece in pieces])
            for number, size in enumerate(sizes):
                batch = slice(first, first := first + size)
                losses.append(self._mlp.differentiate(inputs[:, batch], targets[:, batch]))
                if step:
                    rate = self._workers[0].rate_after(number)
                    self._step(rate)
            for worker, noted in zip(self._workers, torch.stack(losses, 1).tolist(), strict=True):
                worker.note(noted, sizes)
                if step:
                    worker.count_iterations(len(sizes), rate)


def _alike(waiting: dict[LocalWorker, tuple[int, bool]]) -> list[list[LocalWorker]]:
    """Group workers of successive ranks that are to do the same, at the same pace."""
    groups: list[list[LocalWorker]] = []
    for worker in sorted(waiting, key=lambda worker: worker.rank):
        before = groups[-1][-1] if groups else None
        if before and worker.rank == before.rank + 1 and (waiting[worker], worker.pace) == (waiting[before], before.pace):
            groups[-1].append(worker)
        else:
            groups.append([worker])
    return groups


def _stacked(views: Sequence[Tensor]) -> Tensor:
    """Return tensors of equal shape at equal distances in one memory as a tensor (R, ...)."""
    first = views[0]
    distance = views[1].storage_offset() - first.storage_offset() if len(views) > 1 else first.numel()
    return first.as_strided((len(views), *first.shape), (distance, *first.stride()))
