"""Parallel Rprop: the gradient over all items, and a step size of its own for each weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from partrain.protocols import Group, replicated

if TYPE_CHECKING:
    from torch import Tensor
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from partrain.protocols import Remark, Rule, Worker

if TYPE_CHECKING:
    from torch import Tensor


class RpropRule(Rule):
    """Each worker differentiates its whole partition; all take the same step, which sees only the signs of the mean gradient.

        g <- sum_i n_i g_i(x) / sum_i n_i                                (n_i: items of partition i)
        Delta_j <- min(1.2 Delta_j, max) | max(0.5 Delta_j, min) | Delta_j     as g_j g'_j > 0 | < 0 | = 0
        x_j <- x_j - sign(g_j) Delta_j                                   but where g_j g'_j < 0 (g' is the gradient before):
            irprop-    g_j <- 0: the weight waits for one iteration
            irprop+    the same, and the step before is taken back if the mean loss has risen
            rprop+     the same, and it is always taken back
            rprop-     the weight steps on, now the other way

    A round is `iterations` such steps. They do not use the local optimizer. N workers do what one does with all items, up to
    rounding, where partitions do not overlap and `weights` is "items"; `irprop-` is what `torch.optim.Rprop` does.

    Source: Riedmiller, Braun. A Direct Adaptive Method for Faster Backpropagation Learning: The RPROP Algorithm. 1993.
        doi:10.1109/ICNN.1993.298623
    Source: Igel, Huesken. Empirical Evaluation of the Improved Rprop Learning Algorithms. 2003. doi:10.1016/S0925-2312(01)00700-7
    """

    rule: Literal["rprop"]
    variant: Literal["irprop-", "irprop+", "rprop+", "rprop-"] = "irprop-"
    """What becomes of a weight whose gradient changes its sign."""
    increase: float = Field(1.2, gt=1)
    """Factor of a step size while the sign stays."""
    decrease: float = Field(0.5, gt=0, lt=1)
    """Factor of a step size when the sign changes."""
    step: float = Field(0.01, gt=0)
    """Step size of every weight at first: torch's and Shark's; FANN has 0.1."""
    step_min: float = Field(1e-6, gt=0)
    """Smallest step size."""
    step_max: float = Field(50.0, gt=0)
    """Largest step size."""
    optimizer_state: Literal["average", "local", "reset"] = "reset"
    """Without meaning here: the local optimizer is not used. `reset` keeps its idle moments out of mixing and checkpoints."""

    @property
    def syncs_every_iteration(self) -> bool:
        return True

    @property
    def full_batch(self) -> bool:
        return True

    def remarks(self, workers: int) -> Iterator[Remark]:
        if self.passes:
            yield Remark("passes", "each iteration of rprop is a pass over the partition already", "give `iterations` instead")
        if not self.step_min <= self.step <= self.step_max:
            message = f"the first step size, {self.step:g}, is not between `step_min` {self.step_min:g} and `step_max` {self.step_max:g}"
            yield Remark("step", message)

    def init(self, worker: Worker, group: Group) -> Steps:
        zeros = worker.params.new_zeros(worker.params.shape)
        steps, signs = zeros + self.step, zeros.clone()
        return Backtracking(steps, signs, zeros, 0.0) if self.variant.endswith("+") else Steps(steps, signs)

    def round(self, worker: Worker, group: Group, state: Steps) -> None:
        for _ in range(worker.iterations):
            items, losses = worker.items, self.losses(worker)
            gradient = worker.gradient(full=True)
            items, losses = worker.items - items, self.losses(worker) - losses
            weight = self.weight(items)
            group.all_reduce_mean(gradient, weight)
            back = self.variant == "rprop+" or (isinstance(state, Backtracking) and state.risen(group, weight, losses, items))
            worker.params.add_(self.move(gradient.sign(), state, back))

    def move(self, signs: Tensor, state: Steps, back: bool) -> Tensor:
        """What to add to the params (d,), given the signs of the gradient (d,), and whether steps are to be taken back."""
        same_sign, other_sign = signs * state.signs > 0, signs * state.signs < 0
        larger = (state.steps * self.increase).clamp(max=self.step_max)
        smaller = (state.steps * self.decrease).clamp(min=self.step_min)
        state.steps.copy_(larger.where(same_sign, smaller.where(other_sign, state.steps)))
        if self.variant != "rprop-":
            signs = signs.masked_fill(other_sign, 0)
        state.signs.copy_(signs)
        move = -signs * state.steps
        if isinstance(state, Backtracking):
            if back:
                move = (-state.move).where(other_sign, move)
            state.move.copy_(move)
        return move

    def losses(self, worker: Worker) -> float:
        """Sum of the losses of the round so far, where they matter."""
        return worker.loss() * worker.items if self.variant == "irprop+" and worker.items else 0.0


@dataclass
class Steps:
    """The state."""

    steps: Tensor = replicated()
    """Delta (d,)"""
    signs: Tensor = replicated()
    """Of the gradient before (d,); 0 where a step was taken back or left out."""


@dataclass
class Backtracking(Steps):
    """The state where steps may be taken back."""

    move: Tensor = replicated()
    """What the newest iteration has added to the params (d,)."""
    loss: float = replicated()
    """E: mean loss of all items before it."""

    def risen(self, group: Group, weight: float, losses: float, items: int) -> bool:
        """Whether the mean loss has risen since the iteration before, given this worker's weight and its losses' sum."""
        seen = group.scores(weight, weight * losses / max(items, 1))
        before, self.loss = self.loss, sum(loss for _, loss in seen) / sum(weight for weight, _ in seen)
        return self.loss > before
