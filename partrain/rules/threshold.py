"""Threshold encoding: workers send the signs of large updates; smaller ones add up until they are large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from partrain.protocols import Group, Rule, Worker
from partrain.rules.findings import error, warning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

    from partrain.config.problems import Finding
    from partrain.protocols.rule_traits import JobContext, Traffic

MIN_TAU = 1e-6
"""Lower bound of an adaptive threshold, as a share of its first value."""


@dataclass
class ThresholdState:
    """The unsent updates of a worker, and its threshold."""

    residual: Tensor
    """r_i (d,)"""
    tau: float
    """tau_i"""


class Threshold(Rule):
    """After every iteration each worker sends the signs of the entries whose unsent updates reach a threshold.

        u_i <- x - (local step from x)                          (in parallel)
        r_i <- r_i + u_i
        q_i <- tau_i sign(r_i) where |r_i| >= tau_i, else 0
        r_i <- r_i - q_i
        x   <- x - sum_i q_i                                    (or their mean)

    u_i is the update, r_i the residual, tau_i the worker's own threshold. A round is `iterations` such steps. If a worker sends
    one entry in a hundred, a sign and its index cost about nine bits. A message without signs has nine bytes. `threshold = 0`
    sends r_i itself.

    Source: Strom. Scalable Distributed DNN Training Using Commodity GPU Cloud Computing. 2015. Interspeech, 1488-1492
    Source: Eclipse Deeplearning4j. AdaptiveThresholdAlgorithm, ResidualClippingPostProcessor. 2019. They set the defaults. The
        first threshold comes from their EncodingHandler before it was adaptive (since then: 1e-4)
    """

    round_vectors: ClassVar[int] = 5

    rule: Literal["threshold"]
    threshold: float = Field(1e-3, ge=0)
    """First value of tau_i: about the size of a step that is worth its bytes, including the learning rate. 0: send all
    entries unchanged."""
    adaptive: bool = True
    """Adapt tau_i to the share of entries sent: see `target`."""
    target: list[Annotated[float, Field(ge=0, le=1)]] = Field([1e-4, 1e-2], min_length=2, max_length=2)
    """Smallest and largest share of entries to send: below the first tau_i falls, above the second it rises."""
    decay: float = Field(0.5 ** (1 / 20), gt=0, lt=1)
    """Factor by which tau_i falls in an iteration, and divisor by which it rises; the default halves it in 20 iterations."""
    combine: Literal["sum", "mean"] = "sum"
    """`sum`: add the updates of all workers, as in the paper, so that N workers take N times the step. `mean`: average them by
    `weights`."""
    clip: float = Field(5.0, gt=0)
    """Bound of the residuals, in units of tau_i, because updates that waited long are stale."""
    clip_every: int = Field(5, ge=0)
    """Number of iterations from one clipping of the residuals to the next; 0: never."""
    optimizer_state: Literal["average", "local", "reset"] = "local"
    """State of the optimizers (momentum and moments) at the end of a round: average it, keep each worker's (`local`), or reset
    it. Default: it stays with the worker. Averaging it would cost the bytes that the messages save."""

    @property
    def uses_weights(self) -> bool:
        return self.combine == "mean"

    @property
    def syncs_every_iteration(self) -> bool:
        return True

    @property
    def still_moves(self) -> str:
        return "updates that messages left out"

    def check(self, context: JobContext) -> Iterator[Finding]:
        workers, (low, high) = context.workers, self.target
        if self.adaptive and low > high:
            yield error("target", f"the lower share, {low}, is above the upper, {high}", "the threshold would never rest")
        elif self.adaptive and high == 0:
            message = "the threshold rises with each message that has signs and never falls: in the end no signs are sent"
            yield error("target", message, "[1e-4, 1e-2] is the default; adaptive = false keeps the threshold constant")
        unused = {} if self.adaptive else {"target": "adaptive = false", "decay": "adaptive = false"}
        for key, setting in (unused | ({} if self.clip_every else {"clip": "clip_every = 0"})).items():
            if key in self.model_fields_set:
                yield warning(key, f"`{key}` has no effect under {setting}", "leave it out")
        if self.threshold > 1:
            yield warning("threshold", f"no update may ever reach {self.threshold}", "it is 1e-3 by default")
        if self.threshold and self.clip_every and self.clip < 1:
            message = f"residuals are cut to {self.clip:g} of the threshold: updates much smaller than that never add up to it"
            yield warning("clip", message, "1 at least; 5 is the default")
        if workers > 1 and self.combine == "sum" and self.lr_scale == "linear":
            message = f"updates of {workers} workers add up already; lr_scale makes the step {workers} times longer once more"
            yield warning("lr_scale", message, 'combine = "mean", or no lr_scale')

    def review(self, rounds: Iterable[Traffic]) -> str | None:
        """Warn if messages had no signs in the last half or more of the run."""
        from partrain.rules.compression.messages import HEAD, STEP

        last_signs = newest = 0
        for number, iterations, sent in rounds:
            newest = max(newest, number)
            if iterations and sent > (HEAD + STEP) * iterations:
                last_signs = max(last_signs, number)
        if 2 * last_signs > newest or not newest:
            return None
        since = f"since round {last_signs + 1:,} of {newest:,}" if last_signs else f"in any of the {newest:,} rounds"
        todo = "lower `threshold` in [sync], or let it fall (adaptive = true, the lower `target` above 0)"
        return f"nothing was sent {since}, for no update came up to the threshold: {todo}"

    @property
    def keeps_worker_state(self) -> bool:
        return True

    def init(self, worker: Worker, group: Group) -> ThresholdState:
        return ThresholdState(worker.params.new_zeros(len(worker.params)), self.threshold)

    def round(self, worker: Worker, group: Group, state: ThresholdState) -> None:
        from partrain.rules.compression.messages import read_signs, sign_message

        for iteration in range(worker.iterations):
            start, before = worker.params.clone(), worker.items
            worker.train(1)
            state.residual += start - worker.params
            message, sent, count = sign_message(state.residual, state.tau)
            weight = self.weight(worker.items - before) if self.combine == "mean" else None
            if weight != 0:  # a message of weight 0 does not count as sent
                state.residual -= sent
            worker.params.copy_(start - group.reduce_messages(message, read_signs, len(start), weight))
            done = (worker.round - 1) * worker.iterations + iteration + 1
            if self.clip_every and done % self.clip_every == 0:
                state.residual.clamp_(-self.clip * state.tau, self.clip * state.tau)
            state.tau = self.adapted(state, count / worker.parameters)

    def adapted(self, state: ThresholdState, share: float) -> float:
        """Return tau_i for the next iteration, given the share of parameters sent. An empty residual leaves tau_i unchanged."""
        if self.adaptive and share > self.target[1]:
            return state.tau / self.decay
        if self.adaptive and share < self.target[0] and bool(state.residual.any()):
            return max(state.tau * self.decay, MIN_TAU * self.threshold)
        return state.tau
