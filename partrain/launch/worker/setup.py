"""The set-up of a worker before it joins the others: its device, data, network, task and batches."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cached_property, lru_cache
from inspect import getattr_static
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from partrain.checkpoint.start_file import tensors
from partrain.config import usercode
from partrain.data import Dataset
from partrain.data.base import StreamForm
from partrain.data.codec import Codec
from partrain.data.partition import Assignment, share_out, split
from partrain.data.transforms import Augment, ImageAugment, UserAugment
from partrain.data.user.pipe import DataProcess, waiting_at_most
from partrain.data.user.section import UserData
from partrain.data.user.work import Share
from partrain.errors import BadJob, UserCodeFailed
from partrain.job.plan import last_round
from partrain.launch.targets import class_weights
from partrain.launch.worker.memory import DiskNeeds, MemoryNeeds
from partrain.launch.worker.spec import ProcessSpec
from partrain.models import START_ITEMS, Interface, build_drawn, start_from_items
from partrain.models.freeze import mark_moved
from partrain.models.start import start_from
from partrain.models.ties import move
from partrain.system.accelerator import Accelerator
from partrain.tasks import UserTask
from partrain.tasks.judged import judged_metrics
from partrain.tasks.task import Task, kind_of_answers
from partrain.training.batches import Batches, Samples
from partrain.training.evaluate import Evaluator
from partrain.training.participation import Participation
from partrain.training.replica import Replica, RowLayout, persistent_buffers, row_layout
from partrain.training.round_caps import parts_by
from partrain.training.round_plan import RoundPlan
from partrain.training.stream_batches import StreamBatches
from partrain.training.worker import LocalWorker

SHARE = 0.5
"""Share of a device's free memory that items may take."""


class ProcessSetup:
    """All that the workers of one process share."""

    def __init__(self, spec: ProcessSpec) -> None:
        self.spec = spec
        self.assignment = lru_cache(maxsize=1)(self._assignment)
        """Function that shares out the items: round number, partition sizes -> assignment."""
        self.held_out: dict[torch.device, Samples] = {}
        """Copies of the held-out items."""

    @cached_property
    def dataset(self) -> Dataset:
        """The data set."""
        return self.spec.dataset.open(_mapped(self.spec.dataset_fd))

    @cached_property
    def interface(self) -> Interface:
        """The interface of the network."""
        return interface_of(self.spec, self.dataset.item_shape)

    @cached_property
    def planned_items(self) -> list[int]:
        """Item-iterations of each worker in a full round, by rank."""
        return [share.items for share in self.spec.plan.shares]

    @cached_property
    def participation(self) -> Participation:
        """The draw of each round's workers."""
        job, plan = self.spec.job, self.spec.plan
        sizes = plan.clients or [share.partition or share.items for share in plan.shares]
        workers = len(plan.shares) if plan.clients else None
        return Participation(job.sync, job.seed, sizes, job.transport.availability_of(len(sizes)), workers)

    def task(self) -> Task:
        """Make a worker's task."""
        job, dataset = self.spec.job, self.dataset
        return job.make_task(dataset.task, self.spec.folder, class_weights(job, dataset), padded=self.interface.unequal)

    def network(self) -> tuple[nn.Module, str]:
        """Return a worker's network, the same for every worker, and the arrays taken from its start file, in words.

        Until a worker moves its parameters into its row, they share the memory of all: freed copies of thousands of workers would stay between
        smaller blocks.
        """
        if len(self.spec.ranks) == 1 or self.spec.job.network_code:  # user code may not survive a copy
            return self._build()
        module, note = self._built
        return deepcopy(module, {id(own): nn.Parameter(own.detach(), own.requires_grad) for own in module.parameters()}), note

    @cached_property
    def _built(self) -> tuple[nn.Module, str]:
        return self._build()

    def _build(self) -> tuple[nn.Module, str]:
        """Draw a network; then overwrite it from the file, so that the draws are the same as without a file."""
        job, file = self.spec.job, self.spec.start_file
        module = build_drawn(job.model, self.spec.folder, self.interface, job.seed).train()
        mark_moved(module, self.spec.point.moved)
        if self.spec.point.resuming:
            return module, ""
        if file is None:
            in_units = getattr(job.task, "loss", None) != "poisson"  # the answers of `poisson` are logarithms
            if job.model.starts_from_items and in_units and not self.dataset.stream:
                trained = np.sort(split(self.dataset, job.dataset, job.partition.order, job.seed)[0])
                some = trained[:: -(-len(trained) // START_ITEMS)]
                inputs = self.dataset.inputs[some] * np.float32(self.spec.dataset.scale)
                start_from_items(job.model, module, inputs, self.dataset.targets[some])
            return module, ""
        vocabularies = tuple(codec.get("vocabulary", ()) for codec in (file.codec, self.spec.dataset.codec))
        stored, outputs = tensors(file, self._start[: file.size]), self.interface.outputs
        return module, start_from(module, stored, job.model, file.name, outputs, vocabularies)

    @cached_property
    def recorded(self) -> dict[str, NDArray[Any]]:
        """The checkpoint's network and its answers to drawn items, in the dry run of a resumed run; {} elsewhere."""
        from safetensors.numpy import load

        file = self.spec.start_file if self.spec.point.resuming else None
        return load(bytes(self._start[: file.size])) if file else {}

    @cached_property
    def _start(self) -> memoryview:
        return _mapped(self.spec.start_fd)

    def _assignment(self, number: int | None, sizes: tuple[int | None, ...]) -> Assignment:
        job = self.spec.job
        return share_out(self.dataset, job.dataset, job.partition, sizes, job.seed, number).in_rows(self.dataset.rows)


class WorkerSetup:
    """All that a worker needs, except a row and a group."""

    def __init__(self, rank: int, shared: ProcessSetup, on_wait: Callable[[], None] = lambda: None) -> None:
        """Set up worker `rank`. It calls `on_wait` now and then while it waits for a stream."""
        spec = shared.spec
        job, plan = spec.job, spec.plan
        share = plan.shares[rank]
        self._rank, self._spec, self._shared = rank, spec, shared
        if share.spec.cpus:
            os.sched_setaffinity(0, share.spec.cpus)
        torch.set_num_threads(share.spec.threads)
        torch.set_flush_denormal(True)
        self.device = torch.device(share.spec.device)
        self._accelerator = Accelerator.of(self.device)
        if self._accelerator:
            _reach(rank, self._accelerator)

        dataset, self.interface = shared.dataset, shared.interface
        self.module, self.start_note = shared.network()
        """`start_note`: the arrays taken from the network's start file, in words; "" without a file."""
        move(self.module, self.device)
        if job.sync.noise_multiplier and (buffers := persistent_buffers(self.module)):
            raise BadJob(
                f"[sync] noise: the network's buffer `{buffers[0][0]}` would be in its checkpoints without noise; use a network without buffers, "
                "or `persistent=False` for constants"
            )
        self.layout = _layout(self.module, spec)
        self.warnings: list[str] = []
        """Remarks on memory and disk space."""
        if rank == spec.ranks[0]:  # the others need the same
            item = dataset.inputs[:1].nbytes + dataset.targets[:1].nbytes
            needs = MemoryNeeds.of(self.module, self.layout, job, plan, spec.members, item)
            needs.require(spec.memory)
            self.warnings.append(needs.warning(spec.memory))
            if spec.run_folder and not spec.point.resuming:  # a resumed run has most of its checkpoints
                self.warnings.append(
                    DiskNeeds.of(needs.snapshot, job, last_round(job, plan.shares) or 0, spec.run_folder).warning
                )
        self.task = shared.task()

        data = dataset.task if isinstance(job.task, UserTask) else None
        self.metrics = judged_metrics(
            (job.task and job.task.metrics) or (),
            (job.task and job.task.lower_is_better) or (),
            self.task,
            kind_of_answers(self.task, self.interface.task, data),
            dataset.outputs,
            spec.folder,
            Codec(dataset.codec).restore_units,
        )

        held: NDArray[np.int64]
        self.batches: Batches | StreamBatches
        self.batches, held = self._stream(dataset.stream, dataset, on_wait) if dataset.stream else self._partition(dataset)
        self.samples = self._items(dataset.inputs, dataset.targets, dataset.newest, dataset.group)
        if dataset.stream and self._accelerator:
            self.samples = replace(
                self.samples,
                inputs=torch.from_numpy(dataset.inputs),
                targets=torch.from_numpy(dataset.targets),
                device=self.device,
            )
        self.test = None
        if dataset.test_inputs is not None and dataset.test_targets is not None:
            self.test = self._items(dataset.test_inputs, dataset.test_targets, dataset.test_newest, dataset.test_group)
        self.augment = self._augmentation()
        self._held = torch.from_numpy(held).to(self.samples.inputs.device)

    def _stream(self, form: StreamForm, dataset: Dataset, on_wait: Callable[[], None]) -> tuple[StreamBatches, NDArray[np.int64]]:
        """Reach the worker's shard of a stream. Return its batches and the indices of the held-out items."""
        job, plan, rank = self._spec.job, self._spec.plan, self._rank
        worker = plan.shares[rank]
        assert isinstance(job.dataset, UserData)
        whole = worker.spec.passes is not None
        share = Share(form, rank, len(plan.shares), job.seed, worker.batch, worker.partition, whole)
        with waiting_at_most(job.transport.stall_seconds):
            process = DataProcess(job.dataset, self._spec.folder, share, on_wait)
        return StreamBatches(process, share, dataset.info, worker.iterations), np.arange(dataset.items)

    def _partition(self, dataset: Dataset) -> tuple[Batches, NDArray[np.int64]]:
        """Cut the worker's partition into batches. Return them and the indices of the held-out items."""
        job, plan, rank, assignment = self._spec.job, self._spec.plan, self._rank, self._shared.assignment
        share, planned, drawn = plan.shares[rank], plan.part_sizes, self._shared.participation

        def resized(caps: Sequence[int]) -> NDArray[np.int64]:
            assert plan.training_items is not None
            sizes = parts_by(caps, plan.training_items, [other.batch for other in plan.shares], job.partition.overlap)
            return np.asarray(assignment(None, tuple(sizes)).partitions[rank], np.int64)

        def redrawn(number: int) -> NDArray[np.int64]:
            if plan.clients:
                return first.partitions[drawn.client_of(rank, number)]
            return assignment(number, planned).partitions[rank]

        first = assignment(None, planned)
        batches = Batches(
            first.partitions[rank],
            share.batch,
            share.iterations,
            passes=share.spec.passes,
            seed=job.seed,
            rank=rank,
            redraw=redrawn if plan.clients or job.partition.redraw == "round" else None,
            resize=resized if job.partition.balance == "rate" and job.partition.redraw == "never" else None,
            labels=dataset.targets if job.partition.sampling == "balanced" else None,
            weights=dataset.sample_weight,
        )
        return batches, first.held_out

    def held_out(self, most: int | None = None) -> Samples | None:
        """Copy the held-out items, `most` at most, once per process; None without any."""
        held, items, copies = self._held[:most], self.samples, self._shared.held_out
        if not len(held):
            return None
        if self.device not in copies:
            newest, group = (None if array is None else array[held.cpu()] for array in (items.newest, items.group))
            copies[self.device] = replace(
                items, inputs=items.inputs[held], targets=items.targets[held], newest=newest, group=group
            )
        return copies[self.device]

    def trained_targets(self) -> torch.Tensor | None:
        """Return the targets of all training items of this run; None for a stream."""
        job = self._spec.job
        if self._shared.dataset.stream:
            return None
        trained, _ = split(self._shared.dataset, job.dataset, job.partition.order, job.seed)
        return torch.from_numpy(self._shared.dataset.targets[trained])

    def worker(self, row: torch.Tensor, shared_params: torch.Tensor | None = None) -> LocalWorker:
        """Build the worker over its row (layout.numbers,). `shared_params` (d,): parameters that all workers change."""
        job, shared = self._spec.job, self._shared
        horizon, drawn = self._spec.plan.horizon, shared.participation
        return LocalWorker(
            Replica(self.module, self.layout, row, job.optimizer, shared_params),
            self.samples,
            RoundPlan(self._rank, job.sync, job.optimizer, self.batches, shared.planned_items, job.seed, horizon, drawn),
            Evaluator(self.module, self.task, self.metrics, job.engine.compiled),
            job.seed,
            job.engine,
            user_code=bool(job.user_code),
            augment=self.augment,
            faults=job.faults,
        )

    def _items(
        self, inputs: NDArray[Any], targets: NDArray[Any], newest: NDArray[Any] | None, group: NDArray[Any] | None
    ) -> Samples:
        """Move all items to an accelerator if they leave it enough memory; otherwise it gets them batch by batch."""
        last = self._spec.job.model.convolves and self.device.type == "cpu"
        items = Samples(
            torch.from_numpy(inputs),
            torch.from_numpy(targets),
            self._spec.dataset.scale,
            self.layout.params.dtype,
            last,
            channel_scale=self._spec.dataset.channel_scale,
            parts=self._spec.dataset.parts,
            newest=None if newest is None else torch.from_numpy(newest),
            group=None if group is None else torch.from_numpy(group),
        )
        if self._accelerator and inputs.nbytes + targets.nbytes > SHARE * self._accelerator.free_memory:
            return replace(items, device=self.device)
        return replace(items, inputs=items.inputs.to(self.device), targets=items.targets.to(self.device))

    def _augmentation(self) -> Augment | None:
        """Make the augmentation of training batches: the key `augment`, or the method of a user's data set."""
        section = self._spec.job.dataset
        if isinstance(section, UserData):
            method = getattr_static(usercode.find("dataset", section, self._spec.folder), "augment", None)
            return UserAugment(method.__func__, section.name) if isinstance(method, staticmethod) else None
        wanted = getattr(section, "augment", None)
        return ImageAugment(wanted, self.interface.item) if wanted else None


def interface_of(spec: ProcessSpec, item: tuple[int, ...]) -> Interface:
    """Return the interface of a job's network. `item`: shape of an item in its data set."""
    data = spec.dataset
    task = spec.job.kind_of_task(data.task).name
    return Interface(item, data.outputs, task, data.vocabulary, categories=data.categories, parts=data.parts)


def _reach(rank: int, accelerator: Accelerator) -> None:
    """Make an accelerator the current device. Raises BadJob if torch or the driver cannot compute on it."""
    try:
        accelerator.use()
    except (AssertionError, RuntimeError) as error:
        if "out of memory" in str(error):
            raise
        what = f"worker {rank}: torch {torch.__version__} cannot compute on {accelerator.device}"
        raise BadJob(f"{what}: {str(error).strip().splitlines()[0]}") from None


def _layout(module: torch.nn.Module, spec: ProcessSpec) -> RowLayout:
    precision = spec.job.engine.precision
    try:
        layout = row_layout(module, spec.job.optimizer)
        if precision != "float32" and layout.params.dtype != torch.float32:
            raise TypeError(f'`precision = "{precision}"` in [engine] is for parameters of float32, not {layout.params.dtype}')
        return layout
    except TypeError as error:
        raise UserCodeFailed(f"model `{spec.job.model.name}`: {error}") from None


def _mapped(handle: Any) -> memoryview:
    descriptor = handle.detach()
    return memoryview(mmap.mmap(descriptor, os.fstat(descriptor).st_size))
