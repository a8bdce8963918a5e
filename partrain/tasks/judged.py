"""The metrics of `[task] metrics` over all held-out items, of which each worker judges a part; and the metrics that `evaluate`
reports.

Each worker feeds its answers to its own metrics. At the end the workers gather their states, in the order of the workers and so
of the items: the result does not depend on the number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from partrain.config.problems import Finding, WrongValue
from partrain.config.usercode import frames
from partrain.errors import Failure, UserCodeFailed
from partrain.record.round_record import finite, without_nan
from partrain.tasks.kinds import AnswerBatch, TaskKind
from partrain.tasks.known_metrics import known_metric, silent
from partrain.tasks.measures import Gather, Measure, Names, measure_of
from partrain.tasks.metric_names import BY_CLASS, OF_PROBABILITIES, name_of
from partrain.tasks.own_metrics import own_metric, own_number
from partrain.tasks.task import Task

if TYPE_CHECKING:
    from partrain.tasks.kinds import Restore

Observe = Callable[[AnswerBatch], None]
"""Function that gets each batch."""


class JudgedMetric(Protocol):
    """A metric of torchmetrics, or another with its methods."""

    def update(self, answers: Tensor, targets: Tensor) -> None:
        """Add a batch."""

    def compute(self) -> Any:
        """Return the number over all batches of all workers."""

    def reset(self) -> None:
        """Forget all batches."""


class JudgedMetrics:
    """The metrics of a job by name: from a measure, from torchmetrics, and from user code."""

    def __init__(
        self,
        names: Sequence[str],
        convert: Callable[[Tensor, Tensor, Tensor | None], AnswerBatch],
        measure: Callable[[], Measure | None] = lambda: None,
        metrics: Mapping[str, JudgedMetric] = MappingProxyType({}),
        code: Mapping[str, str] = MappingProxyType({}),
        observe: Observe | None = None,
    ) -> None:
        """Begin without items.

        `convert` makes a batch of answers, targets and newest values; `measure` computes the `names` that `metrics` lack; `code` names
        the user code of own metrics; `observe` gets each batch.
        """
        self._names, self._convert, self._new_measure, self._metrics, self._code = names, convert, measure, metrics, code
        self.observe, self._measure = observe, measure()
        self.measured = self._measure
        """The measure of all items of all workers, from the newest `compute`."""
        self._by_class: dict[str, Tensor] = {}
        """Numbers (C,) or (k,) of the newest `compute`, by metric."""
        self._gather: Gather = lambda x: [x]
        for metric in metrics.values():
            metric.dist_sync_fn = lambda x, group=None: self._gather(x)  # type: ignore[attr-defined]
            metric.distributed_available_fn = lambda: True  # type: ignore[attr-defined]

    @property
    def own(self) -> bool:
        """True if some metrics are user code."""
        return bool(self._code)

    def __bool__(self) -> bool:
        return bool(self._measure or self._metrics or self.observe)

    def update(self, answers: Tensor, targets: Tensor, newest: Tensor | None = None) -> None:
        """Add a batch of answers and their targets, and of the values that differences of a series continue."""
        batch = self._convert(answers.detach().cpu(), targets.detach().cpu(), newest)
        if self._measure:
            self._measure.add(batch.decided, batch.targets)
        if self.observe:
            self.observe(batch)
        for name, metric in self._metrics.items():
            with silent(), self._blamed(name):
                predictions = batch.answers if name in OF_PROBABILITIES or name in self._code else batch.decided
                metric.update(predictions, batch.targets)

    def compute(self, gather: Gather = lambda x: [x]) -> dict[str, float]:
        """Return the metrics over all items of all workers, and forget the items."""
        self._gather = gather
        self.measured, self._measure = self._measure, self._new_measure()
        values: dict[str, float] = {}
        if self.measured:
            self.measured.gather(gather)
            values |= self.measured.numbers()
        for name, metric in self._metrics.items():
            with silent(), self._blamed(name):
                value = metric.compute()
                if name in BY_CLASS:
                    self._by_class[name], value = value, value[~value.isnan()].mean()
                values[name] = own_number(value, self._code[name]) if name in self._code else _number(value)
                metric.reset()
        return {name: values[name] for name in self._names}

    def report(self, names: Names) -> dict[str, Any]:
        """Return further results for `evaluate` besides loss and metrics, from the newest `compute`; None if undefined."""
        assert self.measured
        report: dict[str, Any] = without_nan(self.measured.report(names))
        for name, numbers in self._by_class.items():
            for row, value in zip(report.get("classes") or report["labels"], numbers.tolist(), strict=True):
                row[name] = finite(value)
        return report

    @contextmanager
    def _blamed(self, name: str) -> Iterator[None]:
        """Turn an exception of a user's metric into UserCodeFailed."""
        try:
            yield
        except Failure:
            raise
        except Exception as error:
            if name not in self._code:
                raise
            words = f"{type(error).__name__}: {error}".rstrip(": ").splitlines()[0]
            raise UserCodeFailed(f"[task] metrics: `{self._code[name]}`: {words}", f"{frames(error)}{words}") from error


def judged_metrics(
    names: Sequence[str],
    lower: Sequence[str],
    task: Task,
    kind: TaskKind,
    outputs: int,
    folder: Path,
    restore: Restore = lambda numbers, _: numbers,
    *,
    reports: bool = False,
    observe: Observe | None = None,
) -> JudgedMetrics:
    """Make the metrics of a job.

    Args:
        names: `[task] metrics`.
        lower: Names of the user's metrics for which lower is better.
        task: The task, which converts answers.
        kind: Kind of task; for a user task, the kind of its answers.
        outputs: Number of classes, labels or numbers.
        folder: Folder of the job, for the user's metrics.
        restore: Function that converts numbers (n, k) to the units of the data set's files.
        reports: Make the measure of the kind of task even if no name needs it.
        observe: Gets each batch.
    """
    ignore = kind.ignored(task)
    known_answers = type(task).score is Task.score
    made: dict[str, JudgedMetric] = {}
    if names and not known_answers:
        raise UserCodeFailed(f"[task] metrics: {type(task).__name__} has a `score` of its own, so that its answers are unknown")
    for index, name in enumerate(names):
        place = ("task", "metrics", index)
        if ":" in name:
            made[name_of(name)] = own_metric(name, lower=name_of(name) in lower, folder=folder)
            continue
        spec = kind.metrics.get(name)
        if spec is None:
            fitting = ", ".join(kind.metrics) or 'only your own, as "file.py:Metric"'
            raise WrongValue(Finding(place, f"`{name}` is not for the task {kind}", f"fitting: {fitting}"))
        if outputs < spec.least:
            what = f"`{name}` needs at least {spec.least} classes, and the data set has {outputs}"
            raise WrongValue(Finding(place, what, "remove it"))
        if spec.target:
            made[name] = known_metric(spec, outputs, ignore)

    def convert(answers: Tensor, targets: Tensor, newest: Tensor | None) -> AnswerBatch:
        if names and kind.one_class and answers.shape[1:] != kind.answer_shape((), outputs):
            raise UserCodeFailed(f"[task] metrics: the network gives {answers.shape[1]} logits for {outputs} classes")
        return kind.batch(task, answers, targets, newest, restore)

    judged = [*(kind.judged if known_answers else ()), *map(name_of, names)]
    measures = known_answers and (reports or not made.keys() >= set(judged))
    return JudgedMetrics(
        judged,
        convert,
        (lambda: measure_of(kind, outputs, ignore)) if measures else (lambda: None),
        made,
        {name_of(name): name for name in names if ":" in name},
        observe,
    )


def _number(value: Any) -> float:
    """Return a metric's number: the mean over several targets. NaN if it is undefined."""
    tensor = torch.as_tensor(value).double()
    if not tensor.numel():
        return math.nan
    return float(tensor.mean())
