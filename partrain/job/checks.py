"""Checks across tables: contradictions in a job, and limits of this machine and of the data files.

Each check is a generator of findings. Its parameters name the tables it reads; it runs if all of these are valid, so one wrong
value hides no contradiction between other tables. All checks run, so that the user sees all problems at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cache
from importlib.util import find_spec
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partrain.comm.machine import Machine
from partrain.config.problems import FileFinding, Finding, KeyPath, did_you_mean
from partrain.data import DatasetSpec, read_spec
from partrain.data.augment import ImageChanges
from partrain.data.base import StreamForm, WrongContent, WrongSetting
from partrain.data.fetch import missing_urls
from partrain.data.folds import Fold
from partrain.data.partition import uncovered, windows
from partrain.errors import BadJob, InputMissing
from partrain.job.schema import Job, is_rateless, kind_of_task
from partrain.job.stream_checks import STREAM_CHECKS
from partrain.job.sweep import SweepSection
from partrain.job.task_checks import judged_names, loss_keys, metric_names, target_numbers
from partrain.job.workers import WorkerGroup, cuda_count
from partrain.models import Interface
from partrain.number_format import plural
from partrain.optim import SINGLE_ITEMS
from partrain.protocols.rule_traits import JobContext, Partitions
from partrain.system.cores import usable_cores
from partrain.tasks.kinds import USER, kinds_for
from partrain.training.faults import Faults
from partrain.training.section import cpu_has_bfloat16

if TYPE_CHECKING:
    from partrain.comm.section import TransportSection
    from partrain.data import AnyDataset
    from partrain.data.partition import Partition
    from partrain.models import AnyModel
    from partrain.optim import AnyOptimizer
    from partrain.rules import AnyRule
    from partrain.tasks import AnyTask
    from partrain.training.hooks import HookSection
    from partrain.training.section import Engine
    from partrain.training.stop import Stop

MAX_WORKERS = 1024
FEW_ITEMS = 100
"""Partitions below this are too small for a replica to learn much alone."""

Caps = tuple[int | None, int | None]
"""`iterations` and `passes`."""
Tables = Mapping[str, Any]
"""The valid tables of a job by name. `given` holds the names of all tables in the file."""


def check_job(tables: Tables) -> Iterator[Finding]:
    """Check tables against each other, for any machine."""
    checks = (
        _round_length,
        _equal_rounds,
        _round_seconds,
        _rule,
        _optimizer_given,
        _shared_params,
        _rounds_of_settings,
        _weights,
        _optimizer,
        _lr_scale,
        _lbfgs,
        _transport,
        _nonfinite,
        _update_norm,
        _settings_without_effect,
        _average,
        _overlap,
        _limit,
        _judged_conditions,
        _hooks,
        _horizon,
        _unplanned_rounds,
        _worker_count,
        _swept_keys,
    )
    return _run(checks, tables)


def check_machine(tables: Tables, folder: Path) -> Iterator[Finding]:
    """Check tables against this machine; relative data paths start from `folder`."""
    yield from _run((_devices, _cores, _exactness, _precision, _augment), tables)
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

    given = [key for key in ("weights", "pretrained", "from") if key in model.model_fields_set]
    place = ("model", *given[:1])
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


def check_data(tables: Tables, spec: DatasetSpec) -> Iterator[Finding]:
    """Check tables against the data set."""
    of_targets = _remarks, _task, _accuracy, loss_keys, target_numbers, metric_names, judged_names
    of_items = _augmented_items, _stratify, _sampling, _order, _k_folds, _partitions, _rule_partitions, _batch_size, _batch_norm
    checks = of_targets if spec.stream else (*of_targets, *of_items)
    yield from _run(checks, {**tables, "spec": spec})
    yield from check_stream(tables, spec.stream) if spec.stream else ()


def check_stream(tables: Tables, stream: StreamForm) -> Iterator[Finding]:
    """Check tables against a data set whose training items are a stream."""
    return _run(STREAM_CHECKS, {**tables, "stream": stream})


def _run(checks: Sequence[Callable[..., Iterator[Finding]]], tables: Tables) -> Iterator[Finding]:
    """Run the checks whose tables are all valid."""
    for check in checks:
        parameters = _parameters(check)
        if all(parameter.name in tables for parameter in parameters if parameter.default is parameter.empty):
            yield from check(**{parameter.name: tables[parameter.name] for parameter in parameters if parameter.name in tables})


@cache
def _parameters(check: Callable[..., Iterator[Finding]]) -> Sequence[Parameter]:
    return list(signature(check).parameters.values())


# The length of a round


def _caps(sync: AnyRule, group: WorkerGroup) -> Caps:
    """Return a group's caps: its own, else those of `[sync]`."""
    own = group.iterations, group.passes
    return own if any(own) else (sync.iterations, sync.passes)


def _round_length(sync: AnyRule, workers: list[WorkerGroup]) -> Iterator[Finding]:
    both = {"iterations", "passes"}
    if both <= sync.model_fields_set:
        yield Finding(("sync", "passes"), "[sync] has both `iterations` and `passes`", "keep one", at="key")
    for index, group in enumerate(workers):
        if both <= group.model_fields_set:
            yield Finding(("workers", index, "passes"), "[[workers]] has both `iterations` and `passes`", "keep one", at="key")
    lacking = [index for index, group in enumerate(workers) if not any(_caps(sync, group))]
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
    caps = [_caps(sync, group) for group in workers]
    for place in dict.fromkeys(place for place, (_, passes) in zip(places, caps, strict=True) if passes):
        message = f'rule "{sync.rule}" synchronizes after each iteration: it cannot count a round in passes'
        yield Finding((*place, "passes"), message, "use `iterations`", at="key")
    counts = [iterations for iterations, _ in caps]
    for place, count in zip(places, counts, strict=True):
        if count and counts[0] and count != counts[0]:
            message = f'rule "{sync.rule}" needs equal `iterations` for all workers, not {counts[0]} and {count}'
            yield Finding((*place, "iterations"), message)
            return


def _round_seconds(sync: AnyRule, workers: list[WorkerGroup], faults: Faults) -> Iterator[Finding]:
    """Refuse `round_seconds` where a round has no iterations that a cap could lower."""
    if faults.round_seconds is None:
        return
    caps = [_caps(sync, group) for group in workers]
    message, advice = f'under rule "{sync.rule}" `round_seconds` cannot cap a round: {sync.uncapped_reason}', "remove it"
    if not sync.uncapped_reason:
        if any(passes for _, passes in caps):
            message, advice = "`round_seconds` caps iterations, and a round is counted in `passes`", "use `iterations`"
        elif any(iterations != 1 for iterations, _ in caps):
            return
        else:
            message, advice = "`round_seconds` caps iterations, and a round has only one", "raise `iterations`, or remove it"
    yield Finding(("faults", "round_seconds"), message, advice, at="key")


# The rule and its workers


def _worker_count(workers: list[WorkerGroup]) -> Iterator[Finding]:
    if (count := _count(workers)) > MAX_WORKERS:
        yield Finding(("workers", 0), f"{count:,} workers are more than {MAX_WORKERS:,}")


def _count(workers: list[WorkerGroup]) -> int:
    return sum(group.count for group in workers)


def _rule(
    sync: AnyRule, workers: list[WorkerGroup], optimizer: AnyOptimizer | None = None, faults: Faults | None = None
) -> Iterator[Finding]:
    """Let the rule check its settings."""
    capped = faults is not None and faults.round_seconds is not None
    yield from sync.check(JobContext(_count(workers), optimizer, workers, capped))


def _optimizer_given(sync: AnyRule, given: Set[str]) -> Iterator[Finding]:
    if sync.full_batch and "optimizer" in given:
        message = f'rule "{sync.rule}" takes its own steps on full batches: [optimizer] has no effect'
        yield Finding(("optimizer",), message, "remove it", severity="warning")
    elif not sync.full_batch and "optimizer" not in given:
        yield Finding(("optimizer",), "the job has no [optimizer] table", 'add one, for example name = "sgd" and lr = 0.1')


def _shared_params(sync: AnyRule, workers: list[WorkerGroup]) -> Iterator[Finding]:
    cuda = [index for index, group in enumerate(workers) if group.device != "cpu"]
    if sync.shares_params and cuda:
        message = f'under rule "{sync.rule}" all workers train the same numbers in memory: CPU workers only'
        yield Finding(("workers", cuda[0], "device"), message)


def _rounds_of_settings(sync: AnyRule, stop: Stop) -> Iterator[Finding]:
    for key in sync.counted_in_rounds:
        number, rounds = getattr(sync, key), stop.rounds
        if key in sync.model_fields_set and number and rounds and number > rounds:
            message = f"`{key}` = {number} rounds, but the run ends after {rounds}"
            yield Finding(("sync", key), message, "lower it, or raise `rounds`", "key", "warning")


def _weights(sync: AnyRule) -> Iterator[Finding]:
    if "weights" in sync.model_fields_set and not sync.uses_weights:
        message = f'rule "{sync.rule}" does not mix parameters by `weights`: they apply to moments and buffers only'
        yield Finding(("sync", "weights"), message, at="key", severity="warning")


def _optimizer(optimizer: AnyOptimizer) -> Iterator[Finding]:
    """Let the optimizer check its settings."""
    yield from optimizer.check()


def _lr_scale(sync: AnyRule, optimizer: AnyOptimizer) -> Iterator[Finding]:
    if is_rateless(sync, optimizer) and sync.lr_scale != "none":
        name = sync.rule if sync.full_batch else optimizer.name
        message = f'`lr_scale` has no effect on the steps of "{name}", which have sizes of their own'
        yield Finding(("sync", "lr_scale"), message, "remove it", at="key")


def _lbfgs(sync: AnyRule, optimizer: AnyOptimizer, workers: list[WorkerGroup]) -> Iterator[Finding]:
    apart = _count(workers) > 1 and not sync.averages_gradients
    if optimizer.name == "lbfgs" and sync.optimizer_state == "average" and apart:
        message = 'averaged gradients of different partitions tell "lbfgs" little of any one of them'
        yield Finding(("optimizer", "name"), message, 'set optimizer_state = "local" in [sync]', severity="warning")


def _transport(transport: TransportSection, workers: list[WorkerGroup], faults: Faults) -> Iterator[Finding]:
    """Let the transport check its settings."""
    if faults.on_loss == "drop" and transport.implementation().one_process:
        message = "simulated workers live in one process: none is lost alone"
        yield Finding(("faults", "on_loss"), message, 'use "replay" or "stop"')
    yield from transport.check(_count(workers))


def _nonfinite(sync: AnyRule, workers: list[WorkerGroup], faults: Faults) -> Iterator[Finding]:
    """Refuse to exclude workers where the rule says that none can be."""
    if faults.on_nonfinite != "exclude":
        return
    place = ("faults", "on_nonfinite")
    if sync.no_exclusion_reason:
        message = f'"exclude" has no meaning under rule = "{sync.rule}": {sync.no_exclusion_reason}'
        yield Finding(place, message, 'use "stop"')
    elif _count(workers) == 1:
        yield Finding(place, 'one worker has no others to go on with: the run ends as with "stop"', severity="warning")


def _update_norm(sync: AnyRule, faults: Faults) -> Iterator[Finding]:
    if faults.max_update_norm is None:
        return
    reason = "workers mix gradients" if sync.averages_gradients or sync.full_batch else ""
    reason = reason or "all workers change one vector" * sync.shares_params
    if reason:
        message = f'under rule = "{sync.rule}" {reason}: no worker has an update of its own to bound'
        yield Finding(("faults", "max_update_norm"), message, "`clip_norm` in [optimizer] bounds gradients", at="key")


# The end of a run


def _limit(stop: Stop) -> Iterator[Finding]:
    if not any(condition.kind == "limit" for condition in stop.conditions()):
        message = "a target alone may never be reached" if stop.has_target else "[stop] has no limit"
        yield Finding(("stop",), message, "add `rounds`, `item_iterations`, `seconds` or `patience`")


def _judged_conditions(stop: Stop, dataset: AnyDataset) -> Iterator[Finding]:
    conditions = [condition.name for condition in stop.conditions() if condition.judged]
    if conditions and not dataset.held_out:
        message = f"`{conditions[0]}` judges the mixed network on held-out items, but `validation` is 0"
        yield Finding(("stop", conditions[0]), message, "hold items out: `validation` in [dataset]", at="key")


def _hooks(hooks: HookSection, dataset: AnyDataset) -> Iterator[Finding]:
    if hooks.after_judgement and not dataset.held_out:
        message = "`after_judgement` is never called: the network is judged on held-out items, but `validation` is 0"
        yield Finding(("hooks", "after_judgement"), message, "hold items out: `validation` in [dataset]", at="key")


def _horizon(optimizer: AnyOptimizer, stop: Stop) -> Iterator[Finding]:
    implied = any(condition.horizon(int) for condition in stop.conditions())
    if optimizer.needs_horizon and not optimizer.horizon and not implied:
        key = "schedule" if optimizer.schedule != "constant" else "warmup"
        message = f"`{key}` needs the length of the run, which [stop] does not imply"
        yield Finding(("optimizer", key), message, "add `horizon` to [optimizer], or `rounds` or `item_iterations` to [stop]")


def _average(sync: AnyRule, stop: Stop) -> Iterator[Finding]:
    """Refuse averages of the network over rounds where they cannot be kept or judged."""
    key = "swa" if sync.swa is not None else "ema"
    if not sync.averages_networks:
        return
    if sync.ema is not None and sync.swa is not None:
        yield Finding(("sync", "swa"), "[sync] has both `ema` and `swa`", "keep one", at="key")
    if sync.shares_params:
        message = f'under rule "{sync.rule}" all workers train one vector in place, which cannot be exchanged for an average'
        yield Finding(("sync", key), message, f"use another rule, or leave `{key}` out", at="key")
    if sync.buffers == "local":
        message = f'with buffers = "local" there are no common buffers that `{key}` could average'
        yield Finding(("sync", key), message, 'set buffers = "average" or "recalibrate"', at="key")
    if sync.swa and not any(condition.horizon(int) for condition in stop.conditions()):
        message = "`swa` needs the length of the run, which [stop] does not imply"
        yield Finding(("sync", "swa"), message, "add `rounds` or `item_iterations` to [stop]", at="key")


def _unplanned_rounds(optimizer: AnyOptimizer, stop: Stop, sync: AnyRule, faults: Faults) -> Iterator[Finding]:
    """Refuse a share of the run where the run is counted in rounds whose item-iterations are not known before."""
    if stop.item_iterations or not stop.rounds or (sync.planned_iterations(1) and not faults.round_seconds):
        return
    message = "rounds vary in length as the run goes, so their number does not give {} its share of the run"
    if optimizer.needs_horizon and not optimizer.horizon:
        key = "schedule" if optimizer.schedule != "constant" else "warmup"
        yield Finding(("stop", "rounds"), message.format(f"`{key}`"), "give `item_iterations`, or `horizon` in [optimizer]")
    if sync.swa:
        yield Finding(("stop", "rounds"), message.format("`swa`"), "give `item_iterations`")


def _settings_without_effect(sync: AnyRule) -> Iterator[Finding]:
    if sync.warmup_rounds and sync.lr_scale == "none":
        message = "`warmup_rounds` has no effect without `lr_scale`"
        yield Finding(("sync", "warmup_rounds"), message, 'add lr_scale = "linear" or "sqrt"', "key", "warning")


def _overlap(partition: Partition, workers: list[WorkerGroup]) -> Iterator[Finding]:
    if "overlap" in partition.model_fields_set and all(group.partition_size for group in workers):
        message = "`overlap` is ignored: every worker has a `partition_size`, and these sizes determine the overlap"
        yield Finding(("partition", "overlap"), message, "remove it, or a `partition_size`", "key", "warning")


# This machine


def _devices(workers: list[WorkerGroup]) -> Iterator[Finding]:
    count = cuda_count()
    devices = ", ".join(["cpu", *(f"cuda:{index}" for index in range(count))])
    for index, group in enumerate(workers):
        kind, _, number = group.device.partition(":")
        if kind == "cuda" and int(number or 0) >= count:
            message = f"no device {group.device} on this machine (devices: {devices})"
            todo = "remove this [[workers]] table or run the job on a machine that has it"
            yield Finding(("workers", index, "device"), f"{message}; {todo}")


def _exactness(engine: Engine) -> Iterator[Finding]:
    if not engine.exact and ((machine := Machine.find()) is None or machine.alone):
        message = "`exact = false` has no effect on one machine: it concerns sums between machines"
        yield Finding(("engine", "exact"), message, "start the job on several by torchrun, or remove it", "key", "warning")


def _precision(engine: Engine, workers: list[WorkerGroup]) -> Iterator[Finding]:
    cpu = any(group.device == "cpu" for group in workers)
    if engine.precision == "bfloat16" and cpu and not cpu_has_bfloat16():
        message = "this machine's CPU has no bfloat16: CPU workers emulate it, and are slower than in float32"
        yield Finding(("engine", "precision"), message, severity="warning")


def _cores(transport: TransportSection, workers: list[WorkerGroup]) -> Iterator[Finding]:
    cores = usable_cores()
    groups = [(index, group) for index, group in enumerate(workers) if group.device == "cpu"]
    threads = sum(group.count * group.threads for _, group in groups)
    if not transport.implementation().one_process and threads > cores:
        index, group = max(groups, key=lambda pair: pair[1].count * pair[1].threads)
        key = "threads" if group.threads > 1 else "count"
        message = f"{threads:,} threads of CPU workers for {cores} {plural('core', cores)}: they will wait for one another"
        yield Finding(("workers", index, key), message, severity="warning")


# The data set


def _remarks(spec: DatasetSpec) -> Iterator[Finding]:
    for remark in spec.remarks:
        yield Finding(("dataset", remark.key), remark.message, remark.advice, severity="warning")


def _augment(dataset: AnyDataset) -> Iterator[Finding]:
    if isinstance(dataset, ImageChanges) and dataset.augment and find_spec("torchvision") is None:
        message = "`augment` needs torchvision, which is not installed"
        yield Finding(("dataset", "augment"), message, "pip install 'partrain[vision]'", at="key")


def _augmented_items(dataset: AnyDataset, sync: AnyRule, spec: DatasetSpec) -> Iterator[Finding]:
    if not isinstance(dataset, ImageChanges) or not dataset.augment:
        return
    if len(spec.shape) != 3 or spec.tokens or spec.parts:
        message = f"`augment` is for images (channels, height, width), and items are {spec.shape}"
        yield Finding(("dataset", "augment"), message, "remove it", at="key")
    if sync.full_batch:
        message = f'`augment` changes batches, and rule "{sync.rule}" takes the gradient of a whole partition'
        yield Finding(("dataset", "augment"), message, "remove it, or choose a rule that trains on batches", at="key")


def _task(model: AnyModel, task: AnyTask | None, spec: DatasetSpec) -> Iterator[Finding]:
    kind = kind_of_task(task, model, spec.task)
    if kind is not USER and spec.task not in kind.fits:
        place = ("task", "kind") if task and kind.name == getattr(task, "kind", "") else ("model", "name")
        message = f"the data set's items are made for {spec.task}, not for {kind}"
        yield Finding(place, message, f"fitting: {', '.join(kinds_for(spec.task))}")
    else:
        vocabulary = spec.outputs or 1 if spec.tokens else None
        interface = Interface(spec.shape, spec.outputs or 1, kind.name, vocabulary, spec.categories, spec.parts)
        if obstacle := model.mismatch(interface):
            yield Finding(("model", "name"), obstacle)


def _accuracy(model: AnyModel, task: AnyTask | None, stop: Stop, spec: DatasetSpec) -> Iterator[Finding]:
    kind = kind_of_task(task, model, spec.task)
    if not kind.accuracy and stop.accuracy is not None:
        yield Finding(("stop", "accuracy"), f"the task `{kind}` has no accuracy", "use `loss`", at="key")
    if not kind.accuracy and stop.patience_by == "accuracy":
        yield Finding(("stop", "patience_by"), f"the task `{kind}` has no accuracy", 'use "loss"')


def _stratify(dataset: AnyDataset, partition: Partition, spec: DatasetSpec) -> Iterator[Finding]:
    if dataset.stratify and not spec.kind.one_class:
        message = f"`stratify` goes by classes, but the data set's items are made for {spec.task}"
        yield Finding(("dataset", "stratify"), message, "remove it", at="key")
    elif dataset.stratify and partition.order == "given":
        block = "one block of them" if dataset.fold else "the last ones"
        message = f'`stratify` draws the held-out items, but order = "given" holds out {block}'
        yield Finding(("dataset", "stratify"), message, "keep one of the two", at="key")


def _sampling(
    partition: Partition, sync: AnyRule, model: AnyModel, spec: DatasetSpec, task: AnyTask | None = None
) -> Iterator[Finding]:
    if partition.sampling == "balanced" and not spec.kind.one_class:
        kind = kind_of_task(task, model, spec.task)
        kind = spec.kind if kind is USER else kind
        message = f'sampling = "balanced" goes by classes, one of each item, and the task is {kind}'
        yield Finding(("partition", "sampling"), message, "remove it", at="key")
    elif partition.sampling == "balanced" and sync.full_batch:
        message = f'`sampling` draws mini-batches, but rule "{sync.rule}" takes full batches'
        yield Finding(("partition", "sampling"), message, "remove it, or weigh the classes: class_weights in [task]", at="key")


def _order(partition: Partition, spec: DatasetSpec) -> Iterator[Finding]:
    if partition.needs_targets and not spec.kind.orders:
        message = f'order = "{partition.order}" goes by classes or numbers, but the data set\'s targets are {spec.kind.targets}'
        yield Finding(("partition", "order"), message, 'use "shuffled" or "given"')


def _swept_keys(sweep: SweepSection | None) -> Iterator[Finding]:
    for first in {key.partition(".")[0]: "" for key in (*sweep.values, *sweep.zip)} if sweep else ():
        if first not in Job.model_fields:
            near = did_you_mean(first, Job.model_fields)
            how = f"did you mean `{near}`?" if near else '[sweep] takes those directly: "optimizer.lr" = [0.1, 0.01]'
            yield Finding(("sweep", first), f"`{first}` is no table or key of a job", how, at="key")


def _k_folds(sweep: SweepSection | None, spec: DatasetSpec) -> Iterator[Finding]:
    if sweep and sweep.k_folds and sweep.k_folds > spec.items:
        yield Finding(("sweep", "k_folds"), f"{sweep.k_folds:,} folds are more than the {spec.items:,} items")


# Partitions


def _partitions(dataset: AnyDataset, partition: Partition, workers: list[WorkerGroup], spec: DatasetSpec) -> Iterator[Finding]:
    """Check the partitions that the workers get: errors that keep them from being cut, and items without a worker."""
    training = spec.items - dataset.held_out_count(spec.items)
    count = _count(workers)
    if isinstance(dataset.held_out, Fold) and dataset.held_out.folds > spec.items:
        yield Finding(("dataset", "fold"), f"{dataset.held_out.folds:,} folds are more than the {spec.items:,} items")
        return
    if training <= 0:
        message = f"`validation` holds out {dataset.validation:,} of {spec.items:,} items: none are left to train on"
        yield Finding(("dataset", "validation"), message)
        return
    if count > min(training, MAX_WORKERS):
        if count > training:
            yield Finding(("workers", 0, "count"), f"{count:,} workers are more than the {training:,} training items")
        return
    too_large = [index for index, group in enumerate(workers) if (group.partition_size or 0) > training]
    for index in too_large:
        message = f"`partition_size` {workers[index].partition_size:,} exceeds the {training:,} training items"
        yield Finding(("workers", index, "partition_size"), message)
    if too_large:
        return
    place = _place_of_sizes(workers)
    try:
        cut = _windows(partition, workers, training)
    except ValueError as error:
        yield Finding(place, str(error))
        return
    if missed := sum(map(len, uncovered(training, cut))) * (partition.uncovered == "error"):
        message = f"no worker has {missed:,} of the {training:,} training items"
        yield Finding(place, message, 'raise or remove `partition_size`, or set uncovered = "allow" in [partition]')


def _place_of_sizes(workers: list[WorkerGroup]) -> KeyPath:
    """Return the key that decides how the items are cut."""
    return next(
        (("workers", index, "partition_size") for index, group in enumerate(workers) if group.partition_size), ("partition",)
    )


def _windows(partition: Partition, workers: list[WorkerGroup], training: int) -> list[range]:
    """Cut the training items into one window for each worker. Raises ValueError if that is impossible."""
    sizes = [group.partition_size for group in workers for _ in range(group.count)]
    return list(windows(training, sizes, partition.overlap))


def _partition_sizes(dataset: AnyDataset, partition: Partition, workers: list[WorkerGroup], spec: DatasetSpec) -> list[int]:
    """Return the items of each worker's partition; none if `_partitions` finds an error."""
    training = spec.items - dataset.held_out_count(spec.items)
    if (
        training < _count(workers)
        or _count(workers) > MAX_WORKERS
        or any((group.partition_size or 0) > training for group in workers)
    ):
        return []
    try:
        return [len(window) for window in _windows(partition, workers, training)]
    except ValueError:
        return []


def _rule_partitions(
    sync: AnyRule, dataset: AnyDataset, partition: Partition, workers: list[WorkerGroup], spec: DatasetSpec
) -> Iterator[Finding]:
    """Let the rule check the sizes of the partitions."""
    if sizes := _partition_sizes(dataset, partition, workers, spec):
        yield from sync.check_partitions(
            Partitions(sizes, spec.items - dataset.held_out_count(spec.items), _place_of_sizes(workers))
        )


def _batch_size(
    sync: AnyRule,
    optimizer: AnyOptimizer,
    dataset: AnyDataset,
    partition: Partition,
    workers: list[WorkerGroup],
    spec: DatasetSpec,
) -> Iterator[Finding]:
    """Compare the smallest partition with the batch size, and with what a replica needs to learn."""
    smallest = min(_partition_sizes(dataset, partition, workers, spec), default=0)
    batch = smallest if sync.full_batch else optimizer.batch(smallest)
    if not smallest:
        return
    if batch > smallest:
        message = f"`batch_size` {batch:,} is more than the {smallest:,} items of the smallest partition"
        yield Finding(("optimizer", "batch_size"), message, f"at most {smallest:,}, or fewer workers, or more overlap")
    elif smallest < FEW_ITEMS:
        message = f"only {smallest} items in the smallest partition"
        yield Finding(("workers", 0), message, "too few for a replica to learn much", severity="warning")


def _batch_norm(
    sync: AnyRule,
    optimizer: AnyOptimizer,
    model: AnyModel,
    dataset: AnyDataset,
    partition: Partition,
    workers: list[WorkerGroup],
    spec: DatasetSpec,
) -> Iterator[Finding]:
    """Refuse batches, or parts of them, of fewer items than the network can train on."""
    if sync.full_batch or model.freeze or model.least_batch(spec.shape) < 2:
        return
    passes = [bool(_caps(sync, group)[1]) for group in workers for _ in range(group.count)]
    for size, whole in zip(_partition_sizes(dataset, partition, workers, spec), passes, strict=False):
        last = optimizer.last_batch(size, whole_passes=whole)
        if last // min(optimizer.accumulate, last) > 1:
            continue
        key = "accumulate" if last > 1 else "batch_size"
        what = f"the last batch of a pass over {size:,} items" if last < optimizer.batch(size) else "a batch"
        has = f"{last} items in {optimizer.accumulate} parts" if last > 1 else "one item"
        message = f"{what} has {has}, and BatchNorm needs at least two items at a time"
        yield Finding(("optimizer", key), message, SINGLE_ITEMS)
        return
