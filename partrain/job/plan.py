"""The plan of a job on this machine: partition, caps and items per round of every worker. Needs neither torch nor data."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import mul
from statistics import fmean
from typing import TYPE_CHECKING

from partrain.data.folds import held_out_count
from partrain.data.partition import drawn_sizes, windows
from partrain.data.user.section import UserData
from partrain.errors import BadJob
from partrain.job.load import Job, LoadedJob, check_against_data
from partrain.job.workers import WorkerSpec, expand

if TYPE_CHECKING:
    from partrain.data import Dataset

JUDGING_SHARE = 0.05
"""Judging uses less than this share of the items trained between two judgements."""
PAYS = 1.05
"""Gain in speed from which more workers pay: below it noise decides."""


@dataclass(frozen=True)
class WorkerPlan:
    """The work of one worker in a round."""

    spec: WorkerSpec
    partition: int | None
    """Items of the worker's partition, or of its shard of a stream; None: the stream does not give it."""
    iterations: int
    """Cap on local iterations per round, or per visit under an asynchronous rule."""
    items: int
    """Item-iterations of a full round."""
    batch: int
    """Items of a local iteration."""


@dataclass(frozen=True)
class Plan:
    """The run as planned."""

    shares: tuple[WorkerPlan, ...]
    training_items: int | None
    """None: a stream of unknown length."""
    held_out: int
    judge_every: int
    """Rounds between judgements."""
    horizon: int | None
    """Item-iterations at which the learning-rate schedule ends; None for a constant rate."""
    average_from: int | None = None
    """Item-iterations from which mixed networks enter the average of `swa`; None without it."""
    clients: tuple[int, ...] = ()
    """Items of each client, if workers take clients in turn (`[partition] clients`)."""

    @property
    def items(self) -> int:
        """Item-iterations of a full round, over all workers."""
        return sum(share.items for share in self.shares)

    @property
    def part_sizes(self) -> tuple[int | None, ...]:
        """Items of each client, if workers take clients in turn; otherwise the job's `partition_size` of each worker, by rank."""
        return self.clients or tuple(share.spec.partition_size for share in self.shares)


def plan_for(loaded: LoadedJob, dataset: Dataset, machines: int = 1) -> Plan:
    """Plan a job for its data set; ask a stream for the lengths of its shards."""
    job, shards, workers = loaded.job, None, machines * sum(group.size for group in loaded.job.workers)
    if dataset.stream:
        from partrain.data.user.pipe import shard_lengths  # few jobs have a stream

        assert isinstance(job.dataset, UserData)
        shards = shard_lengths(job.dataset, loaded.folder, workers) if dataset.stream.counted else [None] * workers
    elif job.partition.draws_sizes:
        drawn = drawn_sizes(job.partition, dataset, job.dataset, workers, job.seed)
        check_against_data(loaded, dataset.spec, drawn if job.partition.clients else drawn[: workers // machines])
        return make_plan(job, dataset.items, machines, held_out=dataset.spec.held_out_of(job.dataset), drawn=drawn)
    return make_plan(job, dataset.items, machines, shards, dataset.spec.held_out_of(job.dataset))


def make_plan(
    job: Job,
    items: int,
    machines: int = 1,
    shards: Sequence[int | None] | None = None,
    held_out: int | None = None,
    drawn: Sequence[int] | None = None,
) -> Plan:
    """Plan a job for a data set of `items` items (`held_out` ones included), on machines with the job's workers each.

    `shards`: lengths of the workers' shards, by rank, if the training items are a stream; `items` then counts held-out items.
    `drawn`: sizes of the partitions, by rank or by client, if the job draws them. Raises ValueError if the partitions cannot be cut, BadJob if
    a batch exceeds a shard.
    """
    local = expand(job.workers, job.sync.iterations, job.sync.passes)
    firsts = range(0, machines * len(local), len(local))
    specs = [replace(spec, rank=first + spec.rank, process=first + spec.process) for first in firsts for spec in local]
    clients = tuple(drawn or ()) if job.partition.clients else ()
    if drawn and not clients:
        specs = [replace(spec, partition_size=size) for spec, size in zip(specs, drawn, strict=True)]
    if held_out is None:
        held_out = held_out_count(job.dataset.held_out, items)
    training: int | None = items - held_out
    sizes: Sequence[int | None]
    if clients:
        likely = clients if job.sync.client_sampling == "items" else [1] * len(clients)
        sizes = [round(sum(map(mul, likely, clients)) / sum(likely))] * len(specs)
    elif shards is None:
        sizes = [len(cut) for cut in windows(items - held_out, [spec.partition_size for spec in specs], job.partition.overlap)]
    else:
        sizes, training = shards, None if None in shards else sum(size or 0 for size in shards)
        _check_shards(job, specs, shards)
    shares = tuple(_worker_plan(spec, size, job, max(clients, default=None)) for spec, size in zip(specs, sizes, strict=True))
    per_round = sum(share.items for share in shares) * participants(job, len(shares)) / len(shares)
    end = last_item_iteration(job, shares)
    return Plan(
        shares,
        training,
        held_out,
        job.stop.judge_every or max(1, math.ceil(held_out / (JUDGING_SHARE * per_round))),
        (job.optimizer.horizon or end) if job.optimizer.needs_horizon else None,
        math.ceil(job.sync.swa * (end or 0)) if job.sync.swa is not None else None,
        clients,
    )


def _check_shards(job: Job, specs: Sequence[WorkerSpec], shards: Sequence[int | None]) -> None:
    for rank, size in enumerate(shards):
        batch = job.optimizer.batch(0, specs[rank].batch_size)
        if size is not None and size < batch:
            raise BadJob(
                f"[optimizer] batch_size: {batch:,} is more than the {size:,} items of worker {rank}'s shard of the stream;"
                " lower it, or take fewer workers"
            )


def _worker_plan(spec: WorkerSpec, partition: int | None, job: Job, largest: int | None = None) -> WorkerPlan:
    """Plan a worker's round. `largest`: items of the largest client, if workers take clients in turn; `partition` is then the expected one."""
    visits = job.sync.visits_per_worker or 1
    if partition is None:
        iterations, batch = spec.iterations or 1, job.optimizer.batch(0, spec.batch_size)
        return WorkerPlan(spec, None, iterations, iterations * batch * visits, batch)
    most = largest or partition
    batch = min(job.optimizer.batch(most, spec.batch_size), most)
    if spec.passes is not None:
        return WorkerPlan(spec, partition, spec.passes * math.ceil(partition / batch), spec.passes * partition * visits, batch)
    iterations, items = spec.iterations or 1, partition if job.sync.full_batch else min(batch, partition)
    return WorkerPlan(spec, partition, iterations, iterations * items * visits, batch)


def last_item_iteration(job: Job, shares: Sequence[WorkerPlan]) -> int | None:
    """Return the earliest end that `[stop]` implies, in item-iterations; None if only time or judgements end the run."""
    ends = [condition.horizon(lambda rounds: item_iterations(job, shares, rounds)) for condition in job.stop.conditions()]
    return min((end for end in ends if end), default=None)


def last_round(job: Job, shares: Sequence[WorkerPlan]) -> int | None:
    """Return the last round that `[stop]` allows; None if only time or judgements end the run."""
    limit, rounds = job.stop.item_iterations, job.stop.rounds
    if limit is not None:
        first = bisect_left(range(1, limit + 1), limit, key=lambda number: item_iterations(job, shares, number)) + 1
        rounds = min(rounds or first, first)
    return rounds


def is_estimate(job: Job, shares: Sequence[WorkerPlan]) -> bool:
    """Return whether measured times, losses or learning rates change the item-iterations of rounds."""
    unequal = len({share.items for share in shares}) > 1
    drawn = not job.transport.always_reached or (job.sync.clients is not None and unequal) or job.partition.clients
    shared_visits = not job.sync.synchronous and unequal
    return bool(drawn) or shared_visits or job.caps_rounds or job.sync.planned_iterations(1) is None


def item_iterations(job: Job, shares: Sequence[WorkerPlan], rounds: int) -> int:
    """Return the item-iterations of the first `rounds` rounds: exact, unless `is_estimate`."""
    return possible_items(job, shares, rounds) * participants(job, len(shares)) // len(shares)


def possible_items(job: Job, shares: Sequence[WorkerPlan], rounds: int) -> int:
    """Return the item-iterations of the first `rounds` rounds if no worker sits one out because others are drawn.

    With `ramp_workers`, the worker of rank k of N joins after k/N of the ramp (`Rule.active_workers`).
    """
    total = 0
    for share in shares:
        joins = 1 + share.spec.rank * job.sync.ramp_workers // len(shares)
        stretches = job.sync.planned_iterations(share.iterations) or [(1, share.iterations)]
        ends = [first for first, _ in stretches[1:]] + [rounds + 1]
        for (first, iterations), end in zip(stretches, ends, strict=True):
            total += share.items * iterations // share.iterations * max(0, min(end, rounds + 1) - max(first, joins))
    return total


def participants(job: Job, workers: int) -> int:
    """Count the workers that train in a round once a ramp is over: `clients`, or the average number that can be reached."""
    clients = job.partition.clients or workers
    reached = sum(map(fmean, job.transport.availability_of(clients) or [[1.0]] * clients))
    count = workers if job.sync.clients is None else job.sync.active_workers(workers, 1)
    return max(1, min(count, round(reached)))
