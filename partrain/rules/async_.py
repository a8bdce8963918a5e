"""Asynchronous training: each worker visits the center in its own time and does not wait for the slowest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from partrain.protocols import Worker
from partrain.protocols.asynchronous import AsyncGroup, AsyncRule, Center, Update
from partrain.rules.findings import error, warning

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.config.problems import Finding
    from partrain.protocols.rule_traits import JobContext

MAX_GAIN = 3.0
"""Gain from which the center moves too far, relative to the updates' mean (measured on MNIST: `benchmarks/momentum.py`)."""


class Async(AsyncRule):
    """In a visit a worker copies the center, trains, and sends back an update, which is stale when it arrives.

        b <- c;   x_i <- H_i local steps from b;   delta <- b - x_i
        delta <- delta + lambda / (gamma H_i) delta^2 (c - b)            (`compensation`: DC-ASGD, by a gradient delta / (gamma H_i))
        c <- c - eta phi(s) delta                                        (s: how often c has changed since b)

    phi(s): 1 | 1 / max(1, s) | (1 + s)^-0.5 | 1 if s <= 4 else 1 / (10 (s - 4) + 1). eta is `outer_lr`, gamma the learning rate.
    The last two come from FedAsync, whose delta is c - x_i; here delta is b - x_i. With `soft_sync` = n, the center gathers n
    updates and applies their mean. `momentum` = beta is delayed Nesterov: c follows 1/N of each arrival, and after every N
    arrivals m <- beta m + mean delta, c <- c - eta beta m. At a round's end all workers take over the center.

    Source: Zhang, Gupta, Lian, Liu. Staleness-aware Async-SGD for Distributed Deep Learning. 2016. arXiv:1511.05950
    Source: Xie, Koyejo, Gupta. Asynchronous Federated Optimization. 2019. arXiv:1903.03934
    Source: Ho et al. More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server. 2013 (`bound`)
    Source: Zheng et al. Asynchronous Stochastic Gradient Descent with Delay Compensation. 2017. arXiv:1609.08326
    Source: Liu et al. Asynchronous Local-SGD Training for Language Modeling. 2024. arXiv:2401.09135 (`momentum`, `paced`)
    Source: Mitliagkas, Zhang, Hadjis, Re. Asynchrony Begets Momentum. 2016. arXiv:1605.09774 (the warning about `momentum`)
    """

    round_vectors: ClassVar[int] = 4

    rule: Literal["async"]
    visits: int = Field(8, ge=1)
    """Number of visits of each worker in a round, on average. `iterations` is per visit."""
    staleness_weight: Literal["none", "inverse", "polynomial", "hinge"] = "none"
    """phi: weight of an update of staleness s. `none`: 1. `inverse`: 1 / max(1, s). `polynomial`: (1 + s)^-0.5. `hinge`: 1 up to
    s = 4, then 1 / (10 (s - 4) + 1)."""
    soft_sync: int = Field(1, ge=1)
    """n: number of updates that the center applies together, as their mean; 1: each immediately. (The authors' n-softsync
    gathers N / n.)"""
    bound: int | None = Field(None, ge=0)
    """Number of visits that a worker may be ahead of the slowest one; default: no limit."""
    compensation: float = Field(0.0, ge=0)
    """lambda: strength of the correction of an update for the change of the center since b. 0: none; the authors use 0.04. For
    plain SGD, whose delta is a gradient."""
    outer_lr: float = Field(1.0, gt=0)
    """eta: share of an update by which the center moves."""
    momentum: float = Field(0.0, ge=0, lt=1)
    """beta: delayed Nesterov momentum of the center. 0: none, and updates are not divided by N."""
    parts: int = Field(1, ge=1, le=16)
    """Number of slices of the center, which different workers may change at the same time. On several machines each
    slice has a process."""
    paced: bool = False
    """Give slower workers fewer iterations in a visit: H_i = max(1, floor(H v_i / max v)), from the speeds v in the previous
    round."""
    optimizer_state: Literal["average", "local", "reset"] = "local"
    """State of the optimizers (momentum and moments) at the end of a round: average it, keep each worker's (`local`), or reset
    it. Default: it stays with the worker, as between its visits."""

    @property
    def visits_per_worker(self) -> int:
        return self.visits

    @property
    def shared_vectors(self) -> int:
        return 3 if self.momentum else 2 if self.soft_sync > 1 else 1  # c, the sum of the updates gathered so far, m

    @property
    def slices(self) -> int:
        return self.parts

    @property
    def uncapped_reason(self) -> str:
        return "`paced` already gives slower workers fewer iterations" if self.paced else ""

    @property
    def still_moves(self) -> str:
        return "the momentum of the center" if self.momentum else ""

    def check(self, context: JobContext) -> Iterator[Finding]:
        workers = context.workers
        if self.soft_sync > 1 and self.momentum:
            message = "delayed Nesterov momentum gathers updates itself"
            yield error("soft_sync", message, "leave out `soft_sync` or `momentum`")
        if self.soft_sync > workers:
            message = f"{self.soft_sync} updates are more than there are workers ({workers}): some are made from the same c"
            yield warning("soft_sync", message, f"gather {workers} at most")
        if self.compensation and context.optimizer is not None and context.optimizer.has_own_rates:
            message = "`compensation` divides updates by one learning rate, and [optimizer] has several (`groups`, `layer_decay`)"
            yield error("compensation", message, "remove one of them")
        gain = self.outer_lr * (1 / (1 - self.momentum) if self.momentum else workers / self.soft_sync)
        if gain >= MAX_GAIN:
            message = (
                f"all workers' updates together move the center {gain:.3g} times as far as their mean, and staleness adds to that"
            )
            yield warning("momentum" if self.momentum else "outer_lr", message, "lower it until that is 2 or less")
        elif self.outer_lr > 1:
            message = f"at {self.outer_lr:g} the center overshoots every worker, and further with each stale update"
            yield warning("outer_lr", message, "1 or less")

    def planned_iterations(self, cap: int) -> list[tuple[int, int]] | None:
        return None if self.paced else [(1, cap)]

    def init(self, worker: Worker, group: AsyncGroup) -> PacedState | None:
        if worker.rank == 0:
            group.center[0].copy_(worker.params)
        group.barrier()
        return PacedState(0.0) if self.paced else None

    def round(self, worker: Worker, group: AsyncGroup, state: PacedState | None) -> None:
        iterations = state.iterations(worker, group) if state else worker.iterations
        while group.claim(self.open_visits(worker)):
            base = group.pull(self.bound)
            worker.params.copy_(base)
            worker.train(iterations)
            # H steps of rate gamma are about one step of rate gamma H.
            group.push(base - worker.params, base if self.compensation else None, worker.lr * iterations)
        group.barrier()
        worker.params.copy_(group.pull())
        if state:
            state.measure(worker)

    def merge(self, center: Center, update: Update) -> None:
        delta, base = update.delta, update.base
        if base is not None and update.lr:
            delta = delta + delta.square() * (center.vectors[0] - base) * (self.compensation / update.lr)
        delta = delta * self._phi(update.staleness)
        if self.momentum:
            center.vectors[0].sub_(delta * (self.outer_lr / center.size))
            center.version += 1
            if (mean := _gather(center, delta, center.size)) is not None:
                step = center.vectors[2].mul_(self.momentum).add_(mean) * self.momentum
                center.vectors[0].sub_(step * self.outer_lr)
        elif (mean := delta if self.soft_sync == 1 else _gather(center, delta, self.soft_sync)) is not None:
            center.vectors[0].sub_(mean * self.outer_lr)
            center.version += 1

    def _phi(self, staleness: int) -> float:
        """Compute phi(s), the weight of an update of staleness s."""
        match self.staleness_weight:
            case "inverse":
                return 1 / max(1, staleness)
            case "polynomial":
                return float((1 + staleness) ** -0.5)
            case "hinge" if staleness > 4:
                return 1 / (10 * (staleness - 4) + 1)
        return 1.0


def _gather(center: Center, delta: Tensor, count: int) -> Tensor | None:
    """Add an update (d',) of a slice of the center; return the mean of `count` updates once they have arrived, else None."""
    gathered = center.vectors[1].add_(delta)
    center.numbers[0] += 1
    if center.numbers[0] < count:
        return None
    mean = gathered / count
    gathered.zero_()
    center.numbers[0] = 0
    return mean


@dataclass
class PacedState:
    """State of a paced worker: it results from measured times, which a replay would not reproduce."""

    speed: float
    """v_i: local iterations a second in the previous round; 0 before the first."""

    def iterations(self, worker: Worker, group: AsyncGroup) -> int:
        """Compute H_i = max(1, floor(H v_i / max v)) from all workers' speeds in the previous round."""
        speeds = [speed for (speed,) in group.scores(self.speed)]
        relative = self.speed / max(speeds) if self.speed else 1.0
        return max(1, int(worker.iterations * relative + 1e-4))  # equal speeds differ in the last digits

    def measure(self, worker: Worker) -> None:
        """Measure the speed in the round that ends. A worker without iterations keeps its speed."""
        if worker.done:
            self.speed = float(f"{worker.done / worker.seconds:.6g}")  # further digits are the clock's noise
