"""Elastic averaging: replicas roam on elastic ropes around a center that follows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from partrain.protocols import Center, DivergentReplicas, Group, Remark, Update, Worker, replicated

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Rope:
    """The state of the synchronous form; under the asynchronous one the center belongs to the group."""

    center: Tensor = replicated()
    """c (d,)"""


class Easgd(DivergentReplicas):
    """Worker and center pull at each other once every `iterations` of the worker; between, each explores by itself.

        x_i <- x_i - alpha (x_i - c) - eta g_i(x_i)          then tau - 1 more local steps
        c   <- c + alpha sum_i (x_i - c)                     alpha = beta / N

    On the right stand old values: the first gradient of a round is taken at the x_i before the pull (the paper's equations 2
    and 3; in its Algorithm 1, too, the pull comes first). So a round judges the center of the steps before it, and the first
    leaves it where it was. beta is `elasticity`, tau is `iterations`. The asynchronous form does the same visit by visit, the
    center moving by one worker's pull at a time. EAMSGD is this rule with a local optimizer that has Nesterov's momentum,
    which stays with the worker: `[optimizer] momentum = 0.99, nesterov = true`; torch's x_i, and so the pull, is a momentum step
    ahead of the paper's.

    Source: Zhang, Choromanska, LeCun. Deep Learning with Elastic Averaging SGD. 2015. arXiv:1412.6651
    """

    rule: Literal["easgd"]
    elasticity: float = Field(0.9, ge=0)
    """beta: share of the way to the mean of all replicas that the center goes at a time."""
    asynchronous: bool = False
    """Whether each worker visits the center in its own time."""
    visits: int = Field(8, ge=1)
    """Visits of each worker in a round, on average; only for the asynchronous form."""

    @property
    def visits_per_worker(self) -> int | None:
        return self.visits if self.asynchronous else None

    @property
    def shared_vectors(self) -> int:
        return 1 if self.asynchronous else 0

    def remarks(self, workers: int) -> Iterator[Remark]:
        actives = self.active_workers(workers, 1)  # the fewest: all, or those who begin the ramp
        beta, alpha = self.elasticity, self.elasticity / actives
        # Without gradients x_i - c shrinks by 1 - alpha - beta at each meeting of all, or where all visits coincide; by 1 - 2 alpha
        # at each visit that is alone.
        together = 2 * actives / (actives + 1)
        limit = float(actives) if self.asynchronous else together
        few = f"{actives} worker{'s' * (actives > 1)}" + ", the fewest under `ramp_workers`," * (actives < workers)
        if beta == 0:
            yield Remark("elasticity", "at 0 the center never moves, and it is the network that counts", "0.9 is the authors'")
        elif beta >= limit:
            message = f"at {beta:g} and {few} replicas and center diverge"
            yield Remark("elasticity", message, f"stay below {limit:.3g}; 0.9 is the authors'")
        elif beta >= together:
            message = f"at {beta:g} and {few} replicas and center diverge where all visit at once, as workers of one speed do"
            yield Remark("elasticity", message, f"stay below {together:.3g}; 0.9 is the authors'", "warning")
        elif alpha > 0.5:
            message = f"with {few} a pull, {alpha:g}, is more than half the way: worker and center change sides each time"
            yield Remark("elasticity", message, f"stay below {actives / 2:g}", "warning")
        elif beta > 1:
            message = f"at {beta:g} the center overshoots the mean" + " where visits coincide" * self.asynchronous
            yield Remark("elasticity", message, "0.9 is the authors'", "warning")
        if "visits" in self.model_fields_set and not self.asynchronous:
            yield Remark("visits", "only the asynchronous form has visits", "add asynchronous = true", "warning")

    def init(self, worker: Worker, group: Group) -> Rope | None:
        if not self.asynchronous:
            return Rope(worker.params.clone())
        if worker.rank == 0:
            group.center[0].copy_(worker.params)
        group.barrier()
        return None

    def round(self, worker: Worker, group: Group, state: Rope | None) -> None:
        alpha = self.elasticity / self.active_workers(worker.size, worker.round)
        if state is None:
            while group.claim(self.open_visits(worker)):
                pull = (worker.params - group.pull()) * alpha
                group.push(pull)
                self.train(worker, pull)
            group.barrier()
        else:
            distance = worker.params - state.center
            self.train(worker, distance * alpha)
            group.all_reduce_mean(distance, weight=float(worker.active))
            # Product by product, never fused: so every device gets the same bits.
            state.center.add_(distance * self.elasticity)

    def train(self, worker: Worker, pull: Tensor) -> None:
        """Local iterations, the pull being applied after the first gradient."""
        worker.train(1)
        worker.params.sub_(pull)
        worker.train(worker.iterations - 1)

    def merge(self, center: Center, update: Update) -> None:
        center.vectors[0].add_(update.delta)
        center.version += 1

    def result(self, worker: Worker, group: Group, state: Rope | None) -> Tensor:
        return group.pull() if state is None else state.center.clone()
