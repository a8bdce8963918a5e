"""What a worker has by itself, before it meets the others: its device, data, network, task, and the order of its items."""

from __future__ import annotations

import mmap
import os
import random
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from partrain.comm.arena import SLOTS
from partrain.data.partition import assign
from partrain.errors import BadJob, UserCodeFailed
from partrain.launch.worker.spec import ProcessSpec
from partrain.models import Interface, build
from partrain.seeds import derive
from partrain.train.batches import Batches, Samples
from partrain.train.snapshot import slot_map
from partrain.train.worker import LocalWorker, RowLayout, row_layout

SHARE = 0.5
"""Of a device's free memory, that items may take."""


class WorkerSetup:
    """All that one worker needs of a job but a row and company."""

    def __init__(self, rank: int, order: ProcessSpec) -> None:
        job, plan = order.job, order.plan
        share = plan.shares[rank]
        self._rank, self._order = rank, order
        torch.set_num_threads(share.spec.threads)
        torch.set_flush_denormal(True)
        self.device = torch.device(share.spec.device)
        if self.device.type == "cuda":
            _repeat_exactly()
            _reach(rank, self.device)

        dataset = order.card.open(_mapped(order.stock))
        kind, vocabulary = job.kind_of_task(dataset.task), dataset.vocabulary
        self.interface = Interface(tuple(dataset.inputs.shape[1:]), dataset.outputs, kind, vocabulary)
        self.module = self._build().to(self.device)
        """The network: the same on every worker, whatever its device."""
        self.spans = _spans(self.module, order)
        require_memory(order, self.spans)
        self.task = job.make_task(dataset.task, order.folder)

        sizes = [one.spec.partition_size for one in plan.shares]

        def partition(number: int | None) -> Any:
            n = plan.training_items + plan.held_out
            stratify = job.dataset.stratify
            return assign(
                job.partition, n, plan.held_out, sizes, job.seed, number, dataset.gap, dataset.targets, stratify, dataset.rows
            )

        first = partition(None)
        self.batches = Batches(
            first.partitions[rank],
            job.optimizer.batch(len(first.partitions[rank])),
            share.iterations,
            share.spec.passes is not None,
            job.seed,
            rank,
            (lambda number: partition(number).partitions[rank]) if job.partition.redraw == "round" else None,
        )
        self.stock = self._items(dataset.inputs, dataset.targets)
        self.test = None
        if dataset.test_inputs is not None and dataset.test_targets is not None:
            self.test = self._items(dataset.test_inputs, dataset.test_targets)
        self._held = torch.from_numpy(first.held_out).to(self.stock.inputs.device)

    def held_out(self, most: int | None = None) -> Samples | None:
        """A copy of the items held out, or of at most so many of them; None if there are none."""
        held = self._held[:most]
        return replace(self.stock, inputs=self.stock.inputs[held], targets=self.stock.targets[held]) if len(held) else None

    def worker(self, row: torch.Tensor, shared: torch.Tensor | None = None) -> LocalWorker:
        """The worker over its row (numbers of `spans`); `shared` (d,): parameters that are not its alone."""
        job, plan = self._order.job, self._order.plan
        worker = LocalWorker(
            self._rank,
            len(plan.shares),
            self.module,
            self.stock,
            row,
            self.spans,
            job.optimizer,
            job.sync,
            job.seed,
            self.batches,
            [share.items for share in plan.shares],
            plan.horizon,
            shared,
            self.task,
            job.engine.precision,
        )
        worker.foreign = bool(job.user_code)
        return worker

    def _items(self, inputs: NDArray[Any], targets: NDArray[Any]) -> Samples:
        """A device has them all if they leave it room; else they stay where they are, and it gets batch by batch."""
        last = self._order.job.model.convolves and self.device.type == "cpu"
        items = Samples(
            torch.from_numpy(inputs), torch.from_numpy(targets), self._order.card.scale, self.spans.layout.dtype, last
        )
        if self.device.type == "cuda" and inputs.nbytes + targets.nbytes > SHARE * torch.cuda.mem_get_info(self.device)[0]:
            return replace(items, device=self.device)
        return replace(items, inputs=items.inputs.to(self.device), targets=items.targets.to(self.device))

    def _build(self) -> torch.nn.Module:
        job = self._order.job
        seed = derive(job.seed, "init")
        torch.default_generator.manual_seed(seed)
        if job.user_code:
            random.seed(seed)
            np.random.seed(seed % 2**32)
        return build(job.model, self._order.folder, self.interface).train()


def require_memory(order: ProcessSpec, spans: RowLayout) -> None:
    """Refuse rows that this machine cannot hold all at once, whatever caches it drops: the kernel would kill one of the workers."""
    count, needed = _rows(order, spans)
    total, most = order.room.total, order.room.most  # with swap this may be more
    need = f"[[workers]]: {count} on the CPU need {_gib(needed)} for their parameters, gradients and optimizer states"
    if needed > max(total, most):
        raise BadJob(f"{need}, and this machine has {_gib(total)} of memory; take fewer workers or a smaller network")
    if needed > most:
        there = f"of this machine's {_gib(total)} of memory no more than {_gib(most)} are not in use"
        raise BadJob(f"{need}, and {there}; free memory, or take fewer workers or a smaller network")


def tight(order: ProcessSpec, outfit: WorkerSetup) -> str:
    """What to say of a run that may not find all the memory it is going to take, as far as that is known; nothing if it should.

    A slot may be taken for each snapshot, a file of one is twice in memory for a moment, and items held out are copied by each worker.
    """
    count, rows = _rows(order, outfit.spans)
    slot = slot_map(outfit.module, outfit.spans, order.job.sync, len(order.plan.shares)).size
    vector = outfit.spans.layout.size * outfit.spans.layout.dtype.itemsize
    shared, held = order.job.sync.shared_vectors * vector, outfit.held_out(1)
    copies = count * order.plan.held_out * (held.inputs.nbytes + held.targets.nbytes) if held else 0
    own, snapshots = rows + shared + copies, (SLOTS + 2) * slot
    needed = own + snapshots
    if needed <= order.room.free:
        return ""
    parts = f"{count} workers on the CPU {_gib(own)}, snapshots and their files {_gib(snapshots)}"
    need = f"memory may not suffice: this run needs about {_gib(needed)} ({parts})"
    return f"{need}, and {_gib(order.room.free)} are free; the kernel kills a worker when there is no more"


def _rows(order: ProcessSpec, spans: RowLayout) -> tuple[int, int]:
    """How many workers of this machine have their rows in its memory, and bytes of what all of them write from the first round on."""
    count = [order.plan.shares[rank].spec.device for rank in order.members].count("cpu")
    own = spans.wire - spans.layout.size * order.job.sync.shares_params
    return count, count * own * spans.layout.dtype.itemsize


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"


def _repeat_exactly() -> None:
    """Ask CUDA's libraries for float32 where the job says so, and for the algorithms that give the same bits each time.

    Torch warns where there is none.
    """
    cudnn: Any = torch.backends.cudnn
    for kind in cudnn.conv, cudnn.rnn:  # as matrix products are; TF32 has 10 bits of 23
        kind.fp32_precision = "ieee"
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.set_deterministic_debug_mode("warn")  # `use_deterministic_algorithms` would import torch's compiler
    # Where torch is only to warn, the backward passes of these kinds of attention add up in any order; the plain one does not.
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")  # rows lie as they lie


def _reach(rank: int, device: torch.device) -> None:
    """Make this the device that is meant where none is named; BadJob where this torch, or the driver, cannot compute on it."""
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.cuda.set_device(device)
        torch.ones((), device=device).item()  # a build of torch may have no kernels for a device it can see
    except (AssertionError, RuntimeError) as error:
        if "out of memory" in str(error):
            raise
        what = f"worker {rank}: torch {torch.__version__} cannot compute on {device}"
        raise BadJob(f"{what}: {str(error).strip().splitlines()[0]}") from None


def _spans(module: torch.nn.Module, order: ProcessSpec) -> RowLayout:
    precision = order.job.engine.precision
    try:
        spans = row_layout(module, order.job.optimizer)
        if precision != "float32" and spans.layout.dtype != torch.float32:
            raise TypeError(f'`precision = "{precision}"` in [engine] is for parameters of float32, not {spans.layout.dtype}')
        return spans
    except TypeError as error:
        raise UserCodeFailed(f"model `{order.job.model.name}`: {error}") from None


def _mapped(handle: Any) -> memoryview:
    descriptor = handle.detach()
    return memoryview(mmap.mmap(descriptor, os.fstat(descriptor).st_size))
