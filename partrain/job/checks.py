"""Checks across tables: contradictions in a job, and limits of this machine and of the data files.

Each check is a generator of findings. Its parameters name the tables it reads. It runs if all of these are valid, so one wrong
value hides no contradiction between other tables. All checks run, so that the user sees all problems at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from inspect import Parameter, signature
from itertools import accumulate, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partrain.config.problems import FileFinding, Finding, KeyPath, did_you_mean
from partrain.data import DatasetSpec, read_spec
from partrain.data.base import StreamForm, WrongContent, WrongSetting
from partrain.data.fetch import missing_urls
from partrain.data.folds import Fold
from partrain.data.partition import uncovered, windows
from partrain.errors import BadJob, InputMissing
from partrain.job.contradictions import (
    MAX_WORKERS,
    OF_ITEMS,
    OF_JOB,
    OF_MACHINE,
    OF_SECTIONS,
    OF_STREAM,
    OF_TARGETS,
    Check,
    caps_of,
    count_of,
    most_workers,
)
from partrain.job.privacy_checks import ACCOUNTED, OF_PRIVACY
from partrain.job.schema import Job, caps_rounds, kind_of_task
from partrain.job.sweep import SweepSection
from partrain.job.task_checks import judged_names, loss_keys, metric_names, target_numbers
from partrain.job.workers import WorkerGroup
from partrain.models import Interface
from partrain.number_format import counted
from partrain.optim import SINGLE_ITEMS
from partrain.protocols.rule_traits import JobContext, Partitions
from partrain.system import accelerator
from partrain.system.cores import parse_cores, usable_cores
from partrain.tasks.kinds import USER, kinds_for
from partrain.training.faults import Faults

if TYPE_CHECKING:
    from partrain.comm.section import TransportSection
    from partrain.data import AnyDataset
    from partrain.data.partition import Partition
    from partrain.models import AnyModel
    from partrain.optim import AnyOptimizer
    from partrain.rules import AnyRule
    from partrain.tasks import AnyTask
    from partrain.training.stop import Stop

FEW_ITEMS = 100
"""Partitions below this are too small for a replica to learn much alone."""

Tables = Mapping[str, Any]
"""The valid tables of a job by name. `names` holds the names of all tables in the file."""


def check_job(tables: Tables) -> Iterator[Finding]:
    """Check tables against each other, for any machine."""
    own = _round_lengths, _equal_rounds, _rounds_of_settings, _rule, _swept_keys
    return _run((*OF_JOB, *OF_PRIVACY, *own, *OF_SECTIONS), tables)


def check_machine(tables: Tables, folder: Path) -> Iterator[Finding]:
    """Check tables against this machine; relative data paths start from `folder`."""
    yield from _run((_devices, _cores, *OF_MACHINE, ACCOUNTED), tables)
    if "dataset" not in tables:
        return
    dataset, spec = tables["dataset"], None
    try:
        spec = read_spec(dataset, folder)
    except WrongContent as wrong:
        for keys, message in wrong.faults:
            blamed = next((key for key in keys if key in dataset.model_fields_set), "path")
            yield FileFinding(("dataset", blamed), message)
    except InputMissing as missing:
        named = {key: value if isinstance(value, tuple) else (value,) for key, value in dataset}
        files = {name: key for key, names in named.items() for name in names if isinstance(name, str) and name in missing.message}
        places = [files[max(files, key=len)]] if files else []
        yield FileFinding(("dataset", *places), missing.message)
    except WrongSetting as wrong:
        yield wrong.finding
    yield from check_data(tables, spec) if spec else ()
    for key in missing_urls(dataset):
        message = "has not been fetched yet, so nothing could be checked against it"
        yield Finding(("dataset", key), message, "`partrain data fetch` or the run itself fetches it", severity="warning")


def check_start(tables: Tables, folder: Path) -> Iterator[Finding]:
    """Check the file that a new run starts from; relative paths start from `folder`. A resumed run does not need it."""
    model = tables.get("model")
    if model is None or not (model.start_file or model.starts_published):
        return
    from partrain.checkpoint import pretrained, start_file  # few jobs start from a file

    sources = [key for key in ("weights", "pretrained", "from") if key in model.model_fields_set]
    place = ("model", *sources[:1])
    try:
        if missing_url := pretrained.missing_url(model) or start_file.missing_url(model):
            message = f"{missing_url.partition('#')[0]} has not been fetched yet, so the network could not be checked against it"
            yield Finding(place, message, "the run itself fetches it", severity="warning")
        elif path := start_file.file_of(model, folder):
            start_file.check(path)
    except BadJob as wrong:
        yield Finding(place, wrong.message.removeprefix("[model] "))
    except InputMissing as missing:
        yield FileFinding(place, missing.message)


def check_data(tables: Tables, spec: DatasetSpec, drawn: Sequence[int] = ()) -> Iterator[Finding]:
    """Check tables against the data set. `drawn`: sizes of the partitions, if the job draws them; () before that."""
    tables = {**tables, "spec": spec}
    yield from _run((_remarks, _task, *OF_TARGETS, loss_keys, target_numbers, metric_names, judged_names), tables)
    if spec.stream:
        yield from check_stream(tables, spec.stream)
        return
    if drawn:
        ends = accumulate(drawn)
        tables |= {"cut": [range(end - size, end) for end, size in zip(ends, drawn, strict=True)], "training": sum(drawn)}
    elif {"dataset", "partition", "workers"} <= tables.keys() and not tables["partition"].draws_sizes:
        training = spec.items - spec.held_out_of(tables["dataset"])
        most = most_workers(tables["transport"]) if "transport" in tables else MAX_WORKERS
        cut, errors = _cut(tables["dataset"], tables["partition"], tables["workers"], spec, training, most)
        yield from errors
        tables |= {"cut": cut, "training": training} if cut else {}
    yield from _run((*OF_ITEMS, _uncovered, _rule_partitions, _batch_size, _batch_norm), tables)


def check_stream(tables: Tables, stream: StreamForm) -> Iterator[Finding]:
    """Check tables against a data set whose training items are a stream."""
    return _run((_stream_partition, _stream_sizes, _stream_passes, *OF_STREAM), {**tables, "stream": stream})


def _run(checks: Sequence[Check], tables: Tables) -> Iterator[Finding]:
    """Run the checks whose tables are all valid."""
    for check in checks:
        parameters = _parameters(check)
        if all(parameter.name in tables for parameter in parameters if parameter.default is parameter.empty):
            yield from check(**{parameter.name: tables[parameter.name] for parameter in parameters if parameter.name in tables})


@cache
def _parameters(check: Check) -> Sequence[Parameter]:
    return list(signature(check).parameters.values())


# The length of a round


def _round_lengths(sync: AnyRule, workers: list[WorkerGroup]) -> Iterator[Finding]:
    for index, group in enumerate(workers):
        if {"iterations", "passes"} <= group.model_fields_set:
            yield Finding(("workers", index, "passes"), "[[workers]] has both `iterations` and `passes`", "keep one", at="key")
    lacking = [index for index, caps in enumerate(caps_of(sync, workers)) if not any(caps)]
    if len(lacking) == len(workers):
        message = "[sync] does not set the length of a round"
        yield Finding(("sync",), message, "add `iterations` or `passes`, for example `iterations = 10`")
    else:
        for index in lacking:
            yield Finding(("workers", index), "neither this [[workers]] table nor [sync] has `iterations` or `passes`", "add one")


def _equal_rounds(sync: AnyRule, workers: list[WorkerGroup]) -> Iterator[Finding]:
    """Require equal iterations of all workers if they synchronize after each one."""
    if not sync.syncs_every_iteration:
        return
    places = [("workers", index) if group.iterations or group.passes else ("sync",) for index, group in enumerate(workers)]
    caps = caps_of(sync, workers)
    for place in dict.fromkeys(place for place, (_, passes) in zip(places, caps, strict=True) if passes):
        message = f'rule "{sync.rule}" synchronizes after each iteration: it cannot count a round in passes'
        yield Finding((*place, "passes"), message, "use `iterations`", at="key")
    counts = [iterations for iterations, _ in caps]
    for place, count in zip(places, counts, strict=True):
        if count and counts[0] and count != counts[0]:
            message = f'rule "{sync.rule}" needs equal `iterations` for all workers, not {counts[0]} and {count}'
            yield Finding((*place, "iterations"), message)
            return


# The rule and its workers


def _rule(
    sync: AnyRule,
    workers: list[WorkerGroup],
    optimizer: AnyOptimizer | None = None,
    faults: Faults | None = None,
    partition: Partition | None = None,
) -> Iterator[Finding]:
    """Let the rule check its settings."""
    yield from sync.check(JobContext(count_of(workers), optimizer, workers, caps_rounds(faults, partition)))


def _rounds_of_settings(sync: AnyRule, stop: Stop) -> Iterator[Finding]:
    for key in sync.counted_in_rounds:
        number, rounds = getattr(sync, key), stop.rounds
        if key in sync.model_fields_set and number and rounds and number > rounds:
            message = f"`{key}` = {number} rounds, but the run ends after {rounds}"
            yield Finding(("sync", key), message, "lower it, or raise `rounds`", "key", "warning")


# This machine


def _devices(workers: list[WorkerGroup]) -> Iterator[Finding]:
    for index, group in enumerate(workers):
        kind, _, number = group.device.partition(":")
        if number if kind == "cpu" else int(number or 0) >= accelerator.count(kind):
            message = f"no device {group.device} on this machine (devices: {', '.join(accelerator.present(kind))})"
            near = "cuda" if kind == "gpu" else did_you_mean(kind, ("cuda", "xpu", "mps"))
            hint = f"did you mean {near}? Or " if near and near != kind else ""
            change = f"~workers.{index}" if len(workers) > 1 else f'workers.{index}.device="cpu"'
            todo = f"{hint}give --set '{change}', or run the job on a machine that has it"
            yield Finding(("workers", index, "device"), f"{message}; {todo}")


def _cores(transport: TransportSection, workers: list[WorkerGroup]) -> Iterator[Finding]:
    cores, usable = usable_cores(), os.sched_getaffinity(0)
    for index, group in enumerate(workers):
        own = parse_cores(group.cpus) if group.cpus else []
        if beyond := [core for core in own if core not in usable]:
            message = f"this process may not use core {beyond[0]} (cores: {', '.join(map(str, sorted(usable)))})"
            yield Finding(("workers", index, "cpus"), message, "name others, or remove it")
        elif own and transport.implementation().one_process:
            yield Finding(("workers", index, "cpus"), "simulated workers live in one process: they have no cores", "remove it")
        elif len(own) % group.count:
            message = f"{counted(len(own), 'core')} cannot be dealt out equally to {group.count} processes"
            yield Finding(("workers", index, "cpus"), message, "name as many for each")
        elif own and group.threads > len(own) // group.count:
            message = f"{group.threads} threads for {counted(len(own) // group.count, 'core')} of each process: they will wait for one another"
            yield Finding(("workers", index, "threads"), message, severity="warning")
    needs = [group.count * (group.threads if group.device == "cpu" else 1) for group in workers]
    if not transport.implementation().one_process and sum(needs) > cores:
        index = max(range(len(workers)), key=needs.__getitem__)
        key = "threads" if workers[index].threads > 1 else "count"
        hosts = sum(group.count for group in workers if group.device != "cpu")
        beside = f" and {counted(hosts, 'accelerator')}" if hosts else ""
        message = (
            f"{sum(needs) - hosts:,} threads of CPU workers{beside} for {counted(cores, 'core')}: they will wait for one another"
        )
        yield Finding(("workers", index, key), message, severity="warning")


# The data set


def _remarks(spec: DatasetSpec) -> Iterator[Finding]:
    for remark in spec.remarks:
        yield Finding(("dataset", remark.key), remark.message, remark.advice, severity="warning")


def _task(model: AnyModel, task: AnyTask | None, dataset: AnyDataset, spec: DatasetSpec) -> Iterator[Finding]:
    kind = kind_of_task(task, model, spec.task)
    if kind is not USER and spec.task not in kind.fits:
        place = ("task", "kind") if task and kind.name == getattr(task, "kind", "") else ("model", "name")
        message = f"the data set's items are made for {spec.task}, not for {kind}"
        numbers = kind.fits and kind.targets == "numbers" and spec.kind.one_class and "target_kind" in type(dataset).model_fields
        other = '; for whole numbers as numbers set target_kind = "number" in [dataset]' if numbers else ""
        yield Finding(place, message, f"fitting: {', '.join(kinds_for(spec.task))}{other}")
    else:
        vocabulary = spec.outputs or 1 if spec.tokens else None
        interface = Interface(spec.shape, spec.outputs or 1, kind.name, vocabulary, spec.categories, spec.parts)
        if obstacle := model.mismatch(interface):
            yield Finding(("model", "name"), obstacle)


def _swept_keys(sweep: SweepSection | None) -> Iterator[Finding]:
    for first in {key.partition(".")[0]: "" for key in (*sweep.values, *sweep.zip)} if sweep else ():
        if first not in Job.model_fields:
            near = did_you_mean(first, Job.model_fields)
            how = f"did you mean `{near}`?" if near else '[sweep] takes those directly: "optimizer.lr" = [0.1, 0.01]'
            yield Finding(("sweep", first), f"`{first}` is no table or key of a job", how, at="key")


# Partitions


def _cut(
    dataset: AnyDataset, partition: Partition, workers: list[WorkerGroup], spec: DatasetSpec, training: int, most: int
) -> tuple[list[range], list[Finding]]:
    """Cut the training items into one window for each worker; return none, and the errors, if that is impossible."""
    count = count_of(workers)
    if isinstance(dataset.held_out, Fold) and dataset.held_out.folds > spec.items:
        return [], [Finding(("dataset", "fold"), f"{dataset.held_out.folds:,} folds are more than the {spec.items:,} items")]
    if training <= 0:
        message = f"`validation` holds out {dataset.validation:,} of {spec.items:,} items: none are left to train on"
        return [], [Finding(("dataset", "validation"), message)]
    if count > training:
        return [], [Finding(("workers", 0, "count"), f"{count:,} workers are more than the {training:,} training items")]
    if count > most:  # a separate contradiction
        return [], []
    if too_large := [
        Finding(("workers", index, "partition_size"), f"`partition_size` {size:,} exceeds the {training:,} training items")
        for index, group in enumerate(workers)
        if (size := group.partition_size or 0) > training
    ]:
        return [], too_large
    try:
        sizes = [group.partition_size for group in workers for _ in range(group.size)]
        return list(windows(training, sizes, partition.overlap)), []
    except ValueError as error:
        return [], [Finding(_place_of_sizes(workers), str(error))]


def _place_of_sizes(workers: list[WorkerGroup]) -> KeyPath:
    """Return the key that determines the sizes of the partitions."""
    return next(
        (("workers", index, "partition_size") for index, group in enumerate(workers) if group.partition_size), ("partition",)
    )


def _uncovered(partition: Partition, workers: list[WorkerGroup], cut: list[range], training: int) -> Iterator[Finding]:
    """Find items without a worker."""
    if partition.uncovered == "error" and (missed := sum(map(len, uncovered(training, cut)))):
        message = f"{missed:,} of the {training:,} training items belong to no worker"
        advice = 'raise or remove `partition_size`, or set uncovered = "allow" in [partition]'
        yield Finding(_place_of_sizes(workers), message, advice)


def _rule_partitions(sync: AnyRule, workers: list[WorkerGroup], cut: list[range], training: int) -> Iterator[Finding]:
    """Let the rule check the sizes of the partitions."""
    yield from sync.check_partitions(Partitions(list(map(len, cut)), training, _place_of_sizes(workers)))


def _batch_size(
    sync: AnyRule, optimizer: AnyOptimizer, workers: list[WorkerGroup], cut: list[range], partition: Partition
) -> Iterator[Finding]:
    """Compare partitions with the batch sizes, and with the items that a replica needs to learn."""
    if partition.draws_sizes:  # a small one is a batch
        return
    places = [(index, group.batch_size) for index, group in enumerate(workers) for _ in range(group.size)]
    for (index, own), size in zip(places, map(len, cut), strict=True):
        if own and not sync.full_batch and own > size:
            message = f"`batch_size` {own:,} is more than the {size:,} items of a partition"
            yield Finding(("workers", index, "batch_size"), message, f"at most {size:,}")
            return
    smallest = min(map(len, cut))
    common = [size for (_, own), size in zip(places, map(len, cut), strict=True) if not own]
    batch = smallest if sync.full_batch else optimizer.batch(smallest)
    if common and batch > (smallest := min(common)):
        message = f"`batch_size` {batch:,} is more than the {smallest:,} items of the smallest partition"
        yield Finding(("optimizer", "batch_size"), message, f"at most {smallest:,}, or fewer workers, or more overlap")
    elif smallest < FEW_ITEMS:
        message = f"only {smallest} items in the smallest partition"
        yield Finding(("workers", 0), message, "too few for a replica to learn much", severity="warning")


def _batch_norm(
    sync: AnyRule,
    optimizer: AnyOptimizer,
    model: AnyModel,
    workers: list[WorkerGroup],
    cut: list[range],
    spec: DatasetSpec,
    partition: Partition,
) -> Iterator[Finding]:
    """Refuse batches, or parts of them, of fewer items than the network can train on."""
    if sync.full_batch or model.freeze or model.least_batch(spec.shape) < 2:
        return
    groups = [
        (bool(caps[1]), group.batch_size)
        for group, caps in zip(workers, caps_of(sync, workers), strict=True)
        for _ in range(group.size)
    ]
    sizes = list(map(len, cut))
    pairs = product(sorted(set(sizes)), dict.fromkeys(groups)) if partition.clients else zip(sizes, groups, strict=True)
    for size, (whole, own) in pairs:
        last = optimizer.last_batch(size, own, whole_passes=whole)
        if last // min(optimizer.accumulate, last) > 1:
            continue
        key = "accumulate" if last > 1 else "batch_size"
        what = f"the last batch of a pass over {size:,} items" if last < optimizer.batch(size, own) else "a batch"
        has = f"{last} items in {optimizer.accumulate} parts" if last > 1 else "one item"
        message = f"{what} has {has}, and BatchNorm needs at least two items at a time"
        yield Finding(("optimizer", key), message, SINGLE_ITEMS)
        return


# A stream


def _stream_partition(partition: Partition, stream: StreamForm) -> Iterator[Finding]:
    for key in sorted(partition.model_fields_set):
        message = f"`{key}` divides items with numbers, and a stream's own method gives each worker its shard, in its order"
        yield Finding(("partition", key), message, "remove it", at="key")


def _stream_sizes(workers: list[WorkerGroup], stream: StreamForm) -> Iterator[Finding]:
    for index, group in enumerate(workers):
        if group.partition_size:
            message = "`partition_size` cuts items with numbers, and a stream's own method gives each worker its shard"
            yield Finding(("workers", index, "partition_size"), message, "remove it", at="key")


def _stream_passes(sync: AnyRule, workers: list[WorkerGroup], stream: StreamForm) -> Iterator[Finding]:
    places: list[tuple[KeyPath, Any]] = [(("sync",), sync), *((("workers", index), group) for index, group in enumerate(workers))]
    for path in (path for path, table in places if table.passes and not stream.counted):
        message = "`passes` need the length of each worker's shard, which this stream does not tell"
        advice = "use `iterations`, or give its class a method `length(rank, size)`"
        yield Finding((*path, "passes"), message, advice, at="key")
