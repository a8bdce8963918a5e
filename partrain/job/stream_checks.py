"""Checks of a job whose training items are a stream, which workers see once per pass, in the order in which it gives them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from partrain.config.problems import Finding
from partrain.data.base import StreamForm
from partrain.tasks import BuiltinTask

if TYPE_CHECKING:
    from partrain.data import AnyDataset
    from partrain.data.partition import Partition
    from partrain.job.workers import WorkerGroup
    from partrain.optim import AnyOptimizer
    from partrain.rules import AnyRule
    from partrain.tasks import AnyTask


def _partition(partition: Partition, stream: StreamForm) -> Iterator[Finding]:
    for key in sorted(partition.model_fields_set):
        message = f"`{key}` divides items with numbers, and a stream's own method gives each worker its shard, in its order"
        yield Finding(("partition", key), message, "remove it", at="key")


def _held_out(dataset: AnyDataset, stream: StreamForm) -> Iterator[Finding]:
    for key in ("fold", "stratify"):
        if getattr(dataset, key):
            message = (
                f"`{key}` chooses among the items of a data set, and a stream's held-out items are those of its `validation`"
            )
            yield Finding(("dataset", key), message, "remove it, and give `validation` = their number", at="key")


def _sizes(workers: list[WorkerGroup], stream: StreamForm) -> Iterator[Finding]:
    for index, group in enumerate(workers):
        if group.partition_size:
            message = "`partition_size` cuts items with numbers, and a stream's own method gives each worker its shard"
            yield Finding(("workers", index, "partition_size"), message, "remove it", at="key")


def _passes(sync: AnyRule, workers: list[WorkerGroup], stream: StreamForm) -> Iterator[Finding]:
    if stream.counted:
        return
    message = "`passes` need the length of each worker's shard, which this stream does not tell"
    advice = "use `iterations`, or give its class a method `length(rank, size)`"
    if "passes" in sync.model_fields_set:
        yield Finding(("sync", "passes"), message, advice, at="key")
    for index, group in enumerate(workers):
        if group.passes:
            yield Finding(("workers", index, "passes"), message, advice, at="key")


def _rule(sync: AnyRule, stream: StreamForm) -> Iterator[Finding]:
    if sync.full_batch:
        message = f'rule "{sync.rule}" takes the gradient of a whole partition, and of a stream workers see one batch at a time'
        yield Finding(("sync", "rule"), message, "choose a rule that trains on batches")
    elif sync.needs_partition_sizes and not stream.counted:
        message = f'rule "{sync.rule}" needs the length of each worker\'s shard, which this stream does not tell'
        yield Finding(("sync", "rule"), message, 'give its class a method `length(rank, size)`, or set weights = "equal"')
    if sync.buffers == "recalibrate" or sync.swa is not None:
        key = "buffers" if sync.buffers == "recalibrate" else "swa"
        message = f"`{key}` recomputes BatchNorm statistics from items of every partition, which a stream does not keep"
        advice = 'use buffers = "average"' if key == "buffers" else "use `ema`"
        yield Finding(("sync", key), message, advice, at="key")


def _full_batch(optimizer: AnyOptimizer, sync: AnyRule, stream: StreamForm) -> Iterator[Finding]:
    if optimizer.full_batch and not sync.full_batch:
        key = "full_batch" if "full_batch" in optimizer.model_fields_set else "name"
        message = f'"{optimizer.name}" takes all items of a partition as one batch, and a stream gives them one after the other'
        yield Finding(("optimizer", key), message, "set full_batch = false")


def _weights(stream: StreamForm, task: AnyTask | None = None) -> Iterator[Finding]:
    if isinstance(task, BuiltinTask) and task.class_weights == "balanced":
        message = 'class_weights = "balanced" counts the items of each class, and a stream does not keep them'
        yield Finding(("task", "class_weights"), message, "give the weights as a list", at="key")


STREAM_CHECKS = _partition, _held_out, _sizes, _passes, _rule, _full_batch, _weights
