"""The kinds of task, one object each, with everything that the rest of the program asks a kind. Only computing imports torch.

Symbols: b items; C classes; k labels or numbers; L tokens of an item, V in the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from operator import and_
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from partrain.tasks.metric_names import CLASSES, LABELS, LOWER, MAPS, NUMBERS, TOKENS, KnownMetric

if TYPE_CHECKING:
    from torch import Tensor

    Restore = Callable[[Tensor, Tensor | None], Tensor]
    """Function that converts numbers (b, k) to the units of the files; its second argument: see `data.codec.Codec.restore_units`."""

Kind = Literal["classification", "regression", "forecast", "language", "autoencoder", "multi-label", "segmentation"]
Head = Literal["outputs", "tokens", "pixels", "item"]
"""Form of a network's answer to an item: (outputs,), (L, outputs), (outputs, h, w), or the item's shape."""
CLASSIFICATION: Final = "classification"
REGRESSION: Final = "regression"
FORECAST: Final = "forecast"
LANGUAGE: Final = "language"
AUTOENCODER: Final = "autoencoder"
MULTI_LABEL: Final = "multi-label"
SEGMENTATION: Final = "segmentation"


class AnswerBatch(NamedTuple):
    """A batch in the form that metrics take."""

    answers: Tensor
    """Probabilities, label maps, numbers in the units of the files, or the network's answers: by kind of task."""
    targets: Tensor
    """Right answers, in the same units."""
    decided: Tensor
    """(b,) classes, (b, k) labels 0 or 1, or (b, h, w) label maps; the answers if the task has no labels."""


class TaskKind:
    """A kind of task. The base class is the kind of user tasks whose answers have no known meaning."""

    name: str = "user"
    loss_class = "Task"
    """Class in `partrain.tasks.task` of the tasks of this kind."""
    measure_class = ""
    """Class in `partrain.tasks.measures` that computes numbers from its answers; "" without one."""
    fits: tuple[Kind, ...] = ()
    """Kinds of data sets with items for this task."""
    targets: Literal["labels", "numbers", "tokens", "label maps", ""] = "numbers"
    """Form of the targets (b,), (b, k), (b, L) or (b, h, w); "": the items are their own targets."""
    zero_one = False
    """Targets are 0 or 1: k labels that are each right or wrong."""
    instead: Kind | None = None
    """Kind to advise instead if all targets are 0 or 1."""
    follows = False
    """Answers are numbers of the moments that follow the item."""
    accuracy = True
    """The task counts right answers; a user task may."""
    logits = True
    """Answers are logits."""
    more_logits = False
    """There may be more logits than classes."""
    head: Head = "outputs"
    keys: tuple[str, ...] = ()
    """Keys of `[task]` that concern its loss."""
    losses: tuple[str, ...] = ()
    """Values of the key `loss`."""
    metrics: Mapping[str, KnownMetric] = MappingProxyType({})
    """Metrics of `[task] metrics` by name."""
    judged: Mapping[str, bool] = MappingProxyType({})
    """Metrics that a run judges even if the job does not name them; True if lower is better."""
    has_probabilities = False
    """`predict` gives labels and, if asked, probabilities."""

    def __str__(self) -> str:
        return self.name

    @property
    def one_class(self) -> bool:
        """True if each item has one class."""
        return self.targets == "labels"

    @property
    def named_metrics(self) -> Mapping[str, Any]:
        """Metrics that a job may name. The dry run finds out the answers of a user task."""
        return LOWER if self is USER else self.metrics

    @property
    def orders(self) -> bool:
        """True if items can be ordered and counted by their targets."""
        return self.targets in ("labels", "numbers")

    def answer_shape(self, item: tuple[int, ...], outputs: int) -> tuple[int, ...]:
        """Return the shape of the answer to one item."""
        shapes = {"outputs": (outputs,), "tokens": (*item, outputs), "pixels": (outputs, *item[-2:]), "item": item}
        return shapes[self.head]

    def ignored(self, task: Any) -> int | None:
        """Return the label of the pixels that do not count."""
        return None

    def labels(self, task: Any, answers: Tensor) -> Tensor:
        """Return the classes (b, ...) of logits: the largest probability, times the class weight if there are weights."""
        return answers.argmax(1)

    def probabilities(self, task: Any, answers: Tensor) -> Tensor:
        """Return the data's probabilities from logits: of each label, or of the classes along the second axis."""
        probabilities: Tensor = task.predicted(answers).softmax(1)
        return probabilities

    def batch(self, task: Any, answers: Tensor, targets: Tensor, newest: Tensor | None, restore: Restore) -> AnswerBatch:
        """Convert the answers of a network and the targets of the task to the form that metrics take.

        Args:
            task: The task.
            answers: The network's answers (b, ...).
            targets: The task's targets for these answers.
            newest: The values (b, number, targets) that differences of a series continue, if `restore` needs them.
            restore: Converts numbers to the units of the files.
        """
        return AnswerBatch(answers, targets, answers)

    def reduce(self, task: Any, answers: Tensor, items: Any, *, probabilities: bool) -> Tensor:
        """Reduce the answers to a part of the items to the numbers that `columns` needs."""
        return answers

    def columns(
        self, task: Any, reduced: Tensor, newest: Tensor | None, restore: Restore, *, probabilities: bool
    ) -> dict[str, Tensor]:
        """Return the answers of `predict` and exported graphs, by name. `newest` and `restore`: see `batch`."""
        return {"answer": restore(task.predicted(reduced).flatten(1), newest)}

    def faults(self, batch: AnswerBatch) -> Tensor:
        """Return a number for each item (b,): the largest for the worst answer."""
        raise NotImplementedError

    def worst(self, batch: AnswerBatch, count: int) -> list[int]:
        """Return the indices of the items with the worst answers, the worst first."""
        faults = self.faults(batch)
        return list(faults.topk(min(count, len(faults))).indices.tolist())


class _OfLogits(TaskKind):
    """Answers are logits (b, C, ...), which give probabilities and labels."""

    has_probabilities = True

    def batch(self, task: Any, answers: Tensor, targets: Tensor, newest: Tensor | None, restore: Restore) -> AnswerBatch:
        return AnswerBatch(self.probabilities(task, _full(answers)), targets.long(), self.labels(task, answers).long())

    def columns(
        self, task: Any, reduced: Tensor, newest: Tensor | None, restore: Restore, *, probabilities: bool
    ) -> dict[str, Tensor]:
        shares = self.probabilities(task, reduced)
        return {"label": _known(self.labels(task, reduced).long(), reduced, shares)} | (
            {"probability": shares} if probabilities else {}
        )


class ClassificationKind(_OfLogits):
    """Answers (b, C) are logits, targets (b,) labels."""

    name = CLASSIFICATION
    loss_class = "Classification"
    measure_class = "OfClasses"
    fits = (CLASSIFICATION,)
    targets = "labels"
    more_logits = True
    keys = ("class_weights", "label_smoothing", "focal")
    metrics = CLASSES

    def faults(self, batch: AnswerBatch) -> Tensor:
        return -batch.answers.gather(1, batch.targets[:, None]).squeeze(1)


class RegressionKind(TaskKind):
    """Answers and targets are numbers (b, k)."""

    name = REGRESSION
    loss_class = "Regression"
    measure_class = "OfNumbers"
    fits = (REGRESSION, FORECAST)
    instead: Kind | None = MULTI_LABEL
    accuracy = logits = False
    keys = ("loss",)
    losses = ("squared", "absolute", "huber", "quantile", "poisson")
    metrics = NUMBERS

    def batch(self, task: Any, answers: Tensor, targets: Tensor, newest: Tensor | None, restore: Restore) -> AnswerBatch:
        predicted = self.columns(task, _full(answers), newest, restore, probabilities=False)["answer"]
        pair = (x.double() for x in (predicted, restore(targets.flatten(1), newest)))
        predicted, numbers = (x.squeeze(1) if x.shape[1] == 1 else x for x in pair)
        return AnswerBatch(predicted, numbers, predicted)

    def faults(self, batch: AnswerBatch) -> Tensor:
        return (batch.answers - batch.targets).abs().reshape(len(batch.answers), -1).mean(1)


class ForecastKind(RegressionKind):
    """Answers are numbers of the moments that follow the item."""

    name = FORECAST
    instead = None
    follows = True
    judged = MappingProxyType({"mae": True})


class MultiLabelKind(_OfLogits):
    """Answers (b, k) are logits, targets (b, k) are 0 or 1."""

    name = MULTI_LABEL
    loss_class = "MultiLabel"
    measure_class = "OfLabels"
    fits = (REGRESSION,)
    zero_one = True
    keys = ("focal", "threshold")
    metrics = LABELS

    def labels(self, task: Any, answers: Tensor) -> Tensor:
        labels: Tensor = task.labels(answers)
        return labels

    def probabilities(self, task: Any, answers: Tensor) -> Tensor:
        probabilities: Tensor = task.predicted(answers)
        return probabilities


class AutoencoderKind(TaskKind):
    """Answers (b, ...) are the items."""

    name = AUTOENCODER
    loss_class = "Reconstruction"
    measure_class = "OfReconstructions"
    fits = (CLASSIFICATION, REGRESSION, FORECAST, SEGMENTATION)
    targets = ""
    accuracy = logits = False
    head = "item"
    keys = ("loss",)
    losses = ("squared", "absolute", "huber")

    def reduce(self, task: Any, answers: Tensor, items: Any, *, probabilities: bool) -> Tensor:
        return reconstruction_errors(answers, items)

    def columns(
        self, task: Any, reduced: Tensor, newest: Tensor | None, restore: Restore, *, probabilities: bool
    ) -> dict[str, Tensor]:
        return {"error": reduced}

    def faults(self, batch: AnswerBatch) -> Tensor:
        return reconstruction_errors(batch.answers, batch.targets)


class SegmentationKind(_OfLogits):
    """Answers (b, C, h, w) are logits, targets (b, h, w) labels."""

    name = SEGMENTATION
    loss_class = "Segmentation"
    measure_class = "OfPixels"
    fits = (SEGMENTATION,)
    targets = "label maps"
    head = "pixels"
    keys = ("class_weights", "label_smoothing", "focal", "ignore_index")
    metrics = MAPS
    judged = MappingProxyType({"mean_iou": False})

    def ignored(self, task: Any) -> int | None:
        ignore: int | None = getattr(task, "ignore", None)
        return ignore

    def batch(self, task: Any, answers: Tensor, targets: Tensor, newest: Tensor | None, restore: Restore) -> AnswerBatch:
        maps = self.labels(task, answers)
        return AnswerBatch(maps, targets.long(), maps)

    def reduce(self, task: Any, answers: Tensor, items: Any, *, probabilities: bool) -> Tensor:
        """Keep only the label maps, unless the caller wants probabilities, which take C times their memory."""
        return (
            answers if probabilities else _known(self.labels(task, answers), answers, self.probabilities(task, answers)).short()
        )

    def columns(
        self, task: Any, reduced: Tensor, newest: Tensor | None, restore: Restore, *, probabilities: bool
    ) -> dict[str, Tensor]:
        return super().columns(task, reduced, newest, restore, probabilities=True) if probabilities else {"label": reduced}


class LanguageKind(TaskKind):
    """Answers (b, L, V) are logits for the next token of each token, targets (b, L)."""

    name = LANGUAGE
    loss_class = "Language"
    measure_class = "OfTokens"
    fits = (LANGUAGE,)
    targets = "tokens"
    more_logits = True
    head = "tokens"
    keys = ("label_smoothing",)
    metrics = TOKENS


KINDS: dict[str, TaskKind] = {
    kind.name: kind
    for kind in (
        ClassificationKind(),
        RegressionKind(),
        ForecastKind(),
        MultiLabelKind(),
        AutoencoderKind(),
        SegmentationKind(),
        LanguageKind(),
    )
}
"""The built-in kinds of task by name."""
USER = TaskKind()
assert KINDS.keys() == set(get_args(Kind))


def kind_named(name: str) -> TaskKind:
    """Return the kind with this name, or the kind of user tasks if no built-in kind has it."""
    return KINDS.get(name, USER)


def kinds_for(data: Kind) -> list[str]:
    """Return the kinds of task that suit the items of a kind of data set, the data set's own first."""
    return sorted((kind.name for kind in KINDS.values() if data in kind.fits), key=lambda name: name != data)


def answered(columns: Mapping[str, Tensor]) -> Tensor:
    """Return which items (n,) have an answer in the `columns` of a kind: finite numbers and known labels."""
    fine = [column >= 0 if name == "label" else finite(column) for name, column in columns.items()]
    return reduce(and_, (mask.flatten(1).all(1) if mask.dim() > 1 else mask for mask in fine))


def finite(numbers: Tensor) -> Tensor:
    """Return which numbers are finite, like `isfinite`, by operators that all graph runtimes also have in double precision."""
    return numbers.abs() < math.inf


def _known(labels: Tensor, logits: Tensor, probabilities: Tensor) -> Tensor:
    """Return the labels (b, ...), and -1 where logits or probabilities (of the label, or along the second axis) are not finite.

    A logit of minus infinity means an impossible class. onnxruntime turns the sigmoid of NaN into a number.
    """
    fine = (logits < math.inf) & finite(probabilities)
    return labels.where(fine if fine.shape == labels.shape else fine.all(1), -1)


def reconstruction_errors(answers: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared difference of each item (b,)."""
    return (answers.double() - targets.double()).square().flatten(1).mean(1)


def _full(answers: Tensor) -> Tensor:
    """Return numbers in at least single precision."""
    return answers if answers.is_floating_point() and answers.element_size() >= 4 else answers.float()
