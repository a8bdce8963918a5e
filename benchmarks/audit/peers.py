"""Averaging, gradient averaging and DiLoCo against torch.distributed and torchft."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import create_autospec

import torch
import torch.distributed as dist

from benchmarks.audit.case import Case, params_case
from benchmarks.audit.processes import Loop, in_processes
from benchmarks.audit.replica import Replica, loss_of
from benchmarks.audit.trainings import Batch

ITERATIONS = 5
"""Local iterations of a round."""
ROUNDS = 6
MOMENTUM = 0.8
"""Momentum of DiLoCo's outer optimizer."""
PERIOD = f"iterations = {ITERATIONS}"
AVERAGE = f'rule = "average", {PERIOD}, optimizer_state = "local"'

SGD = 'name = "sgd", lr = 0.3, batch_size = 8', partial(torch.optim.SGD, lr=0.3)
NESTEROV = (
    'name = "sgd", lr = 0.1, momentum = 0.9, nesterov = true, weight_decay = 0.01, batch_size = 8',
    partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
)
ADAM = 'name = "adam", lr = 0.05, batch_size = 8', partial(torch.optim.Adam, lr=0.05)
ADAMW = 'name = "adamw", lr = 0.05, batch_size = 8', partial(torch.optim.AdamW, lr=0.05)


def cases() -> Iterator[Case]:
    for name, optimizer in ("sgd", SGD), ("sgd, Nesterov, weight decay", NESTEROV), ("adam", ADAM):
        yield _case(f"`average`, {name}", "torch", "PostLocalSGDOptimizer", AVERAGE, optimizer, post_local_sgd)
    yield _case("`average`, sgd, Nesterov, weight decay", "torchft", "LocalSGD", AVERAGE, NESTEROV, local_sgd)
    for name, optimizer in ("sgd", SGD), ("adamw", ADAMW):
        yield _case(f"`bsp`, {name}", "torch", "DistributedDataParallel", f'rule = "bsp", {PERIOD}', optimizer, data_parallel)
    for nesterov, word in (True, "true"), (False, "false"):
        sync = f'rule = "diloco", {PERIOD}, outer_momentum = {MOMENTUM}, nesterov = {word}'
        what = f"`diloco`, adamw inside, sgd{', Nesterov' * nesterov} outside"
        yield _case(what, "torchft", "DiLoCo", sync, ADAMW, diloco, nesterov=nesterov)


def _case(what: str, library: str, name: str, sync: str, optimizer: tuple[str, Any], loop: Loop, **settings: Any) -> Case:
    job = {"sync": sync, "optimizer": optimizer[0], "rounds": ROUNDS}
    peer = library, f"`{name}`, 2 processes of gloo"
    return params_case(what, peer, job, lambda training: in_processes(loop, training, optimizer[1], **settings))


def post_local_sgd(replica: Replica, batches: list[Batch]) -> None:
    """Train as the documentation of torch shows. The averager counts from 0, so its first average follows `warmup_steps` + 1 steps."""
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    averager = PeriodicModelAverager(period=ITERATIONS, warmup_steps=ITERATIONS - 1)
    replica.optimizer = PostLocalSGDOptimizer(replica.optimizer, averager)
    for ids in batches:
        replica.optimizer.zero_grad()
        loss_of(replica.network, ids).backward()
        replica.optimizer.step()


def data_parallel(replica: Replica, batches: list[Batch]) -> None:
    parallel = torch.nn.parallel.DistributedDataParallel(replica.network)
    for ids in batches:
        replica.optimizer.zero_grad()
        loss_of(parallel, ids).backward()
        replica.optimizer.step()


def local_sgd(replica: Replica, batches: list[Batch]) -> None:
    from torchft.local_sgd import LocalSGD

    with LocalSGD(all_reduce_manager(), replica.network, replica.optimizer, sync_every=ITERATIONS):
        replica.train(batches)


def diloco(replica: Replica, batches: list[Batch], nesterov: bool) -> None:
    from torchft.local_sgd import DiLoCo

    outer = torch.optim.SGD(replica.network.parameters(), lr=0.7, momentum=MOMENTUM, nesterov=nesterov)
    with DiLoCo(all_reduce_manager(), [replica.network], replica.optimizer, outer, sync_every=ITERATIONS):
        replica.train(batches)


def all_reduce_manager() -> Any:
    """Stand in for torchft's manager of a cluster that never changes, as torchft's own tests do: every mean is gloo's."""
    from torchft.manager import Manager

    manager = create_autospec(Manager)
    manager._use_async_quorum = False
    manager.should_commit.return_value = True
    manager.current_step.return_value = 0
    manager.allreduce.side_effect = lambda x, should_quantize=False: dist.all_reduce(x, dist.ReduceOp.AVG, async_op=True)
    return manager
