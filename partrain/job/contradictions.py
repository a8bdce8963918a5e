"""Contradictions between keys of a job, one per row: the place, the condition, and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from partrain.comm.machine import Machine
from partrain.config.problems import Finding, Severity
from partrain.data.augment import ImageChanges
from partrain.data.tables.sections import Tabular
from partrain.job.schema import is_rateless, kind_of_task
from partrain.job.workers import has_replicas
from partrain.tasks import BuiltinTask
from partrain.tasks.kinds import USER
from partrain.training.section import cpu_has_bfloat16

if TYPE_CHECKING:
    from partrain.comm.section import TransportSection
    from partrain.data import DatasetSpec
    from partrain.job.workers import WorkerGroup
    from partrain.models import AnyModel
    from partrain.optim import AnyOptimizer
    from partrain.rules import AnyRule
    from partrain.tasks import AnyTask
    from partrain.tasks.kinds import TaskKind
    from partrain.training.faults import Faults
    from partrain.training.stop import Stop

MAX_WORKERS, MAX_SIMULATED = 1024, 16_384
OWN_STEPS = 'rule "{sync.rule}" takes its own steps on full batches: [optimizer] has no effect'


def most_workers(transport: TransportSection) -> int:
    """Return the maximum number of workers of a job."""
    return MAX_SIMULATED if transport.implementation().one_process else MAX_WORKERS


Check = Callable[..., Iterator[Finding]]
"""Finds errors in the tables that its parameters name."""


def row(
    key: str,
    holds: Callable[..., Any],
    message: str,
    advice: str = "",
    at: Literal["key", "value"] = "key",
    severity: Severity = "error",
) -> Check:
    """Make the check that finds a contradiction at a dotted key if it `holds`.

    Braces in a text are replaced by values of the tables, `{0}` by the result of `holds`.
    """

    @wraps(holds)  # the parameters name the tables
    def check(**tables: Any) -> Iterator[Finding]:
        if value := holds(**tables):
            *path, what, todo = (text.format(value, **tables) for text in (*key.split("."), message, advice))
            yield Finding(tuple(int(part) if part.isdigit() else part for part in path), what, todo, at, severity)

    return check


def count_of(workers: Sequence[WorkerGroup]) -> int:
    """Count the workers of all groups."""
    return sum(group.size for group in workers)


def caps_of(sync: AnyRule, workers: Sequence[WorkerGroup]) -> list[tuple[int | None, int | None]]:
    """Return `iterations` and `passes` of each group: its own, else those of `[sync]`."""
    return [group.caps(sync.iterations, sync.passes) for group in workers]


def _has_length(stop: Stop) -> bool:
    return any(condition.horizon(int) for condition in stop.conditions())


def _has_rounds_of_unknown_length(stop: Stop, sync: AnyRule, faults: Faults) -> bool:
    """Return whether the run is counted in rounds whose item-iterations are not known in advance, not even approximately."""
    return bool(not stop.item_iterations and stop.rounds and (not sync.planned_iterations(1) or faults.round_seconds))


def unbalanced_reason(sync: AnyRule, workers: Sequence[WorkerGroup]) -> str:
    """Return why `balance` cannot give the workers more or fewer iterations; "" if it can."""
    if not sync.synchronous:
        return f'under rule "{sync.rule}" no worker waits for another'
    if sync.uncapped_reason:
        return f'under rule "{sync.rule}" it cannot set iterations: {sync.uncapped_reason}'
    return (
        "a round has only one iteration of each worker: raise `iterations`" if set(caps_of(sync, workers)) == {(1, None)} else ""
    )


def _averaging(sync: AnyRule) -> str:
    """Return the key that averages networks over rounds; "" if none is given."""
    return "swa" if sync.swa is not None else "ema" * (sync.ema is not None)


def _without_accuracy(model: AnyModel, task: AnyTask | None, spec: DatasetSpec) -> TaskKind | None:
    """Return the kind of task if it does not count right answers."""
    kind = kind_of_task(task, model, spec.task)
    return None if kind.accuracy else kind


def _decaying(optimizer: AnyOptimizer) -> str:
    """Return the key that needs the length of the run; "" if there is none, or if `horizon` gives it."""
    return (
        "" if optimizer.horizon or not optimizer.needs_horizon else "schedule" if optimizer.schedule != "constant" else "warmup"
    )


NO_COMMON_NETWORK = 'under rule "{sync.rule}" replicas differ, and a worker that sits rounds out needs the common network'


def _differ(sync: AnyRule) -> bool:
    return not (sync.synchronous and sync.keeps_replicas_equal)


def _absent(transport: TransportSection) -> bool:
    """Return whether workers sit rounds out because they cannot be reached."""
    return not transport.always_reached


def _too_many_clients(sync: AnyRule, workers: Sequence[WorkerGroup]) -> str:
    many = sync.clients or 0
    return f"{many:,.0f} of {count_of(workers):,}" if many > count_of(workers) else ""


def _kept(sync: AnyRule) -> str:
    """Name the thing that a worker has of its own from one round to the next; "" if there is none."""
    return "its replica" if _differ(sync) else "its own state" * sync.keeps_worker_state


OF_SECTIONS: tuple[Check, ...] = (
    lambda optimizer: optimizer.check(),
    lambda transport, workers, partition: transport.check(count_of(workers), partition.clients),
)
"""Checks that a table defines itself."""

OF_JOB = (
    row("sync.passes", lambda sync: {"iterations", "passes"} <= sync.model_fields_set,
        "[sync] has both `iterations` and `passes`", "keep one"),
    row("sync.clients", _too_many_clients, "`clients` draws {0} workers", "lower it, or add workers", "value"),
    row("sync.client_sampling", lambda sync, partition: sync.clients is None and partition.clients is None
        and "client_sampling" in sync.model_fields_set,
        "`client_sampling` has no effect: all workers train", "add `clients`"),
    row("sync.client_sampling", lambda sync, partition: (sync.clients is not None or partition.clients is not None)
        and sync.client_sampling == "items" and sync.weights == "items",
        "items count twice: for the chance of a client and for its weight", 'use weights = "equal"', "value", "warning"),
    row("sync.clients", lambda sync: sync.clients is not None and _differ(sync), NO_COMMON_NETWORK, "use `average`"),
    row("partition.clients", lambda partition, workers: partition.clients and partition.clients < count_of(workers) and count_of(workers),
        "{partition.clients:,} clients are fewer than the {0:,} workers that take one each", "raise it, or take fewer workers", "value"),
    row("partition.clients", lambda partition, sync: partition.clients and _kept(sync),
        'under rule "{sync.rule}" a worker keeps {0}, and with `clients` it takes another client in each round',
        "remove it, and give each client a worker: `count` in [[workers]], and `clients` in [sync]"),
    row("partition.clients", lambda partition, sync: partition.clients and sync.full_batch,
        'rule "{sync.rule}" compares the gradients of successive rounds, and with `clients` these have other items', "use `average`"),
    row("partition.clients", lambda partition, sync, optimizer: partition.clients and not _kept(sync) and sync.optimizer_state == "local"
        and optimizer.moments,
        'with optimizer_state = "local" a worker keeps its moments, and with `clients` it takes another client in each round',
        'use optimizer_state = "reset" or "average"'),
    row("partition.clients", lambda partition, sync, faults: partition.clients and (
        "`clients` in [sync]" if sync.clients is not None else "`ramp_workers`" if sync.ramp_workers
        else "`round_seconds` in [faults]" if faults.round_seconds is not None else ""),
        "{0} is for workers that keep their items, and with `clients` a worker takes other items in each round", "keep one"),
    row("partition.clients", lambda partition, sync: partition.clients and not _kept(sync) and sync.buffers != "average" and sync.buffers,
        'buffers = "{0}" goes by the items that a worker keeps, and with `clients` it takes other items in each round',
        'use buffers = "average"'),
    row("transport.availability", lambda sync, transport: _absent(transport) and _differ(sync), NO_COMMON_NETWORK,
        "use `average`"),
    row("sync.ramp_workers", lambda sync, transport: sync.ramp_workers
        and ("clients" if sync.clients is not None else "[transport] availability" if _absent(transport) else ""),
        "`ramp_workers` and `{0}` both choose the workers of a round", "keep one"),
    row("faults.round_seconds", lambda sync, faults: faults.round_seconds is not None and sync.uncapped_reason,
        'under rule "{sync.rule}" `round_seconds` cannot cap a round: {0}', "remove it"),
    row("faults.round_seconds", lambda sync, workers, faults: faults.round_seconds is not None and not sync.uncapped_reason
        and any(passes for _, passes in caps_of(sync, workers)),
        "`round_seconds` caps iterations, and a round is counted in `passes`", "use `iterations`"),
    row("faults.round_seconds", lambda sync, workers, faults: faults.round_seconds is not None and not sync.uncapped_reason
        and set(caps_of(sync, workers)) == {(1, None)},
        "`round_seconds` caps iterations, and a round has only one", "raise `iterations`, or remove it"),
    row("partition.balance", lambda partition, sync, workers: partition.balance == "rate" and unbalanced_reason(sync, workers),
        '`balance = "rate"` has no effect: {0}', "remove it"),
    row("partition.balance", lambda partition, faults: partition.balance == "rate" and faults.round_seconds is not None,
        "`balance` and [faults] `round_seconds` both set the iterations of a round", "keep one"),
    row("partition.balance", lambda partition, workers: partition.balance == "rate"
        and any(group.partition_size for group in workers),
        "`balance` sets the sizes of partitions, and [[workers]] has `partition_size`", "keep one"),
    row("optimizer", lambda sync, names, optimizer: sync.full_batch and "optimizer" in names,
        OWN_STEPS, "remove it", "value", "warning"),
    row("optimizer", lambda sync, names, optimizer=None: sync.full_batch and "optimizer" in names and not optimizer,
        OWN_STEPS, "remove it", "value"),  # what is wrong in it does not count: `validate` leaves it out
    row("optimizer", lambda sync, names: not sync.full_batch and "optimizer" not in names,
        "the job has no [optimizer] table", 'add one, for example name = "sgd" and lr = 0.1', "value"),
    row("workers.0", lambda transport, workers: count_of(workers)
        > most_workers(transport) and count_of(workers),
        f"{{0:,}} workers are more than {MAX_WORKERS:,}, or {MAX_SIMULATED:,} simulated ones", "", "value"),
    row("workers.{0}.device", lambda sync, workers: sync.shares_params
        and next((str(index) for index, group in enumerate(workers) if group.device != "cpu"), ""),
        'under rule "{sync.rule}" all workers train the same numbers in memory: CPU workers only', "", "value"),
    row("workers.{0}.batch_size", lambda sync, optimizer, workers: (sync.full_batch or optimizer.full_batch)
        and next((str(index) for index, group in enumerate(workers) if group.batch_size), ""),
        "`batch_size` has no effect on full batches", "remove it"),
    row("sync.weights", lambda sync: "weights" in sync.model_fields_set and not sync.uses_weights,
        'rule "{sync.rule}" does not mix parameters by `weights`: they apply to moments and buffers only', severity="warning"),
    row("sync.lr_scale", lambda sync, optimizer: sync.lr_scale != "none" and is_rateless(sync, optimizer)
        and (sync.rule if sync.full_batch else optimizer.name),
        '`lr_scale` has no effect on the steps of "{0}", which do not depend on a learning rate', "remove it"),
    row("sync.warmup_rounds", lambda sync: sync.warmup_rounds and sync.lr_scale == "none",
        "`warmup_rounds` has no effect without `lr_scale`", 'add lr_scale = "linear" or "sqrt"', severity="warning"),
    row("optimizer.name", lambda sync, optimizer, workers: optimizer.name == "lbfgs" and sync.optimizer_state == "average"
        and count_of(workers) > 1 and not sync.averages_gradients,
        'averaged gradients of different partitions tell "lbfgs" little of any one of them',
        'set optimizer_state = "local" in [sync]', "value", "warning"),
    row("faults.on_loss", lambda transport, faults: faults.on_loss == "drop" and transport.implementation().one_process,
        "simulated workers live in one process: none is lost alone", 'use "replay" or "stop"', "value"),
    row("faults.on_loss", lambda workers, faults: faults.on_loss == "drop" and has_replicas(workers),
        "`replicas` of one process are lost together", 'use "replay" or "stop"', "value"),
    row("workers.{0}.replicas", lambda transport, workers: transport.implementation().one_process
        and next((str(index) for index, group in enumerate(workers) if group.replicas > 1), ""),
        "simulated workers live in one process anyway", "use `count`"),
    row("faults.on_nonfinite", lambda sync, faults: faults.on_nonfinite == "exclude" and sync.no_exclusion_reason,
        '"exclude" has no meaning under rule = "{sync.rule}": {0}', 'use "stop"', "value"),
    row("faults.on_nonfinite", lambda sync, workers, faults: faults.on_nonfinite == "exclude" and not sync.no_exclusion_reason
        and count_of(workers) == 1,
        'one worker has no others to go on with: the run ends as with "stop"', "", "value", "warning"),
    row("faults.max_update_norm", lambda sync, faults: faults.max_update_norm is not None and (
        "workers mix gradients" if sync.averages_gradients or sync.full_batch else "all workers change one vector" * sync.shares_params),
        'under rule = "{sync.rule}" {0}: no worker has its own update to bound',
        "`clip_norm` in [optimizer] bounds gradients"),
    row("stop", lambda stop: not any(condition.kind == "limit" for condition in stop.conditions())
        and ("a target alone may never be reached" if stop.has_target else "[stop] has no limit"),
        "{0}", "add `rounds`, `item_iterations`, `seconds` or `patience`", "value"),
    row("stop.{0}", lambda stop, dataset: not dataset.holds_out
        and next((condition.name for condition in stop.conditions() if condition.judged), ""),
        "`{0}` judges the mixed network on held-out items, but `validation` is 0", "hold items out: `validation` in [dataset]"),
    row("hooks.after_judgement", lambda hooks, dataset: hooks.after_judgement and not dataset.holds_out,
        "`after_judgement` is never called: the network is judged on held-out items, but `validation` is 0",
        "hold items out: `validation` in [dataset]"),
    row("optimizer.{0}", lambda optimizer, stop: not _has_length(stop) and _decaying(optimizer),
        "`{0}` needs the length of the run, which [stop] does not imply",
        "add `horizon` to [optimizer], or `rounds` or `item_iterations` to [stop]", "value"),
    row("sync.swa", lambda sync: sync.ema is not None and sync.swa is not None, "[sync] has both `ema` and `swa`", "keep one"),
    row("sync.{0}", lambda sync: sync.shares_params and _averaging(sync),
        'under rule "{sync.rule}" all workers train one vector in place, which cannot be exchanged for an average',
        "use another rule, or leave `{0}` out"),
    row("sync.{0}", lambda sync: sync.buffers == "local" and _averaging(sync),
        'with buffers = "local" there are no common buffers that `{0}` could average',
        'set buffers = "average" or "recalibrate"'),
    row("sync.swa", lambda sync, stop: sync.swa and not _has_length(stop),
        "`swa` needs the length of the run, which [stop] does not imply", "add `rounds` or `item_iterations` to [stop]"),
    row("stop.rounds", lambda optimizer, stop, sync, faults: _has_rounds_of_unknown_length(stop, sync, faults) and _decaying(optimizer),
        "rounds vary in length as the run goes, so their number does not give `{0}` its share of the run",
        "give `item_iterations`, or `horizon` in [optimizer]", "value"),
    row("stop.rounds", lambda stop, sync, faults: sync.swa and _has_rounds_of_unknown_length(stop, sync, faults),
        "rounds vary in length as the run goes, so their number does not give `swa` its share of the run",
        "give `item_iterations`", "value"),
    row("partition.order", lambda partition, dataset: partition.order == "by-group" and not getattr(dataset, "group", None),
        'order = "by-group" needs the column of the groups', "add `group` to [dataset]", "value"),
    row("partition.size_alpha", lambda partition: partition.order == "by-group" and partition.size_alpha is not None,
        'with order = "by-group" the groups set the sizes of the partitions', "remove it"),
    row("partition.{0}", lambda partition: partition.draws_sizes and ("overlap" if partition.overlap else
        "balance" if partition.balance == "rate" else ""),
        "`{0}` sets the sizes of partitions, and so does {partition.sizes_by}", "remove it"),
    row("workers.{0}.partition_size", lambda partition, workers: partition.draws_sizes
        and next((str(index) for index, group in enumerate(workers) if group.partition_size), ""),
        "`partition_size` sets the size of a partition, and so does {partition.sizes_by}", "remove it"),
    row("partition.overlap", lambda partition, workers: "overlap" in partition.model_fields_set
        and all(group.partition_size for group in workers),
        "`overlap` is ignored: every worker has a `partition_size`, and these sizes determine the overlap",
        "remove it, or a `partition_size`", severity="warning"),
)  # fmt: skip
"""On any machine, with any data."""

OF_MACHINE = (
    row("engine.exact", lambda engine: not engine.exact and ((machine := Machine.find()) is None or machine.alone),
        "`exact = false` has no effect on one machine: it concerns sums between machines",
        "start the job on several by torchrun, or remove it", severity="warning"),
    row("engine.precision", lambda engine, workers: engine.precision == "bfloat16" and not cpu_has_bfloat16()
        and any(group.device == "cpu" for group in workers),
        "this machine's CPU has no bfloat16: CPU workers emulate it, and are slower than in float32", "", "value", "warning"),
    row("dataset.augment", lambda dataset: isinstance(dataset, ImageChanges) and dataset.augment and not find_spec("torchvision"),
        "`augment` needs torchvision, which is not installed", "pip install 'partrain[vision]'"),
)  # fmt: skip
"""With the machine."""

OF_TARGETS = (
    row("stop.accuracy", lambda model, task, stop, spec: stop.accuracy is not None and _without_accuracy(model, task, spec),
        "the task `{0}` has no accuracy", "use `loss`"),
    row("stop.patience_by", lambda model, task, stop, spec: stop.patience_by == "accuracy" and _without_accuracy(model, task, spec),
        "the task `{0}` has no accuracy", 'use "loss"', "value"),
)  # fmt: skip
"""With the targets of the data set."""

OF_ITEMS = (
    row("partition.clients", lambda partition, dataset, spec: partition.clients
        and partition.clients > (items := spec.items - spec.held_out_of(dataset)) and items,
        "{partition.clients:,} clients are more than the {0:,} training items", "", "value"),
    row("dataset.augment", lambda dataset, spec: isinstance(dataset, ImageChanges) and dataset.augment
        and (len(spec.shape) != 3 or spec.tokens or spec.parts),
        "`augment` is for images (channels, height, width), and items are {spec.shape}", "remove it"),
    row("dataset.augment", lambda dataset, sync, spec: isinstance(dataset, ImageChanges) and dataset.augment and sync.full_batch,
        '`augment` changes batches, and rule "{sync.rule}" takes the gradient of a whole partition',
        "remove it, or choose a rule that trains on batches"),
    row("dataset.stratify", lambda dataset, partition, spec: dataset.stratify and not spec.kind.one_class,
        "`stratify` goes by classes, but the data set's items are made for {spec.task}", "remove it"),
    row("dataset.stratify", lambda dataset, partition, spec: dataset.stratify and spec.kind.one_class and partition.order == "given"
        and ("one block of them" if dataset.fold else "the last ones"),
        '`stratify` draws the held-out items, but order = "given" holds out {0}', "keep one of the two"),
    row("dataset.group", lambda dataset, partition: isinstance(dataset, Tabular) and dataset.group and dataset.held_out and partition.order == "given",
        '`group` draws whole groups to hold out, but order = "given" holds out the last items', "keep one of the two"),
    row("partition.sampling", lambda partition, model, spec, task=None: partition.sampling == "balanced" and not spec.kind.one_class
        and (spec.kind if (kind := kind_of_task(task, model, spec.task)) is USER else kind),
        'sampling = "balanced" goes by classes, one of each item, and the task is {0}', "remove it"),
    row("partition.sampling", lambda partition, sync, spec: partition.sampling == "balanced" and spec.kind.one_class and sync.full_batch,
        '`sampling` draws mini-batches, but rule "{sync.rule}" takes full batches',
        "remove it, or weigh the classes: class_weights in [task]"),
    row("partition.sampling", lambda partition, spec: partition.sampling == "balanced" and spec.weighted,
        'sampling = "balanced" draws each class equally often, and the data set has weights that say how often', "remove one of the two"),
    row("sync.rule", lambda sync, spec: sync.full_batch and spec.weighted,
        'weights of items draw mini-batches, but rule "{sync.rule}" takes full batches',
        "remove the weights, or choose a rule that trains on batches"),
    row("partition.order", lambda partition, spec: partition.needs_targets and not spec.kind.orders,
        'order = "{partition.order}" goes by classes or numbers, but the data set\'s targets are {spec.kind.targets}',
        'use "shuffled" or "given"', "value"),
    row("sweep.k_folds", lambda sweep, spec: sweep and sweep.k_folds and sweep.k_folds > spec.items,
        "{sweep.k_folds:,} folds are more than the {spec.items:,} items", "", "value"),
)  # fmt: skip
"""With the items of a data set that is not a stream."""

_CHOICE = "`{0}` chooses among the items of a data set, and a stream's held-out items come from its `validation`"
OF_STREAM = (
    row("dataset.{0}", lambda dataset: dataset.fold and "fold", _CHOICE, "remove it, and give `validation` = their number"),
    row("dataset.{0}", lambda dataset: dataset.stratify and "stratify", _CHOICE, "remove it, and give `validation` = their number"),
    row("sync.rule", lambda sync: sync.full_batch,
        'rule "{sync.rule}" takes the gradient of a whole partition, and of a stream workers see one batch at a time',
        "choose a rule that trains on batches", "value"),
    row("sync.rule", lambda sync, stream: not sync.full_batch and sync.needs_partition_sizes and not stream.counted,
        'rule "{sync.rule}" needs the length of each worker\'s shard, which this stream does not tell',
        'give its class a method `length(rank, size)`, or set weights = "equal"', "value"),
    row("sync.buffers", lambda sync: sync.buffers == "recalibrate",
        "`buffers` recomputes BatchNorm statistics from items of every partition, which a stream does not keep",
        'use buffers = "average"'),
    row("sync.swa", lambda sync: sync.swa is not None and sync.buffers != "recalibrate",
        "`swa` recomputes BatchNorm statistics from items of every partition, which a stream does not keep", "use `ema`"),
    row("optimizer.{0}", lambda optimizer, sync: optimizer.full_batch and not sync.full_batch
        and ("full_batch" if "full_batch" in optimizer.model_fields_set else "name"),
        '"{optimizer.name}" takes all items of a partition as one batch, and a stream gives them one after the other',
        "set full_batch = false", "value"),
    row("task.class_weights", lambda task: isinstance(task, BuiltinTask) and task.class_weights == "balanced",
        'class_weights = "balanced" counts the items of each class, and a stream does not keep them',
        "give the weights as a list"),
)  # fmt: skip
"""With training items that are a stream, which workers see once per pass, in the stream's order."""
