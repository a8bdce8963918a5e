"""Metrics by kind of task. Each collects batch after batch, then reports values that JSON can hold.

Symbols: b items of a batch; C classes; k numbers; L tokens of an item.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from partrain.inference.codec import Codec
from partrain.tasks.kinds import PADDING, Task

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Reported quantiles of the reconstruction error."""


class Metric(Protocol):
    """A metric over the answers to many items."""

    def add(self, inputs: Tensor, answers: Tensor, targets: Tensor) -> None:
        """Add a batch."""

    def report(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metrics. `scores` holds number of items, loss and accuracy, which they do not repeat."""


class ByClass:
    """Precision, recall and F1 of each class, from the confusion matrix: row = true class, column = answer.

    None where the denominator is 0: precision of a class that no answer names, recall of a class without items. Their means count it as
    0, and leave out classes that are neither true nor answered, as average = "macro" in torchmetrics and scikit-learn.
    """

    def __init__(self, classes: int, names: Sequence[str] | None = None) -> None:
        self.confusion = torch.zeros(classes, classes, dtype=torch.int64)
        self.names = names

    def add(self, inputs: Tensor, answers: Tensor, targets: Tensor) -> None:
        """Add a batch: answers (b, C) are logits, targets (b,) labels."""
        classes = len(self.confusion)
        pairs = targets.cpu() * classes + answers.argmax(1).cpu()
        self.confusion += torch.bincount(pairs, minlength=classes * classes).view(classes, classes)

    def report(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        rows = [self._class(label) for label in range(len(self.confusion))]
        met = (self.confusion.sum(0) + self.confusion.sum(1) > 0).tolist()
        return {
            "macro": _macro([row for row, one in zip(rows, met, strict=True) if one]),
            "classes": rows,
            "confusion": self.confusion.tolist(),
        }

    def _class(self, label: int) -> dict[str, Any]:
        hits = int(self.confusion[label, label])
        count, answered = int(self.confusion[label].sum()), int(self.confusion[:, label].sum())
        named = {"name": self.names[label]} if self.names else {}
        quality = {"precision": _ratio(hits, answered), "recall": _ratio(hits, count), "f1": _ratio(2 * hits, count + answered)}
        return {"label": label} | named | quality | {"count": count}


class ByLabel:
    """Precision, recall and F1 of each of k labels that are right or wrong, and the share of items with all labels right.

    The means are over all labels, as average = "macro" in torchmetrics and scikit-learn: 0 counts where a denominator is 0.
    """

    def __init__(self, task: Task, names: Sequence[str]) -> None:
        self._labels, self.names = getattr(task, "labels", lambda answers: answers > 0), names
        self.hits, self.answered, self.counts = (torch.zeros(len(names), dtype=torch.int64) for _ in range(3))
        self.exact = 0

    def add(self, inputs: Tensor, answers: Tensor, targets: Tensor) -> None:
        """Add a batch: answers (b, k) are logits, targets (b, k) are 0 or 1."""
        given, true = self._labels(answers).cpu(), targets.cpu() > 0
        self.hits += (given & true).sum(0)
        self.answered += given.sum(0)
        self.counts += true.sum(0)
        self.exact += int((given == true).all(1).sum())

    def report(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        rows = []
        for name, hits, answered, count in zip(
            self.names, self.hits.tolist(), self.answered.tolist(), self.counts.tolist(), strict=True
        ):
            quality = {
                "precision": _ratio(hits, answered),
                "recall": _ratio(hits, count),
                "f1": _ratio(2 * hits, count + answered),
            }
            rows.append({"name": name} | quality | {"count": count})
        return {"exact_match": self.exact / scores["items"], "macro": _macro(rows), "labels": rows}


class ByPixel:
    """Pixel accuracy, and intersection over union of each class, over the pixels of all images that have a label."""

    def __init__(self, classes: int, task: Task) -> None:
        self.confusion = torch.zeros(classes, classes, dtype=torch.int64)
        self._ignore = getattr(task, "ignore", -1)

    def add(self, inputs: Tensor, answers: Tensor, targets: Tensor) -> None:
        """Add a batch: answers (b, C, h, w) are logits, targets (b, h, w) labels."""
        known, classes = targets != self._ignore, len(self.confusion)
        pairs = (targets[known].long() * classes + answers.argmax(1)[known]).cpu()
        self.confusion += torch.bincount(pairs, minlength=classes * classes).view(classes, classes)

    def report(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        hits, counts = self.confusion.diagonal().tolist(), self.confusion.sum(1).tolist()
        union = (self.confusion.sum(0) + self.confusion.sum(1) - self.confusion.diagonal()).tolist()
        rows = [
            {"label": label, "iou": _ratio(hit, whole), "recall": _ratio(hit, count), "pixels": count}
            for label, (hit, whole, count) in enumerate(zip(hits, union, counts, strict=True))
        ]
        return {"pixel_accuracy": _ratio(sum(hits), sum(counts)), "classes": rows}


class ByNumber:
    """Errors of numbers (b, k), in the units of the data set's files: mean absolute error, root mean square error, and R².

    R² = 1 - sum of squared errors / sum of squared deviations from the mean; None where the targets do not vary. Over several
    numbers each metric is the mean of theirs, as in scikit-learn. With `naive`, also the errors of a forecast that repeats the newest
    value, and of one that repeats the newest season.

    Args:
        codec: The codec of the data set.
        naive: Compare a forecast with naive ones.
        newest: The newest values (n, number, targets) of each item, in order, where the data set keeps them.
        predicted: Makes the predicted numbers of the network's answers.
    """

    def __init__(
        self,
        codec: Codec,
        naive: bool = False,
        newest: Tensor | None = None,
        predicted: Callable[[Tensor], Tensor] = lambda answers: answers,
    ) -> None:
        self.codec = codec
        self.naive = naive
        self.newest = newest
        self._predicted = predicted
        self._answers: list[Tensor] = []
        self._seen: list[Tensor] = []
        self._targets: list[Tensor] = []

    def add(self, inputs: Tensor, answers: Tensor, targets: Tensor) -> None:
        self._answers.append(self._predicted(answers.double()).flatten(1))
        self._targets.append(targets.double().flatten(1))
        if self.naive and self.newest is None and self.codec.has_newest_values:
            self._seen.append(self.codec.newest(inputs.double()))

    def report(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        answers, targets = (self.codec.restore_units(torch.cat(parts), self.newest) for parts in (self._answers, self._targets))
        found = _errors(answers, targets, self.codec.names(targets.shape[1]))
        newest = self.newest if self.newest is not None else torch.cat(self._seen) if self._seen else None
        if not self.naive or newest is None:
            return found
        steps = targets.shape[1] // newest.shape[2]
        found["naive"] = _errors(newest[:, -1:].repeat(1, steps, 1).flatten(1), targets, None)
        if season := self.codec.season:
            found["seasonal_naive"] = _errors(
                newest[:, -season:].repeat(1, -(-steps // season), 1)[:, :steps].flatten(1), targets, None
            )
        return found


class ByToken:
    """Perplexity = exp(loss) of the next token, and its bits = loss / ln 2. Padding does not count; each other token counts once."""

    def __init__(self, padded: bool = False) -> None:
        """Begin without tokens. `padded`: some targets are padding. The loss of the task is then a mean over items, not over tokens."""
        self._padded, self._tokens, self._loss = padded, 0, 0.0

    def add(self, inputs: Tensor, answers: Tensor, targets: Tensor) -> None:
        self._tokens += int((targets != PADDING).sum()) if self._padded else targets.numel()
        if self._padded:
            self._loss += float(cross_entropy(answers.transpose(1, 2), targets, ignore_index=PADDING, reduction="sum"))

    def report(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        loss = self._loss / self._tokens if self._padded else scores["loss"]
        perplexity = math.exp(loss) if loss < 700 else None
        return {"tokens": self._tokens, "perplexity": perplexity, "bits_per_token": loss / math.log(2)}


class ByItem:
    """The reconstruction error of each item: mean squared difference between an input and its reconstruction."""

    def __init__(self) -> None:
        self._errors: list[Tensor] = []

    def add(self, inputs: Tensor, answers: Tensor, targets: Tensor) -> None:
        self._errors.append(reconstruction_errors(answers, targets))

    def report(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        errors = torch.cat(self._errors).sort().values
        # Linear between neighbors, as numpy's default; torch.quantile refuses more than 16 million items.
        positions = torch.tensor(QUANTILES, dtype=torch.float64) * (len(errors) - 1)
        below, above = errors[positions.floor().long()], errors[positions.ceil().long()]
        quantiles = below + (above - below) * (positions - positions.floor())
        named = {f"p{round(100 * share)}": value for share, value in zip(QUANTILES, quantiles.tolist(), strict=True)}
        return {"error": {"mean": float(errors.mean())} | named | {"max": float(errors[-1])}}


def reconstruction_errors(answers: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared difference of each item (b,)."""
    return (answers.double() - targets.double()).square().flatten(1).mean(1)


def _errors(answers: Tensor, targets: Tensor, names: Sequence[str] | None) -> dict[str, Any]:
    """Return the errors of (n, k) answers: over all numbers, and for each if there are several with `names`."""
    difference = answers - targets
    mae, mse = difference.abs().mean(0), difference.square().mean(0)
    spread, varies = (targets - targets.mean(0)).square().mean(0), (targets != targets[0]).any(0)
    r2 = [1 - m / s if v and s else None for m, s, v in zip(mse.tolist(), spread.tolist(), varies.tolist(), strict=True)]
    found: dict[str, Any] = {"mae": float(mae.mean()), "rmse": float(mse.sqrt().mean()), "r2": _mean(r2)}
    if names and len(names) > 1:
        each = zip(names, mae.tolist(), mse.sqrt().tolist(), r2, strict=True)
        found["numbers"] = [{"name": name, "mae": a, "rmse": q, "r2": r} for name, a, q, r in each]
    return found


def _macro(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the means over classes or labels of numbers that count as 0 where they are undefined."""
    return {name: sum(row[name] or 0.0 for row in rows) / len(rows) for name in ("precision", "recall", "f1")}


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean, or None if any value is missing: a mean over some values would mislead."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
