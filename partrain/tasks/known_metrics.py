"""The metrics that torchmetrics computes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, util
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from partrain.config.problems import Finding, WrongValue
from partrain.system.postponed import postponed
from partrain.system.torchvision import import_torchvision
from partrain.tasks.metric_names import KnownMetric


def known_metric(spec: KnownMetric, outputs: int, ignore: int | None) -> Any:
    """Make a metric of torchmetrics for a number of classes, labels or numbers; `ignore`: label of pixels left out."""
    module, _, name = spec.target.partition(":")
    import_torchmetrics()
    metric = getattr(import_module(f"torchmetrics.{module}"), name)
    metric = _where_defined(metric) if name.endswith("AUROC") else metric
    counted: dict[str, Any] = {spec.counted: outputs} if spec.counted else {}
    with silent():
        made: Any = metric(**counted, **({} if ignore is None else {"ignore_index": ignore}), **spec.arguments)
    return made.set_dtype(torch.float64) if spec.target.startswith("regression:") else made


def _where_defined(metric: Any) -> Any:
    """Return a class of areas under ROC curves that are NaN for a class that all or no items have; torchmetrics gives 0."""

    def compute(self: Any) -> Tensor:
        areas, targets = metric.compute(self), self.target  # a list of batches for one worker, a tensor for several
        targets = targets if isinstance(targets, Tensor) else torch.cat(targets)
        counts = targets.bincount(minlength=len(areas)) if targets.ndim == 1 else targets.sum(0)
        defined: Tensor = areas.where((counts > 0) & (counts < len(targets)), math.nan)
        return defined

    return type(metric.__name__, (metric,), {"compute": compute})


@contextmanager
def silent() -> Iterator[None]:
    """Suppress torchmetrics' warnings of memory, of classes without items, and the like."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def import_torchmetrics() -> ModuleType:
    """Import torchmetrics. It also imports an installed torchvision, which may be compiled for another build of torch."""
    if util.find_spec("torchmetrics") is None:
        what = "they are computed by torchmetrics, which is not installed: pip install 'partrain[metrics]'"
        raise WrongValue(Finding(("task", "metrics"), what))
    if util.find_spec("torchvision") is not None:
        import_torchvision("torchvision")
    with postponed("scipy.signal", "hamming"):  # the import takes a second; torchmetrics only checks that this function exists
        return import_module("torchmetrics")
