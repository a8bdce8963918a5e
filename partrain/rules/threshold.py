"""Threshold encoding: whatever has grown large enough is sent as a sign, all else waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from partrain.protocols import Group, Remark, Rule, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

LOWEST = 1e-6
"""An adaptive threshold stays above this share of the one it started with."""


@dataclass
class Waiting:
    """What a worker has not sent yet."""

    residual: Tensor
    """r_i (d,)"""
    tau: float


class Threshold(Rule):
    """After every iteration each worker sends the signs of those entries whose unsent updates have reached a threshold.

        u_i <- x - (local step from x)                          (in parallel)
        r_i <- r_i + u_i
        q_i <- tau_i sign(r_i) where |r_i| >= tau_i, else 0
        r_i <- r_i - q_i
        x   <- x - sum_i q_i                                    (or their mean)

    r_i is the residual, tau_i the worker's own threshold. A round is `iterations` such steps. A sign and its place cost about nine
    bits where one entry in a hundred is sent; a message without any, nine bytes. `threshold = 0` sends r_i itself.

    Source: Strom. Scalable Distributed DNN Training Using Commodity GPU Cloud Computing. 2015. Interspeech, 1488-1492
    Source: Eclipse Deeplearning4j. AdaptiveThresholdAlgorithm, ResidualClippingPostProcessor. 2019. The defaults are theirs, but
        for the first threshold, which is that of their EncodingHandler before it was adaptive (since then: 1e-4)
    """

    rule: Literal["threshold"]
    threshold: float = Field(1e-3, ge=0)
    """tau_i at first: about the size of a step that is worth its bytes, learning rate included."""
    adaptive: bool = True
    """Let tau_i follow the share of entries that were sent."""
    target: list[Annotated[float, Field(ge=0, le=1)]] = Field([1e-4, 1e-2], min_length=2, max_length=2)
    """Shares of entries between which tau_i stays as it is; below, it falls; above, it rises."""
    decay: float = Field(0.5 ** (1 / 20), gt=0, lt=1)
    """What tau_i is multiplied, or divided, by: half of it in 20 iterations."""
    combine: Literal["sum", "mean"] = "sum"
    """Whether updates add up, as in the paper, so that N workers take N times the step, or are averaged by `weights`."""
    clip: float = Field(5.0, gt=0)
    """Residuals are cut to +- so many tau_i: what has waited too long is stale."""
    clip_every: int = Field(5, ge=0)
    """Iterations between cuts; 0 = never."""
    optimizer_state: Literal["average", "local", "reset"] = "local"
    """What happens to momentum and moments: each worker's own, for averaging them would cost what the messages save."""

    @property
    def uses_weights(self) -> bool:
        return self.combine == "mean"

    @property
    def syncs_every_iteration(self) -> bool:
        return True

    def remarks(self, workers: int) -> Iterator[Remark]:
        low, high = self.target
        if self.adaptive and low > high:
            yield Remark("target", f"the lower share, {low}, is above the upper, {high}", "the threshold would never rest")
        elif self.adaptive and high == 0:
            message = "the threshold rises whenever anything is sent and never falls: in the end nothing is"
            yield Remark("target", message, "[1e-4, 1e-2] is the default; adaptive = false keeps it as it is")
        idle = {} if self.adaptive else {"target": "adaptive = false", "decay": "adaptive = false"}
        for key, setting in (idle | ({} if self.clip_every else {"clip": "clip_every = 0"})).items():
            if key in self.model_fields_set:
                yield Remark(key, f"`{key}` means nothing to {setting}", "leave it out", "warning")
        if self.threshold > 1:
            yield Remark("threshold", f"no update may ever reach {self.threshold}", "it is 1e-3 by default", "warning")
        if self.threshold and self.clip_every and self.clip < 1:
            message = f"residuals are cut to {self.clip:g} of the threshold: updates much smaller than that never add up to it"
            yield Remark("clip", message, "1 at least; 5 is the default", "warning")
        if workers > 1 and self.combine == "sum" and self.lr_scale == "linear":
            message = f"updates of {workers} workers add up already; lr_scale makes the step {workers} times longer once more"
            yield Remark("lr_scale", message, 'combine = "mean", or no lr_scale', "warning")

    def init(self, worker: Worker, group: Group) -> Waiting:
        return Waiting(worker.params.new_zeros(len(worker.params)), self.threshold)

    def round(self, worker: Worker, group: Group, state: Waiting) -> None:
        from partrain.rules.compression.messages import read_signs, sign_message

        for iteration in range(worker.iterations):
            start, before = worker.params.clone(), worker.items
            worker.train(1)
            state.residual += start - worker.params
            message, sent, count = sign_message(state.residual, state.tau)
            state.residual -= sent
            weight = self.weight(worker.items - before) if self.combine == "mean" else None
            worker.params.copy_(start - group.reduce_messages(message, read_signs, len(start), weight))
            done = (worker.round - 1) * worker.iterations + iteration + 1
            if self.clip_every and done % self.clip_every == 0:
                state.residual.clamp_(-self.clip * state.tau, self.clip * state.tau)
            state.tau = self.adapted(state, count / len(sent))

    def adapted(self, state: Waiting, share: float) -> float:
        """tau_i for the next iteration. A worker that has nothing to send says nothing about its threshold."""
        if self.adaptive and share > self.target[1]:
            return state.tau / self.decay
        if self.adaptive and share < self.target[0] and bool(state.residual.any()):
            return max(state.tau * self.decay, LOWEST * self.threshold)
        return state.tau
