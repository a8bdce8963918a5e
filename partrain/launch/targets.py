"""The targets of a data set for `[task]`: the check that they fit, and the class weights."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from partrain.config.problems import Finding, WrongValue
from partrain.data.partition import split
from partrain.job.load import LoadedJob, check_against_data
from partrain.record.stop_conditions import numbers_of
from partrain.tasks import BuiltinTask

if TYPE_CHECKING:
    from partrain.data import Dataset
    from partrain.job.schema import Job


def check_targets(loaded: LoadedJob, dataset: Dataset) -> None:
    """Raise Rejected if the targets do not fit the task, or if a number in `[stop]` is undefined for the held-out targets."""
    job = loaded.job
    counts = isinstance(job.task, BuiltinTask) and job.task.loss == "poisson"
    if counts or job.kind_of_task(dataset.task).zero_one:
        check_against_data(loaded, replace(dataset.spec, numbers=dataset.target_numbers))

    _check_r2(job, dataset)


def _check_r2(job: Job, dataset: Dataset) -> None:
    """Refuse to stop by R² if the held-out targets do not vary, which leaves R² undefined."""
    stop = job.stop
    if "r2" not in numbers_of(vars(stop)) or dataset.newest is not None or not job.dataset.holds_out:
        return
    held_out = dataset.targets[split(dataset, job.dataset, job.partition.order, job.seed)[1]]
    if len(held_out) and (held_out == held_out[0]).reshape(len(held_out), -1).all(0).any():
        key = "patience_by" if stop.patience_by == "r2" else "at_least" if "r2" in (stop.at_least or ()) else "at_most"
        what = f"`r2` is undefined: the targets of all {len(held_out):,} held-out items are equal"
        raise WrongValue(Finding(("stop", key), what, "hold out other items, or name `rmse`"))


def remark(job: Job, dataset: Dataset) -> str:
    """Return a remark on targets that look like labels but are trained as numbers; "" without one."""
    advised = job.kind_of_task(dataset.task).instead
    chosen = job.task is not None and (not isinstance(job.task, BuiltinTask) or job.task.kind)
    if chosen or not advised or dataset.outputs < 2 or not len(dataset.targets) or not np.isin(dataset.targets, (0, 1)).all():
        return ""
    return (
        f'all targets (n, {dataset.outputs}) are 0 or 1, and are trained as numbers: for labels, set kind = "{advised}" in [task]'
    )


def class_weights(job: Job, dataset: Dataset) -> list[float] | None:
    """Resolve the class weights; None if the job sets none. Raises WrongValue if a class has no item to balance."""
    weights = job.task.class_weights if isinstance(job.task, BuiltinTask) else None
    if weights is None:
        return None
    count, names = dataset.outputs, [str(name) for name in dataset.codec.get("classes") or range(dataset.outputs)]
    if weights != "balanced":
        return weights if isinstance(weights, list) else [weights.get(name, 1.0) for name in names]
    training = _training_items(job, dataset)
    labels = dataset.targets[training].ravel()
    if dataset.kind.targets == "label maps" and isinstance(job.task, BuiltinTask):
        labels = labels[labels != job.task.unlabeled]
    counts = np.bincount(labels, minlength=count)[:count]
    if not counts.all():
        lacking = names[int(counts.argmin())]
        what = f'"balanced" needs training items of each class, and `{lacking}` has none'
        raise WrongValue(Finding(("task", "class_weights"), what, "give the weights"))
    return [float(weight) for weight in counts.sum() / (count * counts)]


def _training_items(job: Job, dataset: Dataset) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the items that are not held out."""
    return split(dataset, job.dataset, job.partition.order, job.seed)[0]
