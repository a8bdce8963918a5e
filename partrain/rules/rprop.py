"""Parallel Rprop: the gradient over all items, and a separate step size for each weight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from partrain.protocols import Group, Rule, Worker, replicated
from partrain.rules.findings import error, warning

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.config.problems import Finding
    from partrain.protocols.rule_traits import JobContext, Partitions


class RpropRule(Rule):
    """Each worker differentiates its whole partition; all take the same step, which depends only on the signs of the mean gradient.

        g <- sum_i n_i g_i(x) / sum_i n_i                                (n_i: items of partition i)
        Delta_j <- min(1.2 Delta_j, max) | max(0.5 Delta_j, min) | Delta_j     as g_j g'_j > 0 | < 0 | = 0
        x_j <- x_j - sign(g_j) Delta_j                                   but if g_j g'_j < 0 (g' is the previous gradient):
            irprop-    g_j <- 0: the weight waits for one iteration
            irprop+    the same, and the previous step is undone if the mean loss has risen
            rprop+     the same, and the previous step is always undone
            rprop-     the weight takes its next step, in the opposite direction

    A round is `iterations` such steps. They do not use the local optimizer. If partitions do not overlap and `weights` is "items",
    N workers do the same as one worker with all items, up to rounding. `irprop-` is the algorithm of `torch.optim.Rprop`.

    Source: Riedmiller, Braun. A Direct Adaptive Method for Faster Backpropagation Learning: The RPROP Algorithm. 1993.
        doi:10.1109/ICNN.1993.298623
    Source: Igel, Huesken. Empirical Evaluation of the Improved Rprop Learning Algorithms. 2003. doi:10.1016/S0925-2312(01)00700-7
    """

    round_vectors: ClassVar[int] = 7

    rule: Literal["rprop"]
    variant: Literal["irprop-", "irprop+", "rprop+", "rprop-"] = "irprop-"
    """Treatment of a weight whose gradient changes its sign: see the formula."""
    increase: float = Field(1.2, gt=1)
    """Factor of a step size while the gradient keeps its sign."""
    decrease: float = Field(0.5, gt=0, lt=1)
    """Factor of a step size when the gradient changes its sign."""
    step: float = Field(0.01, gt=0)
    """First step size of each weight. (torch and Shark use 0.01, FANN uses 0.1.)"""
    step_min: float = Field(1e-6, gt=0)
    """Smallest step size."""
    step_max: float = Field(50.0, gt=0)
    """Largest step size."""
    optimizer_state: Literal["average", "local", "reset"] = "reset"
    """No effect: this rule does not use the optimizer. `reset` keeps its unused state out of mixing and checkpoints."""

    @property
    def syncs_every_iteration(self) -> bool:
        return True

    @property
    def full_batch(self) -> bool:
        return True

    def check(self, context: JobContext) -> Iterator[Finding]:
        if self.passes:
            yield error("passes", "each iteration of rprop is a pass over the partition already", "give `iterations` instead")
        if not self.step_min <= self.step <= self.step_max:
            message = f"the first step size, {self.step:g}, is not between `step_min` {self.step_min:g} and `step_max` {self.step_max:g}"
            yield error("step", message)

    def check_partitions(self, partitions: Partitions) -> Iterator[Finding]:
        """Find items that count twice, or more than others, and so make workers differ from one worker with all items."""
        sizes, items, path = partitions
        if len(sizes) == 1:
            return
        difference = "so these workers do something else than one with all items"
        if (twice := sum(sizes) - items) >= len(sizes):  # a smaller overlap comes from sizes rounded up
            message = f"partitions overlap by {twice:,} items, which count twice: {difference}"
            yield warning(path, message, "remove `overlap`, or lower `partition_size`")
        if self.weights == "equal" and max(sizes) - min(sizes) > 1:
            message = f"items of partitions of {min(sizes):,} count more than those of {max(sizes):,}: {difference}"
            yield warning("weights", message, 'use "items"')

    def init(self, worker: Worker, group: Group) -> RpropState:
        zeros = worker.params.new_zeros(worker.params.shape)
        steps, signs = zeros.new_full(zeros.shape, self.step), zeros.clone()  # a sum on the device `meta` imports torch._dynamo
        return BacktrackingState(steps, signs, zeros, 0.0) if self.variant.endswith("+") else RpropState(steps, signs)

    def round(self, worker: Worker, group: Group, state: RpropState) -> None:
        for _ in range(worker.iterations):
            items, losses = worker.items, self.losses(worker)
            gradient = worker.gradient(full=True)
            items, losses = worker.items - items, self.losses(worker) - losses
            weight = self.weight(items)
            group.all_reduce_mean(gradient, weight)
            undo = self.variant == "rprop+" or (
                isinstance(state, BacktrackingState) and state.loss_has_risen(group, weight, losses, items)
            )
            worker.params.add_(self.move(gradient.sign(), state, undo=undo))

    def move(self, signs: Tensor, state: RpropState, *, undo: bool) -> Tensor:
        """Compute the change of the params (d,) from the gradient's signs (d,). `undo`: undo steps where the sign changes."""
        same_sign, other_sign = signs * state.signs > 0, signs * state.signs < 0
        larger = (state.steps * self.increase).clamp(max=self.step_max)
        smaller = (state.steps * self.decrease).clamp(min=self.step_min)
        state.steps.copy_(larger.where(same_sign, smaller.where(other_sign, state.steps)))
        if self.variant != "rprop-":
            signs = signs.masked_fill(other_sign, 0)
        state.signs.copy_(signs)
        move = -signs * state.steps
        if isinstance(state, BacktrackingState):
            if undo:
                move = (-state.move).where(other_sign, move)
            state.move.copy_(move)
        return move

    def losses(self, worker: Worker) -> float:
        """Sum the losses of the round so far; 0 for variants that do not use them."""
        return worker.loss() * worker.items if self.variant == "irprop+" and worker.items else 0.0


@dataclass
class RpropState:
    """The step sizes and the gradient's signs."""

    steps: Tensor = replicated()
    """Delta (d,)"""
    signs: Tensor = replicated()
    """Signs of the previous gradient (d,); 0 for a weight whose step was undone or left out."""


@dataclass
class BacktrackingState(RpropState):
    """The state of variants that undo steps."""

    move: Tensor = replicated()
    """Change of the params in the newest iteration (d,)."""
    loss: float = replicated()
    """E: mean loss of all items before that iteration."""

    def loss_has_risen(self, group: Group, weight: float, losses: float, items: int) -> bool:
        """Return whether the mean loss has risen since the previous iteration, given this worker's weight and sum of losses."""
        scores = group.scores(weight, weight * losses / max(items, 1))
        before, self.loss = self.loss, sum(loss for _, loss in scores) / sum(weight for weight, _ in scores)
        return self.loss > before
