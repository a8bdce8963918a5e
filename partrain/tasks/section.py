"""The `[task]` table."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from partrain.config.section import Section
from partrain.config.usercode import UserCode
from partrain.tasks.metric_names import JUDGED, LOWER, name_of

Kind = Literal["classification", "regression", "forecast", "language", "autoencoder", "multi-label", "segmentation"]

COMPATIBLE_TASKS: dict[str, tuple[Kind, ...]] = {
    "classification": ("classification", "autoencoder"),
    "regression": ("regression", "forecast", "multi-label", "autoencoder"),
    "forecast": ("forecast", "regression", "autoencoder"),
    "language": ("language",),
    "segmentation": ("segmentation", "autoencoder"),
}
"""Kinds of task that are possible with the items of each kind of data set; the data set's own kind first."""

NUMBER_LOSSES: dict[str, tuple[Kind, ...]] = {
    "squared": ("regression", "forecast", "autoencoder"),
    "absolute": ("regression", "forecast", "autoencoder"),
    "huber": ("regression", "forecast", "autoencoder"),
    "quantile": ("regression", "forecast"),
    "poisson": ("regression", "forecast"),
}
"""Kinds of task that each value of `loss` is for."""

KEYS: dict[str, tuple[Kind, ...]] = {
    "class_weights": ("classification", "segmentation"),
    "label_smoothing": ("classification", "segmentation", "language"),
    "focal": ("classification", "multi-label", "segmentation"),
    "loss": ("regression", "forecast", "autoencoder"),
    "threshold": ("multi-label",),
    "ignore_index": ("segmentation",),
}
"""Kinds of task that each key of the loss is for."""


class TaskMetrics(Section):
    """The metrics that a task is judged by, beside loss and accuracy."""

    metrics: list[str] | None = Field(None, min_length=1)
    """Judged numbers: names of torchmetrics' metrics as "f1" and "auroc", and your own as "file.py:Metric"."""
    lower_is_better: list[str] | None = Field(None, min_length=1)
    """Names of your own metrics of which lower is better."""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = list(map(name_of, self.metrics or ()))
        if taken := [name for name in names if name in JUDGED or names.count(name) > 1]:
            why = "is judged anyway" if taken[0] in JUDGED else "is there twice"
            raise ValueError(f"`metrics`: `{taken[0]}` {why}: remove it")
        own = [name_of(metric) for metric in self.metrics or () if ":" in metric]
        if wrong := [name for name in self.lower_is_better or () if name not in own]:
            raise ValueError(f"`lower_is_better`: `{wrong[0]}` is none of your own metrics; it has {', '.join(own) or 'none'}")
        return self

    @property
    def judged(self) -> dict[str, bool]:
        """Names of the metrics; True if lower is better."""
        lower = self.lower_is_better or ()
        return {name_of(each): name_of(each) in lower if ":" in each else LOWER.get(each, False) for each in self.metrics or ()}

    @property
    def metrics_code(self) -> list[str]:
        """The user code among the metrics."""
        return [metric for metric in self.metrics or () if ":" in metric]


class BuiltinTask(TaskMetrics):
    """A built-in task. The table is optional if the data set or the model implies the task."""

    kind: Kind | None = None
    """Answers: labels, numbers, future numbers, the next token of each token, the item itself, labels that are right or wrong each
    (multi-label), or a label of each pixel (segmentation). Default: as data set and model imply."""
    class_weights: Literal["balanced"] | list[float] | dict[str, float] | None = None
    """Factors of the items' losses: in the order of the classes, by class name (others 1), or "balanced": n / (classes * count)."""
    label_smoothing: float | None = Field(None, gt=0, lt=1)
    """Share of each target that goes to all classes alike (Szegedy et al. 2016), as in torch."""
    focal: float | None = Field(None, gt=0)
    """Focal loss with this gamma: cross-entropy * (1 - p)^gamma, p = probability of the true class (Lin et al. 2017)."""
    loss: Literal["squared", "absolute", "huber", "quantile", "poisson"] | None = None
    """Loss of numbers; default: "squared". "poisson" is for counts: the network answers the logarithm of the expected count."""
    delta: float | None = Field(None, gt=0)
    """Error from which the Huber loss is linear, in units of the targets as trained on; default: 1."""
    quantile: float | None = Field(None, gt=0, lt=1)
    """The quantile that answers estimate (pinball loss), as 0.9; required with loss = "quantile"."""

    threshold: float | None = Field(None, gt=0, lt=1)
    """Probability from which a label counts as right (multi-label); default: 0.5."""
    ignore_index: int | None = Field(None, ge=0, le=255)
    """Label of pixels that do not count (segmentation); default: 255."""

    @field_validator("class_weights", mode="before")
    @classmethod
    def _positive(cls, given: Any) -> Any:
        values = [1.0] if given in (None, "balanced") else list(given.values()) if isinstance(given, dict) else given
        numbers = isinstance(values, list) and all(type(value) in (int, float) and 0 <= value < math.inf for value in values)
        if not numbers or not any(values):
            raise ValueError(
                'expected "balanced", a list of numbers by class, or a table { class = number }; none below 0, not all 0'
            )
        return given

    @model_validator(mode="after")
    def _without_contradiction(self) -> BuiltinTask:
        if self.focal and self.label_smoothing:
            raise ValueError("`focal` needs one true class of each item, and `label_smoothing` spreads it: keep one")
        if self.delta and self.loss != "huber":
            raise ValueError('`delta` is for loss = "huber"')
        if self.quantile and self.loss != "quantile":
            raise ValueError('`quantile` is for loss = "quantile"')
        if self.loss == "quantile" and not self.quantile:
            raise ValueError('loss = "quantile" needs the quantile: add, for example, quantile = 0.9')
        return self


class UserTask(TaskMetrics, UserCode):
    """A user task: a subclass of `partrain.Task` with its own loss, metrics or backward pass. Other keys are its arguments."""

    table: ClassVar[str] = "task"


def _tag(table: Any) -> str:
    named = "name" in table if isinstance(table, dict) else isinstance(table, UserTask)
    return "user" if named else "known"


AnyTask = Annotated[
    Annotated[BuiltinTask, Tag("known")] | Annotated[UserTask, Tag("user")],
    Discriminator(_tag),
]

assert set(get_args(Kind)) == {kind for fitting in COMPATIBLE_TASKS.values() for kind in fitting}
