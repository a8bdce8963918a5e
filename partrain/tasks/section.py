"""The `[task]` table."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from partrain.config.section import Section
from partrain.config.usercode import UserCode
from partrain.tasks.kinds import Kind
from partrain.tasks.metric_names import JUDGED, LOWER, name_of


class TaskMetrics(Section):
    """The metrics that judge a task, in addition to loss and accuracy."""

    metrics: list[str] | None = Field(None, min_length=1)
    """Judged numbers in addition to loss and accuracy: names such as "f1" and "auroc" (torchmetrics computes some), or your own
    as "file.py:Metric"."""
    lower_is_better: list[str] | None = Field(None, min_length=1)
    """Names of your own metrics for which lower is better."""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = list(map(name_of, self.metrics or ()))
        if taken := [name for name in names if name in JUDGED or names.count(name) > 1]:
            why = "is judged anyway" if taken[0] in JUDGED else "is there twice"
            raise ValueError(f"`metrics`: `{taken[0]}` {why}: remove it")
        own = [name_of(metric) for metric in self.metrics or () if ":" in metric]
        if wrong := [name for name in self.lower_is_better or () if name not in own]:
            raise ValueError(f"`lower_is_better`: `{wrong[0]}` is not one of your own metrics; it has {', '.join(own) or 'none'}")
        return self

    @property
    def judged(self) -> dict[str, bool]:
        """Names of the metrics; True if lower is better."""
        lower = self.lower_is_better or ()
        return {
            name_of(metric): name_of(metric) in lower if ":" in metric else LOWER.get(metric, False)
            for metric in self.metrics or ()
        }

    @property
    def metrics_code(self) -> list[str]:
        """The user code among the metrics."""
        return [metric for metric in self.metrics or () if ":" in metric]


class BuiltinTask(TaskMetrics):
    """A built-in task. The table is optional if the data set or the model implies the task."""

    kind: Kind | None = None
    """Kind of the answers: a class, numbers, future numbers (forecast), the next token of each token (language), the item itself
    (autoencoder), several labels that are each right or wrong (multi-label), or a class for each pixel (segmentation). Default:
    as the data set or the network implies."""
    class_weights: Literal["balanced"] | list[float] | dict[str, float] | None = None
    """Classification, segmentation: factor of each item's loss by its class. A list in the order of the classes, a table by class
    name (others 1), or "balanced": n / (classes * count)."""
    label_smoothing: float | None = Field(None, gt=0, lt=1)
    """Classification, segmentation, language: share of each target that is spread evenly over all classes, as in torch (Szegedy
    et al. 2016)."""
    focal: float | None = Field(None, gt=0)
    """Classification, multi-label, segmentation: gamma of the focal loss, cross-entropy * (1 - p)^gamma, where p is the
    probability of the true class (Lin et al. 2017)."""
    loss: Literal["squared", "absolute", "huber", "quantile", "poisson"] | None = None
    """Regression, forecast, autoencoder: the loss of numbers; default: "squared". "poisson" is for counts: the network answers
    the logarithm of the expected count. "quantile" and "poisson" are not for autoencoders."""
    delta: float | None = Field(None, gt=0)
    """With loss = "huber": error above which the loss is linear, in units of the training targets; default: 1."""
    quantile: float | None = Field(None, gt=0, lt=1)
    """With loss = "quantile", and required there: the quantile that answers estimate (pinball loss), such as 0.9."""

    threshold: float | None = Field(None, gt=0, lt=1)
    """Multi-label: probability from which the network gives a label; default: 0.5."""
    ignore_index: int | None = Field(None, ge=0, le=255)
    """Segmentation: label of the pixels that do not count; default: 255."""

    @property
    def unlabeled(self) -> int:
        """Label of the pixels that do not count."""
        return 255 if self.ignore_index is None else self.ignore_index

    @field_validator("class_weights", mode="before")
    @classmethod
    def _positive(cls, weights: Any) -> Any:
        values = [1.0] if weights in (None, "balanced") else list(weights.values()) if isinstance(weights, dict) else weights
        numbers = isinstance(values, list) and all(type(value) in (int, float) and 0 <= value < math.inf for value in values)
        if not numbers or not any(values):
            raise ValueError(
                'expected "balanced", a list of numbers by class, or a table { class = number }; none below 0, not all 0'
            )
        return weights

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
    """Your own task: `name` is a subclass of `partrain.Task` with its own loss, accuracy or backward pass. Other keys are arguments."""

    table: ClassVar[str] = "task"


def _tag(table: Any) -> str:
    named = "name" in table if isinstance(table, dict) else isinstance(table, UserTask)
    return "user" if named else "known"


AnyTask = Annotated[
    Annotated[BuiltinTask, Tag("known")] | Annotated[UserTask, Tag("user")],
    Discriminator(_tag),
]
