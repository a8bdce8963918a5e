"""What becomes of a network's buffers when replicas are mixed, BatchNorm's running statistics first of all.

Averaging parameters and forgetting buffers leaves each replica with statistics of a network that is no more; the policies
of `[sync] buffers` are the three honest ways out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from partrain.comm.group import ArenaGroup
from partrain.flat import Piece
from partrain.protocols import Rule
from partrain.worker import LocalWorker

RECALIBRATION_ITEMS = 4096
"""Items of each partition that recompute the statistics of a mixed network."""


def pool(worker: LocalWorker, group: ArenaGroup, weight: float) -> None:
    """Buffers <- those of the pooled data: means and variances pooled as such, integers by their maximum, others averaged.

    With weights w_i:  m = sum w_i m_i,   v = sum w_i (v_i + m_i^2) - m^2.
    """
    if group.size == 1:
        return
    counters = integer_buffers(worker.module)
    if counters:
        packed = torch.cat([counter.detach().reshape(-1).long().cpu() for counter in counters])
        largest = torch.stack(group.all_gather(packed)).max(0).values
        for counter, values in zip(counters, largest.split([counter.numel() for counter in counters]), strict=True):
            counter.copy_(values.view(counter.shape))
    if not worker.buffers.numel():
        return
    moments = worker.buffers.double().cpu()
    pairs = _statistics(worker)
    for mean, variance in pairs:
        variance.view(moments).add_(mean.view(moments).square())
    weights = [row[0] for row in group.scores(weight)]
    pooled = sum((w * other for w, other in zip(weights, group.all_gather(moments), strict=True)), torch.zeros_like(moments))
    pooled /= sum(weights)
    for mean, variance in pairs:
        variance.view(pooled).sub_(mean.view(pooled).square())
    worker.buffers.copy_(pooled)


def recalibrate(worker: LocalWorker, group: ArenaGroup) -> None:
    """Recompute BatchNorm statistics for the network as it stands, from the first items of every partition."""
    norms = [module for module in worker.module.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    norms = [norm for norm in norms if norm.track_running_stats]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    index = torch.from_numpy(worker.batches.partition[:RECALIBRATION_ITEMS])
    with torch.no_grad():
        for part in index.split(512):
            worker.module(worker.stock.batch(part.to(worker.stock.inputs.device))[0])
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    pool(worker, group, float(len(index)))


@contextmanager
def shared_buffers(worker: LocalWorker, group: ArenaGroup, rule: Rule) -> Iterator[None]:
    """One network for all: with `buffers = "local"` it is judged with worker 0's buffers; afterwards each has its own again."""
    if rule.buffers != "local" or group.size == 1 or not worker.buffers.numel():
        yield
        return
    own = worker.buffers.clone()
    group.broadcast(worker.buffers)
    yield
    worker.buffers.copy_(own)


def integer_buffers(module: nn.Module) -> list[Tensor]:
    """Buffers that count, such as `num_batches_tracked`."""
    return [buffer for buffer in module.buffers() if not buffer.dtype.is_floating_point and not buffer.dtype.is_complex]


def _statistics(worker: LocalWorker) -> list[tuple[Piece, Piece]]:
    """Pairs of running mean and running variance."""
    pieces = {piece.name: piece for piece in worker.spans.buffers.pieces}
    return [
        (pieces[name], pieces[name[:-4] + "var"])
        for name in pieces
        if name.endswith("running_mean") and name[:-4] + "var" in pieces
    ]
