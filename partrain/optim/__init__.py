"""The `[optimizer]` table: the local optimizer and its learning-rate schedule."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from partrain.section import Section


class _Scheduled(Section):
    """What every optimizer has: batches and a schedule by global item-iterations."""

    lr: float = Field(gt=0)
    """Peak learning rate."""
    batch_size: int = Field(64, ge=1)
    """Items per iteration and worker."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the learning rate after warm-up: to zero at the horizon, unless constant."""
    warmup: float = Field(0.0, ge=0, lt=1)
    """Share of the horizon over which the learning rate rises linearly from zero."""
    horizon: int | None = Field(None, ge=1)
    """Item-iterations at which the schedule ends; default: what the `[stop]` table implies."""

    @property
    def needs_horizon(self) -> bool:
        """Whether the schedule is relative to an end."""
        return self.schedule != "constant" or self.warmup > 0

    def rate(self, items: float, horizon: float) -> float:
        """Learning rate after `items` of `horizon` planned global item-iterations."""
        if not self.needs_horizon:
            return self.lr
        progress = min(items / horizon, 1.0)
        if progress < self.warmup:
            return self.lr * progress / self.warmup
        rest = (progress - self.warmup) / (1 - self.warmup)
        match self.schedule:
            case "linear":
                return self.lr * (1 - rest)
            case "cosine":
                return self.lr * 0.5 * (1 + math.cos(math.pi * rest))
        return self.lr


class Sgd(_Scheduled):
    """Stochastic gradient descent with momentum, as torch.optim.SGD."""

    name: Literal["sgd"] = "sgd"
    momentum: float = Field(0.0, ge=0, lt=1)
    nesterov: bool = False
    weight_decay: float = Field(0.0, ge=0)


class Adam(_Scheduled):
    """Adam as torch.optim.Adam. Kingma, Ba. Adam: A Method for Stochastic Optimization. 2015. arXiv:1412.6980"""

    name: Literal["adam"]
    betas: list[Annotated[float, Field(ge=0, lt=1)]] = Field([0.9, 0.999], min_length=2, max_length=2)
    eps: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.0, ge=0)


class AdamW(Adam):
    """Adam with decoupled weight decay, as torch.optim.AdamW. Loshchilov, Hutter. 2019. arXiv:1711.05101"""

    name: Literal["adamw"]  # type: ignore[assignment]
    weight_decay: float = Field(0.01, ge=0)


AnyOptimizer = Sgd | Adam | AdamW
