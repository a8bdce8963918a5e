"""Checks of `[task]` against the other tables: judged numbers and goals, losses and the items of the data set."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from partrain.config.problems import Finding, did_you_mean
from partrain.data import DatasetSpec
from partrain.job.schema import kind_of_task, metrics_of
from partrain.tasks import KINDS, BuiltinTask
from partrain.tasks.metric_names import BOUNDS, LOWER, name_of

if TYPE_CHECKING:
    from partrain.data import AnyDataset
    from partrain.models import AnyModel
    from partrain.tasks import AnyTask
    from partrain.training.stop import Stop

MAX_NAMES = 20
"""Maximum number of classes in a message."""
GOALS = {"at_least": False, "at_most": True}
"""Keys of [stop] with goals by metric, and whether they are for metrics where lower is better."""


def loss_keys(model: AnyModel, task: AnyTask | None, spec: DatasetSpec) -> Iterator[Finding]:
    """Require that the keys of the loss fit the kind of task, and weights the classes."""
    if not isinstance(task, BuiltinTask):
        return
    kind = kind_of_task(task, model, spec.task)
    for key in BuiltinTask.model_fields:
        kinds = [kind.name for kind in KINDS.values() if key in kind.keys]
        if kinds and getattr(task, key) is not None and key not in kind.keys:
            yield Finding(("task", key), f"`{key}` is for {', '.join(kinds)}, and the task is {kind}", "remove it", at="key")
    if task.loss and kind.losses and task.loss not in kind.losses:
        fitting = ", ".join(f'"{loss}"' for loss in kind.losses)
        yield Finding(("task", "loss"), f'"{task.loss}" is not for the task {kind}', f"fitting: {fitting}")
    if isinstance(task.class_weights, list) and spec.outputs and len(task.class_weights) != spec.outputs:
        message = f"{len(task.class_weights)} weights, but the data set has {spec.outputs} classes"
        yield Finding(("task", "class_weights"), message)
    names = list(map(str, spec.classes or range(spec.outputs or 0)))
    for name in task.class_weights if names and isinstance(task.class_weights, dict) else ():
        if name not in names:
            near = did_you_mean(name, names)
            hint = f"did you mean `{near}`?" if near else f"it has {', '.join(names[:MAX_NAMES])}"
            yield Finding(("task", "class_weights", name), f"the data set has no class `{name}`", hint, at="key")


def target_numbers(model: AnyModel, dataset: AnyDataset, task: AnyTask | None, spec: DatasetSpec) -> Iterator[Finding]:
    """Require labels 0 and 1, or counts, as targets of tasks that need them."""
    unscaled = "set standardise_target = false in [dataset]"
    key = "standardise_target"  # its default is off for these tasks, which a job with errors may not know yet
    standardised = spec.standardised and (key in dataset.model_fields_set or key not in type(dataset).model_fields)
    if (kind := kind_of_task(task, model, spec.task)).zero_one:
        if standardised:
            yield Finding(("task", "kind"), f'"{kind}" is for 0 and 1, and these are standardised', unscaled)
        elif spec.numbers and spec.numbers.other is not None:
            yield Finding(("task", "kind"), f'"{kind}" is for targets 0 and 1, and one is {spec.numbers.other:g}')
    if isinstance(task, BuiltinTask) and task.loss == "poisson":
        if standardised:
            yield Finding(("task", "loss"), '"poisson" is for counts, and these are standardised', unscaled)
        elif spec.numbers and spec.numbers.smallest < 0:
            yield Finding(("task", "loss"), f'"poisson" is for counts, and a target is {spec.numbers.smallest:g}')


def metric_names(model: AnyModel, task: AnyTask | None, spec: DatasetSpec) -> Iterator[Finding]:
    """Require that metrics are known, fit the kind of task, and can be computed."""
    names = (task and task.metrics) or []
    kind = kind_of_task(task, model, spec.task)
    legal = kind.named_metrics
    for index, name in enumerate(names):
        if ":" not in name and name not in legal:
            near = did_you_mean(name, legal)
            fitting = f"fitting: {', '.join(legal)}" if legal else 'write your own: "file.py:Metric"'
            what = f"`{name}` is not for the task {kind}" if name in LOWER else f"no metric `{name}`"
            what = f"`{name}` is judged anyway" if name in kind.judged else what
            yield Finding(("task", "metrics", index), what, f"did you mean `{near}`?" if near else fitting)
        metric = kind.metrics.get(name)
        if metric and spec.outputs and spec.outputs < metric.least:
            what = f"`{name}` needs at least {metric.least} classes, and the data set has {spec.outputs}"
            yield Finding(("task", "metrics", index), what, "remove it")
    foreign = [name for name in names if name in kind.metrics and kind.metrics[name].target]
    if foreign and find_spec("torchmetrics") is None:
        message = f"`{foreign[0]}` is computed by torchmetrics, which is not installed: pip install 'partrain[metrics]'"
        yield Finding(("task", "metrics"), message)


def judged_names(stop: Stop, model: AnyModel, task: AnyTask | None, spec: DatasetSpec) -> Iterator[Finding]:
    """Require that each number in [stop] is judged, and that its goal is in the right direction."""
    metrics = metrics_of(task, model, spec.task)
    for key, number in (
        ("patience_by", stop.patience_by),
        *((goal, name) for goal in GOALS for name in getattr(stop, goal) or ()),
    ):
        path = ("stop", key) if key == "patience_by" else ("stop", key, number)
        if number is None or number in metrics or (key == "patience_by" and number in ("loss", "accuracy")):
            continue
        if number in ("loss", "accuracy"):
            yield Finding(path, f"`{number}` is no metric", f"it has its own key in [stop]: {number} = ...", at="key")
            continue
        legal = [*metrics, *["loss", "accuracy"] * (key == "patience_by")]
        near = did_you_mean(number, legal)
        is_named = number in kind_of_task(task, model, spec.task).named_metrics
        add = f'add it: metrics = ["{number}"] in [task]'
        write = (
            f'write a metric of your own: metrics = ["file.py:{number}"] in [task]; a function of [hooks] asks to stop by itself'
        )
        hint = f"did you mean `{near}`?" if near else add if is_named else write
        at: Literal["key", "value"] = "value" if key == "patience_by" else "key"
        yield Finding(path, f"the job judges no `{number}`" + (f", only {', '.join(legal)}" if legal else ""), hint, at=at)
    own = {name_of(name) for name in (task and task.metrics_code) or ()}
    for key, lower in GOALS.items():
        for number, goal in (getattr(stop, key) or {}).items():
            if metrics.get(number, lower) is not lower:
                other = next(goal for goal in GOALS if goal != key)
                better = "higher" if lower else "lower"
                yield Finding(("stop", key, number), f"`{number}` is better the {better} it is", f"use `{other}`", at="key")
            elif number in BOUNDS and number not in own and not _reachable(goal, *BOUNDS[number], lower=lower):
                what = f"`{number}` is never {'below' if lower else 'above'} {BOUNDS[number][not lower]:g}"
                yield Finding(("stop", key, number), f"the target {goal:g} cannot be reached: {what}")


def _reachable(goal: float, smallest: float, largest: float, *, lower: bool) -> bool:
    return goal >= smallest if lower else goal <= largest
