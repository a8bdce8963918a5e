"""The metrics that `[task] metrics` knows by name: classes of torchmetrics, with their arguments. Imports neither."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

JUDGED = ("loss", "accuracy")
"""Numbers that each judgement has anyway."""


class KnownMetric(NamedTuple):
    """A metric of torchmetrics."""

    target: str
    """Module below `torchmetrics`, and class."""
    lower: bool = False
    """True if lower is better."""
    arguments: Mapping[str, Any] = MappingProxyType({})
    """Arguments beside the number of classes, labels or numbers."""
    least: int = 1
    """Least number of classes that it is defined for."""


def _of(prefix: str, **classes: str) -> dict[str, KnownMetric]:
    return {name: KnownMetric(f"classification:{prefix}{each}") for name, each in classes.items()}


_NUMBERS = {
    "mae": KnownMetric("regression:MeanAbsoluteError", True),
    "mse": KnownMetric("regression:MeanSquaredError", True),
    "rmse": KnownMetric("regression:MeanSquaredError", True, {"squared": False}),
    "mape": KnownMetric("regression:MeanAbsolutePercentageError", True),
    "smape": KnownMetric("regression:SymmetricMeanAbsolutePercentageError", True),
    "msle": KnownMetric("regression:MeanSquaredLogError", True),
    "r2": KnownMetric("regression:R2Score"),
    "explained_variance": KnownMetric("regression:ExplainedVariance"),
    "spearman": KnownMetric("regression:SpearmanCorrCoef"),
}
_QUALITY = {"f1": "F1Score", "precision": "Precision", "recall": "Recall", "specificity": "Specificity"}
_RANKING = {"auroc": "AUROC", "average_precision": "AveragePrecision"}

METRICS: dict[str, dict[str, KnownMetric]] = {
    "classification": _of("Multiclass", **_QUALITY, **_RANKING, mcc="MatthewsCorrCoef", cohen_kappa="CohenKappa")
    | {
        "top5_accuracy": KnownMetric("classification:MulticlassAccuracy", False, {"top_k": 5, "average": "micro"}, 5),
        "calibration_error": KnownMetric("classification:MulticlassCalibrationError", True),
    },
    "multi-label": _of("Multilabel", **_QUALITY, **_RANKING, exact_match="ExactMatch", mcc="MatthewsCorrCoef"),
    "segmentation": _of("Multiclass", **_QUALITY, mcc="MatthewsCorrCoef"),
    "regression": _NUMBERS,
    "forecast": _NUMBERS,
    "language": {"perplexity": KnownMetric("text.perplexity:Perplexity", True)},
    "autoencoder": {},
}
"""Metrics by kind of task. Those of classes and labels are means over classes or labels (macro)."""

LOWER = {name: metric.lower for known in METRICS.values() for name, metric in known.items()}
"""All names; True if lower is better."""


def name_of(metric: str) -> str:
    """Return the name of a metric as results show it: `file.py:Metric` is `Metric`."""
    return metric.rpartition(":")[2].rpartition(".")[2]
