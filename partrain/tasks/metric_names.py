"""The metrics that `[task] metrics` knows by name. `measures` computes those that `evaluate` reports, torchmetrics the others."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

JUDGED = ("loss", "accuracy")
"""Numbers that every judgement has."""


class KnownMetric(NamedTuple):
    """A metric that a job may name: who computes it, with which arguments, and its range."""

    target: str = ""
    """Module below `torchmetrics`, and class; empty if the measure of the kind of task computes it."""
    lower: bool = False
    """True if lower is better."""
    arguments: Mapping[str, Any] = MappingProxyType({})
    """Further arguments besides the number of classes, labels or numbers."""
    least: int = 1
    """Smallest number of classes for which it is defined."""
    bounds: tuple[float, float] = (0.0, 1.0)
    """The smallest and largest possible number."""
    counted: str = ""
    """Name of the argument for the number of classes, labels or numbers; empty without one."""


OF_PROBABILITIES = ("auroc", "average_precision", "top5_accuracy", "calibration_error")
"""Metrics of torchmetrics that take probabilities. The other metrics of classes and labels take labels."""
BY_CLASS = ("auroc", "average_precision")
"""Metrics of torchmetrics that are computed by class or label. Their mean leaves out those where they are undefined."""
_SIGNED = ("mcc", "cohen_kappa")
"""Metrics of classes that are negative for answers worse than guessing."""
_ERROR = (0.0, math.inf)
_COUNTED = {"Multiclass": "num_classes", "Multilabel": "num_labels"}


def _of(prefix: str, **classes: str) -> dict[str, KnownMetric]:
    return {
        name: KnownMetric(
            f"classification:{prefix}{metric}",
            arguments={"average": "none"} if name in BY_CLASS else {},
            bounds=(-1.0 if name in _SIGNED else 0.0, 1.0),
            counted=_COUNTED[prefix],
        )
        for name, metric in classes.items()
    }


NUMBERS = {
    "mae": KnownMetric(lower=True, bounds=_ERROR),
    "mse": KnownMetric(lower=True, bounds=_ERROR),
    "rmse": KnownMetric(lower=True, bounds=_ERROR),
    "mape": KnownMetric("regression:MeanAbsolutePercentageError", lower=True, bounds=_ERROR),
    "smape": KnownMetric("regression:SymmetricMeanAbsolutePercentageError", lower=True, bounds=(0.0, 2.0)),
    "msle": KnownMetric("regression:MeanSquaredLogError", lower=True, bounds=_ERROR),
    "r2": KnownMetric(bounds=(-math.inf, 1.0)),
    "explained_variance": KnownMetric("regression:ExplainedVariance", bounds=(-math.inf, 1.0)),
    "spearman": KnownMetric("regression:SpearmanCorrCoef", bounds=(-1.0, 1.0), counted="num_outputs"),
}
_QUALITY = dict.fromkeys(("f1", "precision", "recall", "specificity"), KnownMetric())
_RANKING = {"auroc": "AUROC", "average_precision": "AveragePrecision"}

CLASSES = (
    _QUALITY
    | _of("Multiclass", **_RANKING, mcc="MatthewsCorrCoef", cohen_kappa="CohenKappa")
    | {
        "top5_accuracy": KnownMetric(
            "classification:MulticlassAccuracy", arguments={"top_k": 5, "average": "micro"}, least=5, counted="num_classes"
        ),
        "calibration_error": KnownMetric("classification:MulticlassCalibrationError", lower=True, counted="num_classes"),
    }
)
LABELS = _QUALITY | _of("Multilabel", **_RANKING) | {"exact_match": KnownMetric()} | _of("Multilabel", mcc="MatthewsCorrCoef")
MAPS = _QUALITY | _of("Multiclass", mcc="MatthewsCorrCoef")
TOKENS = {"perplexity": KnownMetric(lower=True, bounds=(1.0, math.inf))}
METRICS = CLASSES | LABELS | MAPS | NUMBERS | TOKENS
"""Metrics of classes, of labels that are right or wrong, of label maps, of numbers, and of tokens. Those of classes and labels are
means over classes or labels (macro)."""

LOWER = {name: metric.lower for name, metric in METRICS.items()}
"""All names; True if lower is better."""
BOUNDS = {"mean_iou": (0.0, 1.0)} | {name: metric.bounds for name, metric in METRICS.items()}
"""The smallest and the largest number of each metric, by name."""


def lower_is_better(name: str, own: Collection[str] = ()) -> bool:
    """Return whether lower is better for the number with this name: a loss, an error, or one of the job's `own` errors."""
    return name == "loss" or name in own or LOWER.get(name, False)


def name_of(metric: str) -> str:
    """Return a metric's name in results: `file.py:Metric` becomes `Metric`."""
    return metric.rpartition(":")[2].rpartition(".")[2]
