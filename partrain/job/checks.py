"""What one table cannot know alone: contradictions between tables, and what this machine and its files do not allow.

Each check is a generator of findings; all run, so that all problems are reported at once. Values that are wrong themselves are
missing in the job, and end a check that asks for one: it could not be right.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partrain.comm.machine import Machine
from partrain.config.problems import FileFinding, Finding
from partrain.config.section import Section
from partrain.data import DatasetSpec, facts
from partrain.data.base import WrongSetting
from partrain.data.fetch import absent
from partrain.data.partition import uncovered, windows
from partrain.errors import InputMissing
from partrain.job.workers import WorkerGroup, cuda_count
from partrain.models import Interface
from partrain.rule_traits import JobContext, Partitions
from partrain.tasks import FITTING
from partrain.train.section import cpu_has_bfloat16

if TYPE_CHECKING:
    from partrain.job.schema import Job

MAX_WORKERS = 1024
FEW_ITEMS = 100
"""Partitions below this are too small for a replica to learn much alone."""

Caps = tuple[int | None, int | None]
"""`iterations` and `passes`."""


def contradictions(job: Job) -> Iterator[Finding]:
    """What is wrong with a job wherever it runs."""
    return _found(
        (
            _length_of_a_round,
            _equal_rounds,
            _rule,
            _rule_in_job,
            _optimizer,
            _paces,
            _settings_without_effect,
            _overlap,
            _end,
            _judging,
            _horizon,
            _moving_end,
            _crowd,
        ),
        job,
    )


def obstacles(job: Job, folder: Path) -> Iterator[Finding]:
    """What keeps this machine from running a job whose data paths start from `folder`."""
    yield from _found((_devices, _cores, _exactness, _precision), job)
    yield from _found((_files,), job, folder)


def unsuited(job: Job, known: DatasetSpec) -> Iterator[Finding]:
    """What does not go together with the data."""
    yield from _found((_task, _classes), job, known)
    yield from _found((_shares,), job, known.items)


def _found(checks: Sequence[Callable[..., Iterator[Finding]]], *known: Any) -> Iterator[Finding]:
    """What the checks find, each as far as it can be known."""
    for check in checks:
        try:
            yield from check(*known)
        except AttributeError as error:
            if not (isinstance(error.obj, Section) and error.name in type(error.obj).model_fields):
                raise


def _files(job: Job, folder: Path) -> Iterator[Finding]:
    """What the data set's files say against the job."""
    try:
        known = facts(job.dataset, folder)
    except InputMissing as missing:
        named = {key: value if isinstance(value, tuple) else (value,) for key, value in job.dataset}
        files = {name: key for key, names in named.items() for name in names if isinstance(name, str) and name in missing.message}
        blamed = [files[max(files, key=len)]] if files else []
        yield FileFinding(("dataset", *blamed), missing.message)
    except WrongSetting as wrong:
        yield Finding(("dataset", wrong.key), wrong.problem, wrong.advice, at="key")
    else:
        yield from unsuited(job, known) if known else ()
    for key in absent(job.dataset):
        message = "has not been fetched yet, so nothing could be checked against it"
        yield Finding(("dataset", key), message, "partrain data fetch, or the run itself, does it", severity="warning")


# The length of a round


def _caps(job: Job, group: WorkerGroup) -> Caps:
    """A group's caps: its own, else those of `[sync]`."""
    own = group.iterations, group.passes
    return own if any(own) else (job.sync.iterations, job.sync.passes)


def _length_of_a_round(job: Job) -> Iterator[Finding]:
    both = {"iterations", "passes"}
    if both <= job.sync.model_fields_set:
        yield Finding(("sync", "passes"), "[sync] has both `iterations` and `passes`", "keep one", at="key")
    for index, group in enumerate(job.workers):
        if both <= group.model_fields_set:
            yield Finding(("workers", index, "passes"), "[[workers]] has both `iterations` and `passes`", "keep one", at="key")
    lacking = [index for index, group in enumerate(job.workers) if not any(_caps(job, group))]
    if len(lacking) == len(job.workers):
        yield Finding(("sync",), "[sync] says nothing on the length of a round", "add `iterations = 10`, say, or `passes = 1`")
    else:
        for index in lacking:
            yield Finding(("workers", index), "neither this [[workers]] table nor [sync] has `iterations` or `passes`", "add one")


def _equal_rounds(job: Job) -> Iterator[Finding]:
    """Where workers meet after each iteration, all have the same number of them."""
    rule = job.sync.rule
    if not job.sync.syncs_every_iteration:
        return
    places = [("workers", index) if group.iterations or group.passes else ("sync",) for index, group in enumerate(job.workers)]
    caps = [_caps(job, group) for group in job.workers]
    for place in dict.fromkeys(place for place, (_, passes) in zip(places, caps, strict=True) if passes):
        message = f'under rule "{rule}" workers meet after each iteration: it cannot count a round in passes'
        yield Finding((*place, "passes"), message, "use `iterations`", at="key")
    counts = [iterations for iterations, _ in caps]
    for place, count in zip(places, counts, strict=True):
        if count and counts[0] and count != counts[0]:
            message = f'rule "{rule}" needs equal `iterations` for all workers, not {counts[0]} and {count}'
            yield Finding((*place, "iterations"), message)
            return


# The rule and its workers


def _crowd(job: Job) -> Iterator[Finding]:
    if (workers := sum(group.count for group in job.workers)) > MAX_WORKERS:
        yield Finding(("workers", 0), f"{workers:,} workers are more than {MAX_WORKERS:,}")


def _rule(job: Job) -> Iterator[Finding]:
    """Let the rule check its settings."""
    workers = sum(group.count for group in job.workers)
    yield from job.sync.check(JobContext(workers, getattr(job, "optimizer", None), job.workers))


def _rule_in_job(job: Job) -> Iterator[Finding]:
    """Check the base keys of the rule against the job."""
    if job.sync.full_batch and "optimizer" in job.model_fields_set:
        message = f'rule "{job.sync.rule}" takes its own steps on full batches: [optimizer] has no effect'
        yield Finding(("optimizer",), message, "remove it", severity="warning")
    elif not job.sync.full_batch and "optimizer" not in job.model_fields_set:
        yield Finding(("optimizer",), "the job has no [optimizer] table", 'add name = "sgd" and lr = 0.1, say')
    cuda = [index for index, group in enumerate(job.workers) if group.device != "cpu"]
    if job.sync.shares_params and cuda:
        message = f'under rule "{job.sync.rule}" all workers train the same numbers in memory: CPU workers only'
        yield Finding(("workers", cuda[0], "device"), message)
    for key in job.sync.counted_in_rounds:
        number, rounds = getattr(job.sync, key), job.stop.rounds
        if key in job.sync.model_fields_set and number and rounds and number > rounds:
            message = f"`{key}` = {number} rounds, and the run ends after {rounds}"
            yield Finding(("sync", key), message, "lower it, or raise `rounds`", "key", "warning")
    if "weights" in job.sync.model_fields_set and not job.sync.uses_weights:
        message = f'rule "{job.sync.rule}" does not mix parameters by `weights`: they are for moments and buffers only'
        yield Finding(("sync", "weights"), message, at="key", severity="warning")


def _optimizer(job: Job) -> Iterator[Finding]:
    for key, message, advice, severity in job.optimizer.remarks():
        yield Finding(("optimizer", key), message, advice, "key", severity)
    if job.rateless and job.sync.lr_scale != "none":
        name = job.sync.rule if job.sync.full_batch else job.optimizer.name
        message = f'`lr_scale` has no effect on the steps of "{name}", which have sizes of their own'
        yield Finding(("sync", "lr_scale"), message, "remove it", at="key")
    apart = sum(group.count for group in job.workers) > 1 and not job.sync.averages_gradients
    if job.optimizer.name == "lbfgs" and job.sync.optimizer_state == "average" and apart:
        message = 'averaged gradients of different partitions tell "lbfgs" little of any one of them'
        yield Finding(("optimizer", "name"), message, 'set optimizer_state = "local" in [sync]', severity="warning")


def _paces(job: Job) -> Iterator[Finding]:
    workers = sum(group.count for group in job.workers)
    for key in ("speed", "delay", "jitter"):
        values = getattr(job.transport, key)
        if key not in job.transport.model_fields_set:
            continue
        if job.transport.kind != "simulated":
            yield Finding(("transport", key), f"`{key}` is simulated only", 'use kind = "simulated"', at="key")
        elif len(values) not in (1, workers):
            yield Finding(
                ("transport", key),
                f"`{key}` has {len(values)} values for {workers} worker{'s'[: workers > 1]}",
                f"give one or {workers}",
            )


# How a run ends


def _end(job: Job) -> Iterator[Finding]:
    stop = job.stop
    if not any((stop.rounds, stop.item_iterations, stop.seconds, stop.patience)):
        message = "a target alone may never be reached" if stop.has_target else "[stop] has no limit"
        yield Finding(("stop",), message, "add `rounds`, `item_iterations`, `seconds` or `patience`")


def _judging(job: Job) -> Iterator[Finding]:
    stop = job.stop
    conditions = [key for key in ("loss", "accuracy", "patience") if getattr(stop, key) is not None]
    if stop.judge == "mixed" and conditions and not job.dataset.validation:
        message = f"`{conditions[0]}` judges the mixed network on held-out items, but `validation` is 0"
        yield Finding(("stop", conditions[0]), message, "hold items out: `validation` in [dataset]", at="key")
    if stop.judge == "any-worker":
        for key in set(conditions) - {"loss"}:
            message = f'`{key}` cannot be had with judge = "any-worker", which looks at training losses only'
            yield Finding(("stop", key), message, 'use `loss`, or judge = "mixed"', at="key")
        if stop.judge_every:
            message = '`judge_every` has no say under judge = "any-worker", which looks at the training losses of each round'
            yield Finding(("stop", "judge_every"), message, "remove it", "key", "warning")


def _task(job: Job, known: DatasetSpec) -> Iterator[Finding]:
    task = job.kind_of_task(known.task)
    if task not in (*FITTING[known.task], "user"):
        place = ("task", "kind") if job.task else ("model", "name")
        message = f"the data set's items are made for {known.task}: they cannot serve for {task}"
        yield Finding(place, message, f"fitting: {', '.join(FITTING[known.task])}")
    else:
        vocabulary = known.outputs or 1 if known.tokens else None
        if obstacle := job.model.fits(Interface(known.shape, known.outputs or 1, task, vocabulary)):
            yield Finding(("model", "name"), obstacle)
    if task not in ("classification", "language", "user") and job.stop.accuracy is not None:
        yield Finding(("stop", "accuracy"), f"the task `{task}` has no accuracy", "use `loss`", at="key")


def _classes(job: Job, known: DatasetSpec) -> Iterator[Finding]:
    """Who asks for classes has to have some."""
    order = job.partition.order
    if job.dataset.stratify and known.task != "classification":
        message = f"`stratify` goes by classes, but the data set's items are made for {known.task}"
        yield Finding(("dataset", "stratify"), message, "remove it", at="key")
    elif job.dataset.stratify and order == "given":
        message = '`stratify` draws the items to hold out, but under order = "given" they are the last ones'
        yield Finding(("dataset", "stratify"), message, "keep one of the two", at="key")
    if job.partition.by_class and known.task == "language":
        message = f'order = "{order}" goes by classes or numbers, but the data set\'s targets are tokens'
        yield Finding(("partition", "order"), message, 'use "shuffled" or "given"')


def _horizon(job: Job) -> Iterator[Finding]:
    optimizer, stop = job.optimizer, job.stop
    if optimizer.needs_horizon and not (optimizer.horizon or stop.rounds or stop.item_iterations):
        key = "schedule" if optimizer.schedule != "constant" else "warmup"
        message = f"`{key}` needs an end to run towards, which [stop] does not imply"
        yield Finding(("optimizer", key), message, "add `horizon` to [optimizer], or `rounds` or `item_iterations` to [stop]")


def _moving_end(job: Job) -> Iterator[Finding]:
    """Where rounds change their length, their number says little about the end of the learning rate's schedule."""
    counted = job.optimizer.needs_horizon and not job.optimizer.horizon and job.stop.rounds
    if counted and not job.stop.item_iterations and job.sync.varies_round_length:
        message = "rounds change their length, so the learning rate will not have run its course after so many"
        yield Finding(("stop", "rounds"), message, "give `item_iterations`, or `horizon` in [optimizer]", severity="warning")


def _settings_without_effect(job: Job) -> Iterator[Finding]:
    if job.sync.warmup_rounds and job.sync.lr_scale == "none":
        message = "`warmup_rounds` has no effect without `lr_scale`"
        yield Finding(("sync", "warmup_rounds"), message, 'add lr_scale = "linear" or "sqrt"', "key", "warning")


def _overlap(job: Job) -> Iterator[Finding]:
    if "overlap" in job.partition.model_fields_set and all(group.partition_size for group in job.workers):
        message = (
            "`overlap` has no say where all workers have a `partition_size`: what these come to beyond the items is the overlap"
        )
        yield Finding(("partition", "overlap"), message, "remove it, or a `partition_size`", "key", "warning")


# This machine


def _devices(job: Job) -> Iterator[Finding]:
    count = cuda_count()
    devices = ", ".join(["cpu", *(f"cuda:{index}" for index in range(count))])
    for index, group in enumerate(job.workers):
        kind, _, number = group.device.partition(":")
        if kind == "cuda" and int(number or 0) >= count:
            message = f"no device {group.device} on this machine (devices: {devices})"
            todo = "remove this [[workers]] table or run where there is one"
            yield Finding(("workers", index, "device"), f"{message}; {todo}")


def _exactness(job: Job) -> Iterator[Finding]:
    if not job.engine.exact and Machine.find() is None:
        message = "`exact = false` has no meaning on one machine: it is between machines that sums are sent"
        yield Finding(("engine", "exact"), message, "start the job on several by torchrun, or remove it", "key", "warning")


def _precision(job: Job) -> Iterator[Finding]:
    cpu = any(group.device == "cpu" for group in job.workers)
    if job.engine.precision == "bfloat16" and cpu and not cpu_has_bfloat16():
        message = "this machine's CPU has no bfloat16: CPU workers emulate it, and are slower than in float32"
        yield Finding(("engine", "precision"), message, severity="warning")


def _cores(job: Job) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0))
    groups = [(index, group) for index, group in enumerate(job.workers) if group.device == "cpu"]
    threads = sum(group.count * group.threads for _, group in groups)
    if job.transport.kind != "simulated" and threads > cores:
        index, group = max(groups, key=lambda pair: pair[1].count * pair[1].threads)
        key = "threads" if group.threads > 1 else "count"
        message = f"{threads:,} threads of CPU workers for {cores} core{'s'[: cores > 1]}: they will wait for one another"
        yield Finding(("workers", index, key), message, severity="warning")


# Who has which items


def _shares(job: Job, items: int) -> Iterator[Finding]:
    """Problems of sharing a data set of so many items, held-out ones included."""
    training = items - job.dataset.validation
    if training <= 0:
        message = f"`validation` holds out {job.dataset.validation:,} of {items:,} items: none are left to train on"
        yield Finding(("dataset", "validation"), message)
        return
    ends = list(accumulate(group.count for group in job.workers))
    if ends[-1] > min(training, MAX_WORKERS):
        if ends[-1] > training:
            yield Finding(("workers", 0, "count"), f"{ends[-1]:,} workers are more than the {training:,} training items")
        return
    sizes = [group.partition_size for group in job.workers for _ in range(group.count)]
    too_large = [index for index, group in enumerate(job.workers) if (group.partition_size or 0) > training]
    for index in too_large:
        message = f"`partition_size` {job.workers[index].partition_size:,} exceeds the {training:,} training items"
        yield Finding(("workers", index, "partition_size"), message)
    if too_large:
        return
    sized = [index for index, group in enumerate(job.workers) if group.partition_size]
    place = ("workers", sized[0], "partition_size") if sized else ("partition",)
    try:
        cut = windows(training, sizes, job.partition.overlap)
    except ValueError as error:
        yield Finding(place, str(error))
        return
    if missed := sum(map(len, uncovered(training, cut))) * (job.partition.uncovered == "error"):
        message = f"no worker has {missed:,} of the {training:,} training items"
        yield Finding(place, message, 'raise or remove `partition_size`, or set uncovered = "allow" in [partition]')
    yield from job.sync.check_partitions(Partitions([len(window) for window in cut], training, place))
    yield from _smallest_share(job, min(map(len, cut)))


def _smallest_share(job: Job, smallest: int) -> Iterator[Finding]:
    batch = smallest if job.sync.full_batch else job.optimizer.batch(smallest)
    if batch > smallest:
        message = f"`batch_size` {batch:,} is more than the {smallest:,} items of the smallest partition"
        yield Finding(("optimizer", "batch_size"), message, f"at most {smallest:,}, or fewer workers, or more overlap")
    elif smallest < FEW_ITEMS:
        message = f"only {smallest} items in the smallest partition"
        yield Finding(("workers", 0), message, "a worker learns little from so few", severity="warning")
