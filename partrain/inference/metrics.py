"""Metrics by kind of task. Each collects batch after batch, then reports values that JSON can hold.

Symbols: b items of a batch; C classes; k numbers; L tokens of an item.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from partrain.inference.codec import Codec

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

    None where the denominator is 0: precision of a class that no answer names, recall of a class without items.
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
        seen = [row for row in rows if row["count"]]
        macro = {name: _mean([row[name] for row in seen]) for name in ("precision", "recall", "f1")}
        return {"macro": macro, "classes": rows, "confusion": self.confusion.tolist()}

    def _class(self, label: int) -> dict[str, Any]:
        hits = int(self.confusion[label, label])
        count, answered = int(self.confusion[label].sum()), int(self.confusion[:, label].sum())
        named = {"name": self.names[label]} if self.names else {}
        quality = {"precision": _ratio(hits, answered), "recall": _ratio(hits, count), "f1": _ratio(2 * hits, count + answered)}
        return {"label": label} | named | quality | {"count": count}


class ByNumber:
    """Errors of numbers (b, k), in the units of the data set's files: mean absolute error, root mean square error, and R².

    R² = 1 - sum of squared errors / sum of squared deviations from the mean; None where the targets do not vary. Over several
    numbers it is their mean, as usual. With `naive`, also the errors of a forecast that repeats the newest value.
    """

    def __init__(self, codec: Codec, naive: bool = False) -> None:
        self.codec = codec
        self.naive = naive
        self._answers: list[Tensor] = []
        self._naive: list[Tensor] = []
        self._targets: list[Tensor] = []

    def add(self, inputs: Tensor, answers: Tensor, targets: Tensor) -> None:
        self._answers.append(self.codec.restore_units(answers.double().flatten(1)))
        self._targets.append(self.codec.restore_units(targets.double().flatten(1)))
        if self.naive:
            self._naive.append(self.codec.newest(inputs.double(), targets.flatten(1).shape[1]))

    def report(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        targets = torch.cat(self._targets)
        found = _errors(torch.cat(self._answers), targets, self.codec.names(targets.shape[1]))
        if self.naive:
            found["naive"] = _errors(torch.cat(self._naive), targets, None)
        return found


class ByToken:
    """Perplexity = exp(loss) of the next token, and its bits = loss / ln 2."""

    def add(self, inputs: Tensor, answers: Tensor, targets: Tensor) -> None:
        self._length = targets.shape[1]

    def report(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        loss = scores["loss"]
        perplexity = math.exp(loss) if loss < 700 else None
        return {"tokens": scores["items"] * self._length, "perplexity": perplexity, "bits_per_token": loss / math.log(2)}


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
    found: dict[str, Any] = {"mae": float(mae.mean()), "rmse": math.sqrt(float(mse.mean())), "r2": _mean(r2)}
    if names and len(names) > 1:
        each = zip(names, mae.tolist(), mse.sqrt().tolist(), r2, strict=True)
        found["numbers"] = [{"name": name, "mae": a, "rmse": q, "r2": r} for name, a, q, r in each]
    return found


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean, or None if any value is missing: a mean over some values would mislead."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
