"""The numbers that partrain computes itself, by kind of task, for judgements and for `evaluate`.

A measure adds up batches. Workers gather its sums in the order of their ranks. Symbols: b items of a batch; C classes; k labels or
numbers; L tokens of an item, V in the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from partrain.tasks.kinds import TaskKind, reconstruction_errors
from partrain.tasks.task import PADDING

Gather = Callable[[Tensor], list[Tensor]]
"""Function that returns this tensor of every worker, by rank."""
Names = Callable[[int], Sequence[str]]
"""Function that names a number of classes, labels or numbers; it returns nothing if they have no names."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Reported quantiles of the reconstruction error."""


class Measure:
    """Base class: sums over batches."""

    sums: Tensor

    def add(self, answers: Tensor, targets: Tensor) -> None:
        """Add a batch."""
        raise NotImplementedError

    def gather(self, gather: Gather) -> None:
        """Add up the sums of all workers."""
        self.sums = torch.stack(gather(self.sums)).sum(0)

    def numbers(self) -> dict[str, float]:
        """Return the numbers that `[task] metrics` names; NaN for those that are undefined."""
        return {}

    def report(self, names: Names) -> dict[str, Any]:
        """Return further results for `evaluate` besides loss and accuracy; NaN if undefined."""
        raise NotImplementedError


class OfClasses(Measure):
    """Precision, recall and F1 of each class, from the confusion matrix: row = true class, column = answer.

    None if the denominator is 0: precision of a class that no answer names, recall of a class without items. The means count it
    as 0, and leave out classes that are neither true nor answered, like average = "macro" in torchmetrics and scikit-learn.
    """

    def __init__(self, classes: int, ignore: int | None = None) -> None:
        """Begin without items. Targets `ignore` do not count, nor does the class of this label in means."""
        self._classes, self._ignore = classes, ignore
        self.sums = torch.zeros(classes, classes + 1, dtype=torch.int64)
        """(C, C + 1): the last column counts answers that are not among the classes."""

    def add(self, answers: Tensor, targets: Tensor) -> None:
        """Add labels (b, ...) and their targets."""
        counted: Any = targets != self._ignore if self._ignore is not None else ...
        width = self._classes + 1
        pairs = targets[counted].long() * width + answers[counted].clamp(max=self._classes)
        self.sums += torch.bincount(pairs.flatten(), minlength=self.sums.numel()).view_as(self.sums)

    @property
    def confusion(self) -> Tensor:
        """The confusion matrix (C, C); (C, C + 1) if some answers are not among the classes."""
        return self.sums if self.sums[:, -1].any() else self.sums[:, :-1]

    def numbers(self) -> dict[str, float]:
        hits, counts, answered = self._counts()
        counted = counts + answered > 0
        if self._ignore is not None and self._ignore < self._classes:
            counted[self._ignore] = False
        means = _means(hits[counted], counts[counted], answered[counted], int(self.sums.sum()))
        return means | {"mean_iou": _mean(hits[counted], (counts + answered - hits)[counted])}

    def report(self, names: Names) -> dict[str, Any]:
        named = names(self._classes)
        rows = _rows(*self._counts(), {"label": range(self._classes)} | ({"name": named} if named else {}))
        return {"macro": _macro(self.numbers()), "classes": rows, "confusion": self.confusion.tolist()}

    def _counts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the right answers, the items and the answers of each class (C,)."""
        return self.sums.diagonal(), self.sums.sum(1), self.sums[:, :-1].sum(0)


class OfPixels(OfClasses):
    """Pixel accuracy, and intersection over union of each class, over the pixels of all images that have a label."""

    def report(self, names: Names) -> dict[str, Any]:
        hits, counts, answered = self._counts()
        rows = [
            {"label": label, "iou": _ratio(hit, count + predicted - hit), "recall": _ratio(hit, count), "pixels": count}
            for label, (hit, count, predicted) in enumerate(zip(hits.tolist(), counts.tolist(), answered.tolist(), strict=True))
            if label != self._ignore
        ]
        return {"pixel_accuracy": _ratio(int(hits.sum()), int(counts.sum())), "classes": rows}


class OfLabels(Measure):
    """Precision, recall and F1 of each of k labels that are right or wrong, and the share of items with all labels right.

    The means are over all labels, like average = "macro" in torchmetrics and scikit-learn: a denominator of 0 counts as 0.
    """

    def __init__(self, labels: int, ignore: int | None = None) -> None:
        self.sums = torch.zeros(5, labels, dtype=torch.int64)
        """Rows: right answers 1, targets 1, answers 1; of all labels: items with every label right, and items."""

    def add(self, answers: Tensor, targets: Tensor) -> None:
        """Add answers and targets (b, k), which are 0 or 1."""
        exact = (answers == targets).all(1, keepdim=True).expand_as(targets)
        self.sums += torch.stack(
            [x.long().sum(0) for x in (answers * targets, targets, answers, exact, torch.ones_like(targets))]
        )

    def numbers(self) -> dict[str, float]:
        hits, counts, answered, exact, items = self.sums
        return _means(hits, counts, answered, int(items[0])) | {"exact_match": _mean(exact, items)}

    def report(self, names: Names) -> dict[str, Any]:
        numbers = self.numbers()
        hits, counts, answered, *_ = self.sums
        rows = _rows(hits, counts, answered, {"name": names(len(hits))})
        return {"exact_match": numbers["exact_match"], "macro": _macro(numbers), "labels": rows}


class OfNumbers(Measure):
    """Errors of numbers (b, k), in the units of the data set's files: mean absolute error, root mean square error, and R².

    R² = 1 - sum of squared errors / sum of squared deviations from the mean; None if the targets do not vary. Over several
    numbers each metric is the mean of the numbers' metrics, as in scikit-learn.
    """

    def __init__(self, outputs: int = 0, ignore: int | None = None) -> None:
        self.sums = torch.zeros(7, 0, dtype=torch.float64)
        """(7, k): items, mean of the targets, sum of their squared deviations from it, least and largest target, sum of the
        absolute and of the squared errors. (7, 0) before the first item."""

    def add(self, answers: Tensor, targets: Tensor) -> None:
        """Add answers and targets, (b, k) or (b,)."""
        answers, targets = (x.double().reshape(len(x), -1) for x in (answers, targets))
        errors, mean = answers - targets, targets.mean(0)
        rows = torch.full_like(mean, len(targets)), mean, (targets - mean).square().sum(0), targets.amin(0), targets.amax(0)
        sums = torch.stack([*rows, errors.abs().sum(0), errors.square().sum(0)])
        self.sums = _merged(torch.stack([self.sums, sums])) if self.sums.numel() else sums

    def gather(self, gather: Gather) -> None:
        parts = [part for part in gather(self.sums) if part.numel()]
        self.sums = _merged(torch.stack(parts)) if parts else self.sums

    def numbers(self) -> dict[str, float]:
        return {name: float(values.mean()) for name, values in self._of_each().items()}

    def report(self, names: Names) -> dict[str, Any]:
        columns = {name: values.tolist() for name, values in self._of_each().items() if name != "mse"}
        report = {name: value for name, value in self.numbers().items() if name in columns}
        if self.sums.shape[1] == 1:
            return report
        rows = zip(names(self.sums.shape[1]), *columns.values(), strict=True)
        return report | {"numbers": [dict(zip(("name", *columns), row, strict=True)) for row in rows]}

    def _of_each(self) -> dict[str, Tensor]:
        """Return the errors of each number (k,). R² is NaN if the targets do not vary."""
        items, _, spread, least, largest, absolute, squared = self.sums
        r2 = torch.where((least < largest) & (spread > 0), 1 - squared / spread, math.nan)
        mse = squared / items
        return {"mae": absolute / items, "rmse": mse.sqrt(), "r2": r2, "mse": mse}


class OfTokens(Measure):
    """Perplexity = exp(cross-entropy) of the next token, and its bits = cross-entropy / ln 2: no label smoothing.

    Padding does not count; each other token counts once.
    """

    def __init__(self, outputs: int = 0, ignore: int | None = None) -> None:
        self.sums = torch.zeros(2, dtype=torch.float64)
        """Tokens, and sum of their cross-entropy."""

    def add(self, answers: Tensor, targets: Tensor) -> None:
        """Add logits (b, L, V) and the tokens (b, L) that followed."""
        losses = cross_entropy(answers.float().transpose(1, 2), targets, ignore_index=PADDING, reduction="none")
        self.sums += torch.stack([(targets != PADDING).sum().double(), losses.double().sum()])

    def numbers(self) -> dict[str, float]:
        loss = float(self.sums[1] / self.sums[0])
        return {"perplexity": float(torch.tensor(loss, dtype=torch.float64).exp())}

    def report(self, names: Names) -> dict[str, Any]:
        tokens, loss = self.sums.tolist()
        return {"tokens": int(tokens), **self.numbers(), "bits_per_token": loss / tokens / math.log(2)}


class OfReconstructions(Measure):
    """The reconstruction error of each item: mean squared difference between an input and its reconstruction."""

    def __init__(self, outputs: int = 0, ignore: int | None = None) -> None:
        self.sums = torch.zeros(0, dtype=torch.float64)
        """(n,): the errors."""

    def add(self, answers: Tensor, targets: Tensor) -> None:
        """Add reconstructions and inputs (b, ...)."""
        self.sums = torch.cat([self.sums, reconstruction_errors(answers, targets)])

    def report(self, names: Names) -> dict[str, Any]:
        errors = self.sums.sort().values
        # Linear between neighbors, like numpy's default; torch.quantile refuses more than 16 million items.
        positions = torch.tensor(QUANTILES, dtype=torch.float64) * (len(errors) - 1)
        below, above = errors[positions.floor().long()], errors[positions.ceil().long()]
        quantiles = below + (above - below) * (positions - positions.floor())
        named = {f"p{round(100 * share)}": value for share, value in zip(QUANTILES, quantiles.tolist(), strict=True)}
        return {"error": {"mean": float(errors.mean())} | named | {"max": float(errors[-1])}}


def measure_of(kind: TaskKind, outputs: int, ignore: int | None) -> Measure | None:
    """Make the measure of a kind of task; None if the meaning of its answers is unknown.

    `outputs`: number of classes or labels; `ignore`: label of pixels that do not count.
    """
    made: Measure | None = globals()[kind.measure_class](outputs, ignore) if kind.measure_class else None
    return made


def _merged(parts: Tensor) -> Tensor:
    """Add up the sums of `OfNumbers` (p, 7, k) over p sets of items (Chan, Golub and LeVeque. Updating formulae and a pairwise algorithm. 1979)."""
    counts, means = parts[:, 0], parts[:, 1]
    count = counts.sum(0)
    mean = (counts * means).sum(0) / count
    spread = (parts[:, 2] + counts * (means - mean).square()).sum(0)
    return torch.stack([count, mean, spread, parts[:, 3].amin(0), parts[:, 4].amax(0), *parts[:, 5:].sum(0)])


def _means(hits: Tensor, counts: Tensor, answered: Tensor, items: int) -> dict[str, float]:
    """Return the means over classes or labels, given each one's number of right answers, of items and of answers."""
    others = items - counts
    return {
        "precision": _mean(hits, answered),
        "recall": _mean(hits, counts),
        "f1": _mean(2 * hits, counts + answered),
        "specificity": _mean(others - (answered - hits), others),
    }


def _mean(parts: Tensor, wholes: Tensor) -> float:
    """Return the mean of part / whole; a whole of 0 counts as 0."""
    return float((parts.double() / wholes.clamp(min=1)).mean())


def _macro(numbers: dict[str, float]) -> dict[str, float]:
    """Select the means that `evaluate` reports."""
    return {name: numbers[name] for name in ("precision", "recall", "f1")}


def _rows(hits: Tensor, counts: Tensor, answered: Tensor, heads: dict[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return precision, recall, F1 and count of each class or label, after its `heads`."""
    return [
        dict(zip(heads, head, strict=True))
        | {
            "precision": _ratio(hit, predicted),
            "recall": _ratio(hit, count),
            "f1": _ratio(2 * hit, count + predicted),
            "count": count,
        }
        for hit, count, predicted, *head in zip(hits.tolist(), counts.tolist(), answered.tolist(), *heads.values(), strict=True)
    ]


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
