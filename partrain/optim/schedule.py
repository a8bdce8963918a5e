"""The course of the learning rate over a run: a pure function of the global item-iterations.

Within a round these are counted from the middle of an iteration: the k-th of K has (k - 1/2) / K of what the round is to bring.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from partrain.config.section import Section

Share = Annotated[float, Field(gt=0, lt=1)]

_LAST = {"linear": 0.0, "cosine": 0.0, "polynomial": 0.0, "exponential": 0.01, "one-cycle": 1 / 25 / 1e4}
"""What is left of the peak rate at the horizon, where the job does not say."""

_SERVES = {"lr_end": (*_LAST,), "power": ("polynomial",), "milestones": ("step",), "every": ("step",), "gamma": ("step",)}
"""The schedules under which a key has an effect."""


class Remark(NamedTuple):
    """A finding about a key of `[optimizer]`."""

    key: str
    message: str
    advice: str = ""
    severity: Literal["error", "warning"] = "error"


class Scheduled(Section):
    """A learning rate: it rises to its peak over the warm-up and follows the schedule from there to the horizon."""

    lr: float = Field(gt=0)
    """Peak learning rate."""
    schedule: Literal["constant", "step", "linear", "cosine", "polynomial", "exponential", "one-cycle"] = "constant"
    """Course of the learning rate after warm-up."""
    warmup: float | None = Field(None, ge=0, lt=1)
    """Share of the horizon over which the learning rate rises: linearly, under `one-cycle` as a cosine; default: 0, there 0.3."""
    lr_start: float | None = Field(None, ge=0, le=1)
    """Share of the peak from which it rises; default: 0, under `one-cycle` 1/25."""
    lr_end: float | None = Field(None, ge=0, le=1)
    """Share of the peak that is left at the horizon; default: 0, under `exponential` 0.01, under `one-cycle` 4e-6."""
    power: float = Field(2.0, gt=0)
    """Under `polynomial`: what falls linearly is taken to this power."""
    milestones: list[Share] = Field([0.5, 0.75], min_length=1)
    """Under `step`: shares of the horizon at which the learning rate is multiplied by `gamma`."""
    every: Share | None = None
    """Under `step`, instead of milestones: at each such share of the horizon."""
    gamma: float = Field(0.1, gt=0, lt=1)
    """Under `step`: the factor."""
    horizon: int | None = Field(None, ge=1)
    """Item-iterations at which the schedule ends; default: what the `[stop]` table implies."""

    @property
    def rise(self) -> float:
        """Share of the horizon that the warm-up takes."""
        default = 0.3 if self.schedule == "one-cycle" else 0.0
        return default if self.warmup is None else self.warmup

    @property
    def needs_horizon(self) -> bool:
        """Whether the schedule is relative to an end."""
        return self.schedule != "constant" or bool(self.warmup)

    def rate(self, items: float, horizon: float) -> float:
        """Learning rate after `items` of `horizon` planned global item-iterations."""
        return self.lr * self._share(min(items / horizon, 1.0)) if self.needs_horizon else self.lr

    def _share(self, progress: float) -> float:
        """What of the peak is used at a share of the horizon."""
        if progress < self.rise:
            cycle = self.schedule == "one-cycle"
            first = (1 / 25 if cycle else 0.0) if self.lr_start is None else self.lr_start
            risen = progress / self.rise
            return first + (1 - first) * (_half_wave(1 - risen) if cycle else risen)
        if self.schedule == "step":
            return self.gamma ** self._steps(progress)
        if self.schedule == "constant":
            return 1.0
        rest = (progress - self.rise) / (1 - self.rise)
        last = _LAST[self.schedule] if self.lr_end is None else self.lr_end
        match self.schedule:
            case "exponential":
                return float(last**rest)
            case "linear":
                falling = 1 - rest
            case "polynomial":
                falling = (1 - rest) ** self.power
            case _:
                falling = _half_wave(rest)
        return last + (1 - last) * falling

    def _steps(self, progress: float) -> int:
        """How often the rate has been multiplied by `gamma`."""
        if self.every:
            return math.floor(progress / self.every + 1e-9)
        return sum(progress >= milestone for milestone in self.milestones)

    def remarks(self) -> Iterator[Remark]:
        """What is wrong, or without effect, with these settings."""
        for key, schedules in _SERVES.items():
            if key in self.model_fields_set and self.schedule not in schedules:
                message = f'`{key}` has no effect under schedule = "{self.schedule}"'
                yield Remark(key, message, "remove it, or use " + " or ".join(f'"{one}"' for one in schedules))
        if {"milestones", "every"} <= self.model_fields_set:
            yield Remark("every", "[optimizer] has both `milestones` and `every`", "keep one")
        if "lr_start" in self.model_fields_set and not self.rise:
            yield Remark("lr_start", "`lr_start` has no effect without a warm-up", "add `warmup = 0.1`, say")
        if self.schedule == "exponential" and self.lr_end == 0:
            yield Remark("lr_end", "an exponential never comes to 0", "give the share that is to be left at the horizon")
        if self.horizon and not self.needs_horizon:
            yield Remark("horizon", "`horizon` has no effect: the learning rate is constant", "remove it")


def _half_wave(share: float) -> float:
    """From 1 at 0 to 0 at 1, level at both ends."""
    return 0.5 * (1 + math.cos(math.pi * share))
