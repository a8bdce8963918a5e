"""The `[optimizer]` table: the local optimizer of a worker, named and set as torch names and sets it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from partrain.config.section import OneOf, by_key
from partrain.optim.schedule import Remark, Scheduled

FLOAT32 = 1.18e-38, 3.4e38
"""What is smaller is 0 in float32, what is larger infinite."""


class Optimizer(Scheduled):
    """What every optimizer has: batches, limits of the gradient, a schedule."""

    if TYPE_CHECKING:  # each has its own one and only value
        name: str = ""

    batch_size: int = Field(64, ge=1)
    """Items per iteration and worker."""
    full_batch: bool = False
    """Instead: each iteration is on all items of the worker's partition."""
    accumulate: int = Field(1, ge=1)
    """Parts in which a batch is worked off one after the other, to save memory. The gradient is that of the whole batch up to
    rounding; BatchNorm sees the parts."""
    clip_norm: float | None = Field(None, gt=0)
    """The gradient that a step is taken with is shortened to this length, all tensors together: the worker's own, or the mixed
    one under a rule that mixes gradients."""
    clip_value: float | None = Field(None, gt=0)
    """Its numbers are brought within +- this, before it is shortened."""

    in_vain: ClassVar[tuple[str, ...]] = ()
    """Keys that are common to all but have no effect here."""
    rateless: ClassVar[bool] = False
    """True: steps have sizes of their own, and no learning rate scales them."""

    @property
    def moments(self) -> dict[str, float]:
        """The vectors (d,) it keeps, and the number that fills each at first."""
        return {}

    @property
    def counts(self) -> bool:
        """Whether the number of steps decides what a step does, as Adam's bias correction."""
        return False

    def batch(self, partition: int) -> int:
        """Items per iteration on a partition of so many."""
        return partition if self.full_batch else self.batch_size

    def remarks(self) -> Iterator[Remark]:
        yield from super().remarks()
        for key in ("lr", "eps", "adamw_lr", "adamw_eps"):
            if (number := getattr(self, key, None)) and not FLOAT32[0] <= number <= FLOAT32[1]:
                what = "0" if number < 1 else "infinite"
                yield Remark(key, f"`{key}` = {number:g} is {what} in float32, in which steps are computed")
        for key in self.in_vain:
            if key in self.model_fields_set:
                yield Remark(key, f'`{key}` has no effect on the steps of "{self.name}"', "remove it")
        if self.full_batch and "batch_size" in self.model_fields_set:
            yield Remark("batch_size", "`batch_size` has no effect on full batches", "remove it, or set full_batch = false")
        elif not self.full_batch and self.accumulate > self.batch_size:
            yield Remark("accumulate", f"{self.accumulate} parts are more than the {self.batch_size} items of a batch")


class Decaying(Optimizer):
    """An optimizer that draws parameters towards zero."""

    weight_decay: float = Field(0.0, ge=0)
    decay: Literal["all", "matrices"] = "all"
    """Which parameters decay: all, or only those of two axes or more, not biases and the weights of norms."""

    def remarks(self) -> Iterator[Remark]:
        yield from super().remarks()
        if "decay" in self.model_fields_set and not self.weight_decay:
            yield Remark("decay", "`decay` has no effect without `weight_decay`", "add `weight_decay = 0.01`, say")


class Sgd(Decaying):
    """Stochastic gradient descent with momentum, as torch.optim.SGD."""

    name: Literal["sgd"] = "sgd"
    momentum: float = Field(0.0, ge=0, lt=1)
    dampening: float = Field(0.0, ge=0, lt=1)
    """Share of each gradient but the first that the momentum does not take in."""
    nesterov: bool = False

    @property
    def moments(self) -> dict[str, float]:
        return {"momentum": 0.0} if self.momentum else {}

    @property
    def counts(self) -> bool:
        return bool(self.dampening)

    def remarks(self) -> Iterator[Remark]:
        yield from super().remarks()
        if self.nesterov and not self.momentum:
            yield Remark("nesterov", "`nesterov` needs momentum", "add `momentum = 0.9`, say")
        if self.dampening and not self.momentum:
            yield Remark("dampening", "`dampening` has no effect without momentum", "add `momentum = 0.9`, say")
        if self.dampening and self.nesterov:
            yield Remark("dampening", "Nesterov's momentum has no dampening", "remove `dampening` or `nesterov`")


OPTIMIZERS = {
    "sgd": "partrain.optim:Sgd",
    "adam": "partrain.optim.sections:Adam",
    "adamw": "partrain.optim.sections:AdamW",
    "nadam": "partrain.optim.sections:NAdam",
    "radam": "partrain.optim.sections:RAdam",
    "adamax": "partrain.optim.sections:Adamax",
    "rmsprop": "partrain.optim.sections:RmsProp",
    "adagrad": "partrain.optim.sections:Adagrad",
    "rprop": "partrain.optim.sections:Rprop",
    "lbfgs": "partrain.optim.sections:Lbfgs",
    "muon": "partrain.optim.sections:Muon",
}

AnyOptimizer = Annotated[Optimizer, OneOf(OPTIMIZERS, by_key("name"))]
