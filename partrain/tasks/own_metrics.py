"""Metrics that are user code: a class or an object of torchmetrics.Metric, or a function of all answers and targets."""

from __future__ import annotations

from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from partrain.config.usercode import UserCode, find
from partrain.errors import UserCodeFailed
from partrain.tasks.known_metrics import import_torchmetrics
from partrain.tasks.metric_names import name_of


class CollectedMetric:
    """A function of all answers and all targets as a metric."""

    dist_sync_fn: Callable[..., list[Tensor]]

    def __init__(self, function: Callable[[Tensor, Tensor], Any]) -> None:
        self._function = function
        self.reset()

    def update(self, answers: Tensor, targets: Tensor) -> None:
        self._parts.append((answers, targets))

    def compute(self) -> Any:
        answers, targets = (
            torch.cat(pieces) if pieces else torch.empty(0) for pieces in (*zip(*self._parts, strict=True),) or ((), ())
        )
        return self._function(*(torch.cat([x for x in self.dist_sync_fn(own) if len(x)]) for own in (answers, targets)))

    def reset(self) -> None:
        self._parts: list[tuple[Tensor, Tensor]] = []


def own_metric(name: str, *, lower: bool, folder: Path) -> Any:
    """Import a metric. Raises UserCodeFailed if the object is not a metric."""
    if util.find_spec("torchmetrics"):
        import_torchmetrics()  # for the import in the user's file
    made: Any = find("task", UserCode(name=name), folder, "metrics")
    if isinstance(made, type):
        made = made()
    if all(callable(getattr(made, method, None)) for method in ("update", "compute", "reset")):
        if getattr(made, "higher_is_better", None) is False and not lower:
            raise UserCodeFailed(
                f'[task] metrics: lower is better of `{name}`: add lower_is_better = ["{name_of(name)}"] to [task]'
            )
        return made
    if not callable(made):
        what = "is neither a torchmetrics.Metric nor a function of answers and targets"
        raise UserCodeFailed(f"[task] metrics: `{name}` {what}")
    return CollectedMetric(made)


def own_number(value: Any, code: str) -> float:
    """Return a metric's number. Raises UserCodeFailed for several numbers, or anything else."""
    try:
        number = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        what = type(value).__name__
    else:
        if number.numel() == 1 and not number.is_complex():
            return float(number)
        what = "a complex number" if number.numel() == 1 else f"numbers of shape {tuple(number.shape)}"
    raise UserCodeFailed(f"[task] metrics: `{code}` gives {what}; expected one number")
