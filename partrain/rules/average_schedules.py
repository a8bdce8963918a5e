"""Schedules of the rule `average`: the number K of local iterations, as it changes from round to round.

Each schedule decides from numbers that are equal on all workers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from partrain.protocols import Group, Rule, State, Worker, replicated
from partrain.rules.findings import error

if TYPE_CHECKING:
    from partrain.config.problems import Finding
    from partrain.protocols.rule_traits import JobContext

KEYS = {
    "post-local": ["switch_round"],
    "qsr": ["alpha", "most"],
    "adacomm": ["every", "most"],
    "overhead": ["target", "most"],
}
"""Keys of each schedule."""


class ScheduledIterations(Rule):
    """A rule whose `schedule` computes K from the `iterations` K_0 of [sync], round by round.

        post-local   K = 1, from `switch_round` on K_0: one big batch first
        qsr          K = max(K_0, floor((alpha / lr)^2)): rarer as the learning rate falls; K_0 in the first round and while it rises
        adacomm      K = ceil(K_0 sqrt(F / F_0) sqrt(lr_0 / lr)): more often as the training loss F falls; every `every` rounds,
                     and if the loss does not lower K, it is halved
        overhead     K grows by ceil(K overhead / `target`) if waiting and mixing take more than this share of the computing time,
                     and shrinks by one if they take less than half of it; measured times make every run different

    lr is the learning rate. Each worker's own cap is scaled by K / K_0.

    Source: Lin, Stich, Patel, Jaggi. Don't Use Large Mini-Batches, Use Local SGD. 2020. arXiv:1808.07217
    Source: Gu, Lyu, Arora, Zhang, Huang. A Quadratic Synchronization Rule for Distributed Deep Learning. 2024. arXiv:2310.14423
    Source: Wang, Joshi. Adaptive Communication Strategies to Achieve the Best Error-Runtime Trade-off in Local-Update SGD. 2019.
        arXiv:1810.08313
    """

    schedule: Literal["constant", "post-local", "qsr", "adacomm", "overhead"] = "constant"
    """Number K of local iterations in a round. `constant`: `iterations`. `post-local`: 1, from `switch_round` on `iterations`.
    `qsr`: more as the learning rate falls. `adacomm`: fewer as the training loss falls. `overhead`: more if waiting and mixing
    take long; results then depend on the clock."""
    switch_round: int | None = Field(None, ge=2)
    """`post-local`: first round with `iterations` local iterations."""
    alpha: float | None = Field(None, gt=0)
    """`qsr`: K = (alpha / learning rate)^2, at least `iterations`. So rounds grow once the learning rate is below alpha /
    sqrt(iterations)."""
    every: int = Field(20, ge=1)
    """`adacomm`: number of rounds after which K changes, by the mean training loss over these rounds."""
    target: float = Field(0.1, gt=0)
    """`overhead`: largest time of waiting and mixing, as a share of the time of computing."""
    most: int = Field(200, ge=1)
    """`qsr`, `adacomm`, `overhead`: upper bound of K."""
    counted_in_rounds: ClassVar[tuple[str, ...]] = ("ramp_workers", "switch_round", "every")

    def planned_iterations(self, cap: int) -> list[tuple[int, int]] | None:
        match self.schedule:
            case "constant":
                return [(1, cap)]
            case "post-local":
                return [(1, max(1, round(cap / (self.iterations or 1)))), (self.switch_round or 1, cap)]
        return None

    @property
    def uncapped_reason(self) -> str:
        return f'schedule = "{self.schedule}" already decides the iterations of a round' if self.varies_round_length else ""

    @property
    def repeatable(self) -> bool:
        return super().repeatable and self.schedule != "overhead"

    def check(self, context: JobContext) -> Iterator[Finding]:
        own = KEYS.get(self.schedule, [])
        for key in {key: None for keys in KEYS.values() for key in keys if key in self.model_fields_set and key not in own}:
            yield error(key, f'`{key}` has no meaning under schedule = "{self.schedule}"', "remove it")
        if self.schedule == "constant":
            return
        for key in ("switch_round", "alpha"):
            if key in own and getattr(self, key) is None:
                yield error("schedule", f'schedule = "{self.schedule}" needs `{key}`')
        if self.iterations is None:
            message = f'schedule = "{self.schedule}" changes a number of iterations, and [sync] has none'
            yield error("schedule", message, "give `iterations`, instead of `passes` if there are any")
        elif "most" in own and self.most < self.iterations:
            yield error("most", f"`most` {self.most} is less than `iterations` {self.iterations}")

    def init(self, worker: Worker, group: Group) -> State:
        match self.schedule:
            case "qsr":
                return QsrState(0.0)
            case "overhead":
                return OverheadState(self.iterations or 1)
            case "adacomm":
                return AdacommState(self.iterations or 1, 0.0, 0.0, 0, 0.0)
        return None

    @contextmanager
    def scheduled(self, worker: Worker, group: Group, state: State) -> Iterator[int]:
        """Give K_i to the round in the body, and adapt K afterwards."""
        began = worker.clock()
        yield self.local_iterations(worker, state)
        if isinstance(state, OverheadState):
            spent = worker.clock() - began - worker.seconds
            state.adapt(self.target, self.most, group.scores(worker.seconds, spent))
        if isinstance(state, AdacommState):
            state.add(group.scores(worker.items, worker.loss() if worker.items else 0.0))
            if worker.round % self.every == 0:
                state.end_window(self.iterations or 1)

    def local_iterations(self, worker: Worker, state: State) -> int:
        """Compute K_i: the worker's cap times K / K_0."""
        base = self.iterations or 1
        count: int
        match self.schedule:
            case "qsr":
                count = state.iterations(base, self.alpha or 0.0, self.most, worker.lr)
            case "adacomm":
                count = state.iterations(self.most, worker.lr)
            case "overhead":
                count = state.period
            case "post-local":
                stretches = self.planned_iterations(worker.iterations) or []
                return [iterations for first, iterations in stretches if first <= worker.round][-1]
            case _:
                return worker.iterations
        return max(1, round(worker.iterations * count / base))


@dataclass
class QsrState:
    """The state of `qsr`."""

    rate: float = replicated()
    """Learning rate of the previous round; 0 before the first round, and in a warm-up from 0."""

    def iterations(self, base: int, alpha: float, most: int, rate: float) -> int:
        """Compute K = max(base, floor((alpha / rate)^2)); `base` while the rate rises, as in the authors' code (its `init_h`)."""
        rising, self.rate = rate > self.rate, rate
        if rising or rate == 0:
            return base
        return max(base, math.floor(min(alpha / rate * (alpha / rate), most)))


@dataclass
class OverheadState:
    """State of `overhead`: it results from measured times, which a replay would not reproduce."""

    period: int = replicated()
    """K"""

    def adapt(self, target: float, most: int, seconds: Sequence[Sequence[float]]) -> None:
        """Adapt K to every worker's seconds of computing and seconds of the rest of the round.

        The worker that waits least decides: the others wait for it, and wait longer in longer rounds.
        """
        overhead = min((rest / computing for computing, rest in seconds if computing), default=0.0)
        if overhead > target:
            self.period = min(self.period + math.ceil(self.period * overhead / target), most)
        elif overhead < target / 2:
            self.period = max(self.period - 1, 1)


@dataclass
class AdacommState:
    """The state of `adacomm`."""

    period: int = replicated()
    """tau: K without the learning rate's factor."""
    first: float = replicated()
    """F_0: mean loss over the first window; 0 until it is known."""
    losses: float = replicated()
    """Sum of the losses of all items in this window."""
    items: int = replicated()
    """Items in this window."""
    rate: float = replicated()
    """lr_0: highest learning rate so far."""

    def iterations(self, most: int, rate: float) -> int:
        """Compute K = ceil(tau sqrt(lr_0 / rate)).

        PaddlePaddle's `adaptive_localsgd`, after the same paper, also has F lr_0 / (F_0 lr) under the root, and K_0 outside it.
        """
        self.rate = max(self.rate, rate)
        return math.ceil(min(self.period * math.sqrt(self.rate / rate), most)) if rate else self.period

    def add(self, scores: Sequence[Sequence[float]]) -> None:
        """Add a round to the window: items and mean loss of every worker."""
        self.items += int(sum(items for items, _ in scores))
        self.losses += sum(items * loss for items, loss in scores)

    def end_window(self, base: int) -> None:
        """End a window: tau <- ceil(base sqrt(F / F_0)) if that is below tau, else half of tau."""
        loss, self.losses, self.items = self.losses / self.items, 0.0, 0
        if self.first == 0:
            self.first = loss
            return
        period = math.ceil(min(base * math.sqrt(loss / self.first), base))
        self.period = max(1, period if period < self.period else self.period // 2)
