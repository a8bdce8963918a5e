"""The `[optimizer]` table: the local optimizer of a worker, with torch's names and settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from partrain.config.problems import Finding
from partrain.config.section import OneOf, Section, by_key
from partrain.optim.schedule import Scheduled, finding

FLOAT32_RANGE = 1.18e-38, 3.4e38
"""Range of float32: smaller numbers become 0, larger ones infinite."""


class OptimizerGroup(Section):
    """Parameters with their own learning rate or weight decay: one `[[optimizer.groups]]` table."""

    match: list[str] = Field(min_length=1)
    """Patterns of names of parameters, as in `freeze`: `head.*`. A parameter belongs to the first group that it matches."""
    lr: float | None = Field(None, gt=0)
    """Peak learning rate of the group; default: `lr` of `[optimizer]`. The schedule changes both in the same way."""
    weight_decay: float | None = Field(None, ge=0)
    """Weight decay of the group; default: `weight_decay` of `[optimizer]`. `decay = "matrices"` also applies here."""

    @model_validator(mode="after")
    def _sets_something(self) -> Self:
        if self.lr is None and self.weight_decay is None:
            raise ValueError("the group changes nothing: give it `lr` or `weight_decay`")
        return self


SINGLE_ITEMS = "change `batch_size` or `accumulate`, or give rounds `iterations` instead of `passes`"
"""Advice for a job whose BatchNorm would see a single item."""


class Optimizer(Scheduled):
    """The keys of every optimizer: batches, gradient clipping, a schedule."""

    if TYPE_CHECKING:  # each optimizer declares its own
        name: str = ""

    batch_size: int = Field(64, ge=1)
    """Number of items of each worker in each iteration: two workers with 64 train 128 items in the same time."""
    full_batch: bool = False
    """Use all items of the worker's partition in each iteration, instead of `batch_size`."""
    accumulate: int = Field(1, ge=1)
    """Gradient accumulation: number of parts of a batch, computed one after the other to save memory. The gradient equals that of
    the whole batch up to rounding. BatchNorm sees each part as a batch."""
    clip_norm: float | None = Field(None, gt=0)
    """Gradient clipping: largest norm of the gradient, over all tensors together. A longer gradient is scaled down to it. This is
    the worker's gradient, or the mixed gradient under a rule that mixes gradients."""
    clip_value: float | None = Field(None, gt=0)
    """Gradient clipping: largest magnitude of each number of the gradient. Larger numbers are cut to it, before `clip_norm`."""

    groups: list[OptimizerGroup] = []
    """Groups of parameters with their own learning rate or weight decay: `match` (patterns of names) with `lr`,
    `weight_decay` or both. The first group that matches a name counts. Other parameters have the values of `[optimizer]`."""
    layer_decay: float | None = Field(None, gt=0, le=1)
    """Factor of the learning rate from each layer to the layer before it: the last layer has `lr`, the one before it
    `layer_decay * lr`."""

    unused_keys: ClassVar[tuple[str, ...]] = ()
    """Common keys that have no effect on this optimizer."""
    rateless: ClassVar[bool] = False
    """True: steps have their own sizes, and no learning rate scales them."""

    @property
    def moments(self) -> dict[str, float]:
        """Names of the vectors (d,) that the optimizer keeps, and the initial value of each."""
        return {}

    @property
    def counts_steps(self) -> bool:
        """True if a step depends on the number of steps before it, such as Adam's bias correction."""
        return False

    @property
    def has_own_rates(self) -> bool:
        """True if parameters have different learning rates."""
        return any(group.lr is not None for group in self.groups) or self.layer_decay not in (None, 1.0)

    def batch(self, partition: int, own: int | None = None) -> int:
        """Return the items per iteration on a partition of this size; `own`: the number that the worker's table sets."""
        return partition if self.full_batch else own or self.batch_size

    def last_batch(self, partition: int, own: int | None = None, *, whole_passes: bool) -> int:
        """Return the items of the smallest batch on a partition of this size: a pass's last batch, if rounds are whole passes."""
        batch = min(self.batch(partition, own), partition)
        return (partition % batch or batch) if whole_passes else batch

    def check(self) -> Iterator[Finding]:
        yield from super().check()
        for key in ("lr", "eps", "adamw_lr", "adamw_eps"):
            if (number := getattr(self, key, None)) and not FLOAT32_RANGE[0] <= number <= FLOAT32_RANGE[1]:
                result = "0" if number < 1 else "infinite"
                yield finding(key, f"`{key}` = {number:g} is {result} in float32, in which steps are computed")
        for index, group in enumerate(self.groups):
            if group.lr is not None and not FLOAT32_RANGE[0] <= group.lr <= FLOAT32_RANGE[1]:
                message = f"`lr` = {group.lr:g} is {'0' if group.lr < 1 else 'infinite'} in float32, in which steps are computed"
                yield Finding(("optimizer", "groups", index, "lr"), message)
        for key in self.unused_keys:
            if key in self.model_fields_set:
                yield finding(key, f'`{key}` has no effect on the steps of "{self.name}"', "remove it")
        if self.full_batch and "batch_size" in self.model_fields_set:
            yield finding("batch_size", "`batch_size` has no effect on full batches", "remove it, or set full_batch = false")
        elif not self.full_batch and self.accumulate > self.batch_size:
            yield finding("accumulate", f"a batch of {self.batch_size} items cannot have {self.accumulate} parts")


class Decaying(Optimizer):
    """An optimizer with weight decay."""

    weight_decay: float = Field(0.0, ge=0)
    """Weight decay: this factor times each parameter is added to its gradient (L2 regularization)."""
    decay: Literal["all", "matrices"] = "all"
    """Parameters that decay: all, or only those with two axes or more (`matrices`: no biases, no weights of norms)."""

    @property
    def decays(self) -> bool:
        """True if any parameter decays."""
        return bool(self.weight_decay) or any(group.weight_decay for group in self.groups)

    def check(self) -> Iterator[Finding]:
        yield from super().check()
        if "decay" in self.model_fields_set and not self.decays:
            yield finding("decay", "`decay` has no effect without `weight_decay`", "for example, add `weight_decay = 0.01`")


class Sgd(Decaying):
    """Stochastic gradient descent with momentum, as torch.optim.SGD."""

    name: Literal["sgd"] = "sgd"
    momentum: float = Field(0.0, ge=0, lt=1)
    """Momentum: share of the previous step that each step keeps."""
    dampening: float = Field(0.0, ge=0, lt=1)
    """Share of each gradient but the first that the momentum leaves out."""
    nesterov: bool = False
    """Use Nesterov momentum."""

    @property
    def moments(self) -> dict[str, float]:
        return {"momentum": 0.0} if self.momentum else {}

    @property
    def counts_steps(self) -> bool:
        return bool(self.dampening)

    def check(self) -> Iterator[Finding]:
        yield from super().check()
        if self.nesterov and not self.momentum:
            yield finding("nesterov", "`nesterov` needs momentum", "for example, add `momentum = 0.9`")
        if self.dampening and not self.momentum:
            yield finding("dampening", "`dampening` has no effect without momentum", "for example, add `momentum = 0.9`")
        if self.dampening and self.nesterov:
            yield finding("dampening", "Nesterov's momentum has no dampening", "remove `dampening` or `nesterov`")


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
