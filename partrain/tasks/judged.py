"""The metrics of `[task] metrics` over all held-out items, of which each worker judges a part.

Each worker feeds its answers to metrics of its own. At the end they gather their states, in the order of the workers and so of the
items: the result does not depend on the number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import Tensor

from partrain.config.problems import Finding, WrongValue
from partrain.config.usercode import frames
from partrain.errors import Failure, UserCodeFailed
from partrain.tasks.kinds import Task
from partrain.tasks.known_metrics import known_metric, silent
from partrain.tasks.metric_names import METRICS, name_of
from partrain.tasks.own_metrics import own_metric, own_number

Gather = Callable[[Tensor], list[Tensor]]
"""Function that returns this tensor of every worker, by rank."""
Convert = Callable[[Tensor], Tensor]


class JudgedMetric(Protocol):
    """A metric of torchmetrics, or another with its methods."""

    def update(self, answers: Tensor, targets: Tensor) -> None:
        """Add a batch."""

    def compute(self) -> Any:
        """Return the number over all batches of all workers."""

    def reset(self) -> None:
        """Forget all batches."""


class JudgedMetrics:
    """The metrics of a job by name."""

    def __init__(
        self,
        metrics: dict[str, JudgedMetric],
        prepare: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
        code: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`prepare` converts answers and targets of a batch to what the metrics take; `code` names the user code of own metrics."""
        self._metrics, self._prepare, self._code = metrics, prepare, code
        self._gather: Gather = lambda x: [x]
        for metric in metrics.values():
            metric.dist_sync_fn = lambda x, group=None: self._gather(x)  # type: ignore[attr-defined]
            metric.distributed_available_fn = lambda: True  # type: ignore[attr-defined]

    def __bool__(self) -> bool:
        return bool(self._metrics)

    def update(self, answers: Tensor, targets: Tensor) -> None:
        """Add a batch of answers and their targets."""
        answers, targets = self._prepare(answers.detach().cpu(), targets.detach().cpu())
        for name, metric in self._metrics.items():
            with silent(), self._blamed(name):
                metric.update(answers, targets)

    def compute(self, gather: Gather = lambda x: [x]) -> dict[str, float]:
        """Return the metrics over all items of all workers, and forget the items."""
        self._gather = gather
        found = {}
        for name, metric in self._metrics.items():
            with silent(), self._blamed(name):
                found[name] = own_number(metric.compute(), self._code[name]) if name in self._code else _number(metric.compute())
                metric.reset()
        return found

    @contextmanager
    def _blamed(self, name: str) -> Iterator[None]:
        """Turn an exception of an own metric into UserCodeFailed."""
        try:
            yield
        except Failure:
            raise
        except Exception as error:
            if name not in self._code:
                raise
            words = f"{type(error).__name__}: {error}".rstrip(": ").splitlines()[0]
            raise UserCodeFailed(f"[task] metrics: `{self._code[name]}`: {words}", f"{frames(error)}{words}") from error


class MeanIoU:
    """Mean over the classes of intersection / union of the pixels; classes without any pixel do not count.

    Takes labels (b, h, w) as answers and targets; the target `ignore` is left out.
    """

    dist_sync_fn: Callable[..., list[Tensor]]

    def __init__(self, classes: int, ignore: int) -> None:
        self._classes, self._ignore = classes, ignore
        self.reset()

    def update(self, answers: Tensor, targets: Tensor) -> None:
        known = targets != self._ignore
        pairs = targets[known].long() * self._classes + answers[known]
        self.confusion += torch.bincount(pairs, minlength=self._classes**2).view(self._classes, self._classes)

    def compute(self) -> float:
        confusion = torch.stack(self.dist_sync_fn(self.confusion)).sum(0).double()
        return mean_iou(confusion)

    def reset(self) -> None:
        self.confusion = torch.zeros(self._classes, self._classes, dtype=torch.int64)


def mean_iou(confusion: Tensor) -> float:
    """Return the mean intersection over union from a confusion matrix (C, C) of pixels."""
    hits, union = confusion.diagonal(), confusion.sum(0) + confusion.sum(1) - confusion.diagonal()
    return float((hits[union > 0] / union[union > 0]).double().mean())


def judged_metrics(
    names: Sequence[str],
    lower: Sequence[str],
    task: Task,
    kind: str,
    outputs: int,
    folder: Path,
    restore: Convert = lambda numbers: numbers,
) -> JudgedMetrics:
    """Make the metrics of a job.

    Args:
        names: `[task] metrics`.
        lower: Names of own metrics of which lower is better.
        task: The task, which converts answers.
        kind: Kind of task; for a user task that of its answers, or "user".
        outputs: Number of classes, labels or numbers.
        folder: Folder of the job, for own metrics.
        restore: Function that converts numbers (n, k) to the units of the data set's files.
    """
    ignore = getattr(task, "ignore", None)
    made: dict[str, JudgedMetric] = {"mean_iou": MeanIoU(outputs, int(ignore or 0))} if kind == "segmentation" else {}
    if names and type(task).score is not Task.score:
        raise UserCodeFailed(f"[task] metrics: {type(task).__name__} has a `score` of its own, so that its answers are unknown")
    for index, name in enumerate(names):
        place = ("task", "metrics", index)
        if ":" in name:
            made[name_of(name)] = own_metric(name, name_of(name) in lower, folder)
            continue
        known = METRICS.get(kind, {}).get(name)
        if known is None:
            fitting = ", ".join(METRICS.get(kind, {})) or 'only your own, as "file.py:Metric"'
            raise WrongValue(Finding(place, f"`{name}` is not for the task {kind}", f"fitting: {fitting}"))
        if outputs < known.least:
            what = f"`{name}` needs at least {known.least} classes, and the data set has {outputs}"
            raise WrongValue(Finding(place, what, "remove it"))
        made[name] = known_metric(known, kind, outputs, ignore)

    def prepare(answers: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        match kind:
            case "classification":
                if names and answers.shape[1] != outputs:
                    raise UserCodeFailed(f"[task] metrics: the network gives {answers.shape[1]} logits for {outputs} classes")
                return answers.float().softmax(1), targets
            case "multi-label":
                return task.predicted(answers.float()), targets.long()
            case "segmentation":
                return answers.argmax(1), targets.long()
            case "regression" | "forecast":
                numbers = [restore(each.double().flatten(1)) for each in (task.predicted(answers), targets)]
                return (numbers[0].squeeze(1), numbers[1].squeeze(1)) if outputs == 1 else (numbers[0], numbers[1])
        return answers, targets

    return JudgedMetrics(made, prepare, {name_of(name): name for name in names if ":" in name})


def _number(value: Any) -> float:
    """Return a metric's number: the mean over several targets. NaN if it is undefined."""
    tensor = torch.as_tensor(value).double()
    if not tensor.numel():
        return math.nan
    return float(tensor.mean())
