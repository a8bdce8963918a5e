"""Elastic averaging: an elastic force links each replica to a center, which follows the replicas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from partrain.protocols import Worker, replicated
from partrain.protocols.asynchronous import AsyncGroup, AsyncRule, Center, Update
from partrain.rules.divergent import DivergentReplicas
from partrain.rules.findings import error, warning

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.config.problems import Finding
    from partrain.protocols.rule_traits import JobContext


@dataclass
class EasgdState:
    """The state of the synchronous form; in the asynchronous form the group keeps the center."""

    center: Tensor = replicated()
    """c (d,)"""


class Easgd(DivergentReplicas, AsyncRule):
    """Worker and center pull at each other once every `iterations` local steps; in between, the worker explores alone.

        x_i <- x_i - alpha (x_i - c) - eta g_i(x_i)          then tau - 1 more local steps
        c   <- c + alpha sum_i (x_i - c)                     alpha = beta / N

    beta is `elasticity`, tau is `iterations`. The right-hand sides are old values: the first gradient of a round is taken at the x_i
    before the pull (the paper's equations 2 and 3; its Algorithm 1 also pulls first). So the center lags by one round, and the
    first round leaves it in place. The asynchronous form does the same visit by visit: each visit moves the center by one
    worker's pull.

    EAMSGD is this rule with Nesterov's momentum, which stays with the worker: `[optimizer] momentum = 0.99, nesterov = true`. torch's
    x_i, and so the pull, is a momentum step ahead of the paper's.

    Source: Zhang, Choromanska, LeCun. Deep Learning with Elastic Averaging SGD. 2015. arXiv:1412.6651
    """

    round_vectors: ClassVar[int] = 2

    rule: Literal["easgd"]
    elasticity: float = Field(0.9, ge=0)
    """beta: share of the distance to the mean of all replicas by which the center moves in a round."""
    asynchronous: bool = False
    """Let each worker visit the center in its own time, without waiting for the others."""
    visits: int = Field(8, ge=1)
    """With `asynchronous`: number of visits of each worker in a round, on average. `iterations` is per visit."""

    @property
    def visits_per_worker(self) -> int | None:
        return self.visits if self.asynchronous else None

    @property
    def shared_vectors(self) -> int:
        return 1 if self.asynchronous else 0

    @property
    def no_exclusion_reason(self) -> str:
        return "its workers visit the center one by one" if self.asynchronous else ""

    @property
    def still_moves(self) -> str:
        return "the replicas' pull on the center"

    def check(self, context: JobContext) -> Iterator[Finding]:
        active = self.active_workers(context.workers, 1)  # the fewest: all, or the ramp's first round
        beta, alpha = self.elasticity, self.elasticity / active
        # Without gradients x_i - c shrinks by 1 - alpha - beta if all workers pull at once, and by 1 - 2 alpha in a visit of one.
        together = 2 * active / (active + 1)
        limit = float(active) if self.asynchronous else together
        number = f"{active} worker{'s' * (active > 1)}" + ", the fewest under `ramp_workers`," * (active < context.workers)
        if beta == 0:
            yield error("elasticity", "at 0 the center never moves, and it is the network that counts", "0.9 is the authors'")
        elif beta >= limit:
            message = f"at {beta:g} and {number} replicas and center diverge"
            yield error("elasticity", message, f"stay below {limit:.3g}; 0.9 is the authors'")
        elif beta >= together:
            message = f"at {beta:g} and {number} replicas and center diverge if all visit at once, as workers of equal speed do"
            yield warning("elasticity", message, f"stay below {together:.3g}; 0.9 is the authors'")
        elif alpha > 0.5:
            message = f"with {number} elasticity / workers = {alpha:g} is above 0.5: worker and center overshoot each other"
            yield warning("elasticity", message, f"stay below {active / 2:g}")
        elif beta > 1:
            message = f"at {beta:g} the center overshoots the mean" + " if visits coincide" * self.asynchronous
            yield warning("elasticity", message, "0.9 is the authors'")
        if "visits" in self.model_fields_set and not self.asynchronous:
            yield warning("visits", "only the asynchronous form has visits", "add asynchronous = true")

    def init(self, worker: Worker, group: AsyncGroup) -> EasgdState | None:
        if not self.asynchronous:
            return EasgdState(worker.params.clone())
        if worker.rank == 0:
            group.center[0].copy_(worker.params)
        group.barrier()
        return None

    def round(self, worker: Worker, group: AsyncGroup, state: EasgdState | None) -> None:
        alpha = self.elasticity / len(worker.participants)
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
            # Separate products, not fused: every device gets the same bits.
            state.center.add_(distance.mul_(self.elasticity))

    def train(self, worker: Worker, pull: Tensor) -> None:
        """Run the local iterations, and apply the pull after the first gradient."""
        worker.train(1)
        worker.params.sub_(pull)
        worker.train(worker.iterations - 1)

    def merge(self, center: Center, update: Update) -> None:
        center.vectors[0].add_(update.delta)
        center.version += 1

    def result(self, worker: Worker, group: AsyncGroup, state: EasgdState | None) -> Tensor:
        return group.pull() if state is None else state.center.clone()
