"""The targets of a data set as `[task]` needs them: the check that they fit, and the weights of classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from partrain.config.problems import Finding, WrongValue, did_you_mean
from partrain.data.partition import split
from partrain.tasks import BuiltinTask

if TYPE_CHECKING:
    from partrain.data import Dataset
    from partrain.job.schema import Job


UNSCALED = "set standardise_target = false in [dataset]"


def check_targets(job: Job, dataset: Dataset) -> None:
    """Raise WrongValue if the numbers of the targets do not fit the loss."""
    task = job.task
    if job.kind_of_task(dataset.task) == "multi-label":
        if "target_mean" in dataset.codec:
            raise WrongValue(Finding(("task", "kind"), '"multi-label" is for 0 and 1, and these are standardised', UNSCALED))
        for targets in (dataset.targets, dataset.test_targets):
            if targets is not None and not np.isin(targets, (0, 1)).all():
                other = targets[~np.isin(targets, (0, 1))][0]
                raise WrongValue(Finding(("task", "kind"), f'"multi-label" is for targets 0 and 1, and one is {other:g}'))
    if not isinstance(task, BuiltinTask) or task.loss != "poisson":
        return
    if "target_mean" in dataset.codec:
        raise WrongValue(Finding(("task", "loss"), '"poisson" is for counts, and these are standardised', UNSCALED))
    given = [each for each in (dataset.targets, dataset.test_targets) if each is not None and len(each)]
    if (lowest := min((float(each.min()) for each in given), default=0.0)) < 0:
        raise WrongValue(Finding(("task", "loss"), f'"poisson" is for counts, and a target is {lowest:g}'))


def remark(job: Job, dataset: Dataset) -> str:
    """Return a remark on targets that are labels by their numbers, but trained as numbers; "" if there is none."""
    chosen = job.task is not None and (not isinstance(job.task, BuiltinTask) or job.task.kind)
    if (
        chosen
        or job.kind_of_task(dataset.task) != "regression"
        or dataset.outputs < 2
        or not len(dataset.targets)
        or not np.isin(dataset.targets, (0, 1)).all()
    ):
        return ""
    return f'all targets (n, {dataset.outputs}) are 0 or 1, and are trained as numbers: for labels, set kind = "multi-label" in [task]'


def class_weights(job: Job, dataset: Dataset) -> list[float] | None:
    """Resolve the weights; None if the job sets none. Raises WrongValue if classes and weights do not fit."""
    given = job.task.class_weights if isinstance(job.task, BuiltinTask) else None
    if given is None:
        return None
    count, names = dataset.outputs, [str(name) for name in dataset.codec.get("classes") or range(dataset.outputs)]
    if isinstance(given, list):
        if len(given) != count:
            what = f"{len(given)} weights, but the data set has {count} classes"
            raise WrongValue(Finding(("task", "class_weights"), what))
        return given
    if isinstance(given, Mapping):
        if unknown := [name for name in given if name not in names]:
            near = did_you_mean(unknown[0], names)
            hint = f"did you mean `{near}`?" if near else f"it has {', '.join(names[:20])}"
            what = f"the data set has no class `{unknown[0]}`"
            raise WrongValue(Finding(("task", "class_weights", unknown[0]), what, hint, at="key"))
        return [given.get(name, 1.0) for name in names]
    training = _training_items(job, dataset)
    labels = dataset.targets[training].ravel()
    if dataset.task == "segmentation" and isinstance(job.task, BuiltinTask):
        labels = labels[labels != (255 if job.task.ignore_index is None else job.task.ignore_index)]
    counts = np.bincount(labels, minlength=count)[:count]
    if not counts.all():
        lacking = names[int(counts.argmin())]
        what = f'"balanced" needs training items of each class, and `{lacking}` has none'
        raise WrongValue(Finding(("task", "class_weights"), what, "give the weights"))
    return [float(weight) for weight in counts.sum() / (count * counts)]


def _training_items(job: Job, dataset: Dataset) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the items that are not held out."""
    return split(dataset, job.dataset, job.partition.order, job.seed)[0]
