"""Learning-rate schedules: the rate is a pure function of the global item-iterations.

Within a round a worker counts to the middle of an iteration: the k-th of K adds (k - 1/2) / K of the round's planned item-iterations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from partrain.config.problems import Finding
from partrain.config.section import Section

Fraction = Annotated[float, Field(gt=0, lt=1)]

_DEFAULT_LR_END = {"linear": 0.0, "cosine": 0.0, "polynomial": 0.0, "exponential": 0.01, "one-cycle": 1 / 25 / 1e4}
"""Defaults of `lr_end`: share of the peak rate at the horizon."""

_SCHEDULES_OF_KEY = {
    "lr_end": (*_DEFAULT_LR_END,),
    "power": ("polynomial",),
    "milestones": ("step",),
    "every": ("step",),
    "gamma": ("step",),
}
"""Schedules that use a key."""


def finding(key: str, message: str, suggestion: str = "") -> Finding:
    """Make a finding about a key of `[optimizer]`; it refuses the job."""
    return Finding(("optimizer", key), message, suggestion, at="key")


class Scheduled(Section):
    """A learning rate. It rises to its peak over the warm-up, then follows the schedule to the horizon."""

    lr: float = Field(gt=0)
    """Peak learning rate. A warm-up rises to it; a schedule lowers it again."""
    schedule: Literal["constant", "step", "linear", "cosine", "polynomial", "exponential", "one-cycle"] = "constant"
    """Course of the learning rate after the warm-up. Schedules other than `constant`, and warm-ups, need the length of the run:
    see `horizon`."""
    warmup: float | None = Field(None, ge=0, lt=1)
    """Warm-up: share of the run in which the learning rate rises to `lr`, linearly. Default: 0; `one-cycle`: 0.3,
    rising as a cosine."""
    lr_start: float | None = Field(None, ge=0, le=1)
    """Learning rate at the start of the warm-up, as a share of `lr`; default: 0, `one-cycle` 1/25."""
    lr_end: float | None = Field(None, ge=0, le=1)
    """Learning rate at the end of the schedule, as a share of `lr`; default: 0, `exponential` 0.01, `one-cycle` 4e-6."""
    power: float = Field(2.0, gt=0)
    """`polynomial`: exponent of the decay; 1 is `linear`."""
    milestones: list[Fraction] = Field([0.5, 0.75], min_length=1)
    """`step`: shares of the run at which the learning rate is multiplied by `gamma`."""
    every: Fraction | None = None
    """`step`, instead of `milestones`: the learning rate is multiplied by `gamma` at each multiple of this share of the run."""
    gamma: float = Field(0.1, gt=0, lt=1)
    """`step`: factor of the learning rate at each step."""
    horizon: int | None = Field(None, ge=1)
    """Length of the schedule in item-iterations of all workers; default: the end that `rounds` or `item_iterations` in
    `[stop]` implies."""

    @property
    def warmup_share(self) -> float:
        """Share of the horizon for the warm-up."""
        default = 0.3 if self.schedule == "one-cycle" else 0.0
        return default if self.warmup is None else self.warmup

    @property
    def needs_horizon(self) -> bool:
        """True if the rate depends on the share of the horizon."""
        return self.schedule != "constant" or bool(self.warmup)

    def rate(self, items: float, horizon: float) -> float:
        """Return the learning rate after `items` of `horizon` planned global item-iterations."""
        return self.lr * self._factor(min(items / horizon, 1.0)) if self.needs_horizon else self.lr

    def _factor(self, progress: float) -> float:
        """Return the rate as a share of the peak. `progress`: share of the horizon."""
        if progress < self.warmup_share:
            cycle = self.schedule == "one-cycle"
            first = (1 / 25 if cycle else 0.0) if self.lr_start is None else self.lr_start
            done = progress / self.warmup_share
            return first + (1 - first) * (_cosine(1 - done) if cycle else done)
        if self.schedule == "step":
            return self.gamma ** self._steps(progress)
        if self.schedule == "constant":
            return 1.0
        done = (progress - self.warmup_share) / (1 - self.warmup_share)
        last = _DEFAULT_LR_END[self.schedule] if self.lr_end is None else self.lr_end
        match self.schedule:
            case "exponential":
                return float(last**done)
            case "linear":
                decay = 1 - done
            case "polynomial":
                decay = (1 - done) ** self.power
            case _:
                decay = _cosine(done)
        return last + (1 - last) * decay

    def _steps(self, progress: float) -> int:
        """Count the multiplications by `gamma` so far."""
        if self.every:
            return math.floor(progress / self.every + 1e-9)
        return sum(progress >= milestone for milestone in self.milestones)

    def check(self) -> Iterator[Finding]:
        """Find settings that are wrong or have no effect."""
        for key, schedules in _SCHEDULES_OF_KEY.items():
            if key in self.model_fields_set and self.schedule not in schedules:
                message = f'`{key}` has no effect under schedule = "{self.schedule}"'
                yield finding(key, message, "remove it, or use " + " or ".join(f'"{schedule}"' for schedule in schedules))
        if {"milestones", "every"} <= self.model_fields_set:
            yield finding("every", "[optimizer] has both `milestones` and `every`", "keep one")
        if "lr_start" in self.model_fields_set and not self.warmup_share:
            yield finding("lr_start", "`lr_start` has no effect without a warm-up", "for example, add `warmup = 0.1`")
        if self.schedule == "exponential" and self.lr_end == 0:
            yield finding("lr_end", "an exponential schedule never reaches 0", "set the share of the peak rate at the horizon")
        if self.horizon and not self.needs_horizon:
            yield finding("horizon", "`horizon` has no effect: the learning rate is constant", "remove it")


def _cosine(share: float) -> float:
    """Return the half cosine from 1 (at 0) to 0 (at 1)."""
    return 0.5 * (1 + math.cos(math.pi * share))
