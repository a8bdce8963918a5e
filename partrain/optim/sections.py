"""`[optimizer]` tables of all optimizers but SGD, with torch's names and settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from partrain.config.problems import Finding
from partrain.optim import Decaying, Optimizer
from partrain.optim.schedule import finding

Beta = Annotated[float, Field(ge=0, lt=1)]
Betas = Annotated[list[Beta], Field(min_length=2, max_length=2)]


class _BiasCorrected(Decaying):
    """An optimizer that keeps running means of the gradient and of its square, with bias correction."""

    @property
    def moments(self) -> dict[str, float]:
        return {"exp_avg": 0.0, "exp_avg_sq": 0.0}

    @property
    def counts_steps(self) -> bool:
        return True


class _AdamLike(_BiasCorrected):
    """Settings of Adam and its variants."""

    betas: Betas = [0.9, 0.999]
    """Decay factors of the running means of the gradient and of its square."""
    eps: float = Field(1e-8, gt=0)
    """Number added to the divisor, so that no step divides by 0."""


class Adam(_AdamLike):
    """Adam as torch.optim.Adam. Kingma, Ba. Adam: A Method for Stochastic Optimization. 2015. arXiv:1412.6980"""

    name: Literal["adam"]
    amsgrad: bool = False
    """AMSGrad: divide by the largest mean square so far. Reddi, Kale, Kumar. 2018. arXiv:1904.09237"""

    @property
    def moments(self) -> dict[str, float]:
        return super().moments | ({"max_exp_avg_sq": 0.0} if self.amsgrad else {})


class AdamW(Adam):
    """Adam with decoupled weight decay, as torch.optim.AdamW. Loshchilov, Hutter. 2019. arXiv:1711.05101"""

    name: Literal["adamw"]  # type: ignore[assignment]
    weight_decay: float = Field(0.01, ge=0)
    """Decoupled weight decay: each step multiplies the parameters by 1 - (learning rate) * `weight_decay`."""


class _DecoupledDecay(_AdamLike):
    """An optimizer with optional decoupled weight decay."""

    decoupled_weight_decay: bool = False
    """Apply the weight decay to the parameters, not to the gradient, as AdamW does."""

    def check(self) -> Iterator[Finding]:
        yield from super().check()
        if self.decoupled_weight_decay and not self.decays:
            message = "`decoupled_weight_decay` has no effect without `weight_decay`"
            yield finding("decoupled_weight_decay", message, "for example, add `weight_decay = 0.01`")


class NAdam(_DecoupledDecay):
    """Adam with Nesterov's momentum, as torch.optim.NAdam. Dozat. Incorporating Nesterov Momentum into Adam. 2016."""

    name: Literal["nadam"]
    momentum_decay: float = Field(4e-3, ge=0)
    """psi: at step t the momentum is betas[0] (1 - 0.96^(t psi) / 2)."""


class RAdam(_DecoupledDecay):
    """Adam with a rectified variance in its first steps, as torch.optim.RAdam. Liu et al. 2020. arXiv:1908.03265"""

    name: Literal["radam"]


class Adamax(_AdamLike):
    """Adam with the infinity norm instead of the second moment, as torch.optim.Adamax. arXiv:1412.6980, section 7.1"""

    name: Literal["adamax"]

    @property
    def moments(self) -> dict[str, float]:
        return {"exp_avg": 0.0, "exp_inf": 0.0}


class RmsProp(Decaying):
    """RMSprop as torch.optim.RMSprop. Hinton. Neural Networks for Machine Learning, lecture 6. 2012.

    The mean of `square_avg` over workers is at least the square of the mean `grad_avg`, so the centered variance is never negative.
    """

    name: Literal["rmsprop"]
    alpha: float = Field(0.99, ge=0, lt=1)
    """Decay factor of the running mean of squared gradients."""
    eps: float = Field(1e-8, gt=0)
    """Number added to the divisor, so that no step divides by 0."""
    momentum: float = Field(0.0, ge=0, lt=1)
    """Momentum: share of the previous step that each step keeps."""
    centered: bool = False
    """Divide by the standard deviation of the gradient instead of its root mean square."""

    @property
    def moments(self) -> dict[str, float]:
        return {"square_avg": 0.0} | ({"grad_avg": 0.0} if self.centered else {}) | ({"momentum": 0.0} if self.momentum else {})


class Adagrad(Decaying):
    """Adagrad as torch.optim.Adagrad. Duchi, Hazan, Singer. 2011. Averaging over workers gives the sum of a mean worker."""

    name: Literal["adagrad"]
    lr_decay: float = Field(0.0, ge=0)
    """Decay of the learning rate: it is divided by 1 + lr_decay * (number of earlier steps)."""
    initial_accumulator_value: float = Field(0.0, ge=0, le=1e38)
    """Initial value of the sum of squares."""
    eps: float = Field(1e-10, gt=0)
    """Number added to the divisor, so that no step divides by 0."""

    @property
    def moments(self) -> dict[str, float]:
        return {"sum": self.initial_accumulator_value}

    @property
    def counts_steps(self) -> bool:
        return bool(self.lr_decay)


class Rprop(Optimizer):
    """Resilient propagation as torch.optim.Rprop: each parameter has its own step, which follows the sign of its gradient.

    `lr` is the first step. Signs are noisy on mini-batches, so batches are full by default. Averaging over workers gives
    `step_size` the mean step and `prev` the mean of the previous gradients; the next step compares signs with it. (The sync
    rule of this name is different: all workers take the same steps on the gradient of all items.)

    Source: Riedmiller, Braun. A direct adaptive method for faster backpropagation learning. 1993
    """

    name: Literal["rprop"]
    full_batch: bool = True
    etas: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=2, max_length=2)] = [0.5, 1.2]
    """Factors of a step size: when the gradient changes its sign (below 1), and when it does not (above 1)."""
    step_sizes: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=2, max_length=2)] = [1e-6, 50.0]
    """Smallest and largest step size."""

    unused_keys: ClassVar[tuple[str, ...]] = ("schedule", "warmup", "horizon", "clip_norm", "clip_value", "groups", "layer_decay")
    rateless: ClassVar[bool] = True

    @property
    def moments(self) -> dict[str, float]:
        return {"prev": 0.0, "step_size": self.lr}

    def check(self) -> Iterator[Finding]:
        yield from super().check()
        if not self.etas[0] < 1 < self.etas[1]:
            yield finding(
                "etas", f"`etas` = {self.etas}: the first must be below 1, the second above 1", "torch's default is [0.5, 1.2]"
            )
        if self.step_sizes[0] > self.step_sizes[1]:
            yield finding("step_sizes", f"the smallest step {self.step_sizes[0]:g} is larger than the largest step")


class Lbfgs(Optimizer):
    """Limited-memory BFGS as torch.optim.LBFGS with max_iter = 1: an iteration is one gradient and one step of length `lr`.

        s = x - x',  y = g - g'                                   (if s y > 1e-10: the newest of at most m pairs)
        x <- x - lr H g                                           (H: the inverse Hessian that the pairs imply)

    The first step is a gradient step whose 1-norm is at most `lr`. All pairs belong to one function only with full batches,
    the default. There is no line search, which needs more than one gradient per iteration. x' and g' are stored, so a pair stays
    correct if mixing moves x in between. With `optimizer_state = "local"` pairs belong to the worker's own function. Averaged pairs
    of negative curvature are skipped.

    Source: Nocedal, Wright. Numerical Optimization. 2006, algorithm 7.4
    """

    name: Literal["lbfgs"]
    full_batch: bool = True
    history_size: int = Field(10, ge=1, le=1000)
    """m: number of stored pairs. Each has two vectors as long as the parameters. (torch's default is 100.)"""
    tolerance_grad: float = Field(1e-7, ge=0)
    """Skip the step if no number of the gradient has a larger magnitude than this."""
    tolerance_change: float = Field(1e-9, ge=0)
    """Skip the step if the predicted fall of the loss, per unit of `lr`, is smaller than this."""

    unused_keys: ClassVar[tuple[str, ...]] = ("groups", "layer_decay")

    @property
    def moments(self) -> dict[str, float]:
        pairs = range(self.history_size)
        names = [*(f"old_dirs_{pair}" for pair in pairs), *(f"old_stps_{pair}" for pair in pairs), "prev_params", "prev_grad"]
        return dict.fromkeys(names, 0.0)


class Muon(_BiasCorrected):
    """Momentum with orthogonal steps for matrices, as torch.optim.Muon. AdamW updates all other parameters.

    Newton-Schulz iterations bring all singular values of a matrix's momentum near 1. `exp_avg` also holds Muon's momentum.

    Source: Jordan. Muon: An optimizer for hidden layers in neural networks. 2024
    Source: Liu et al. Muon is Scalable for LLM Training. 2025. arXiv:2502.16982 (`match_rms_adamw`)
    """

    name: Literal["muon"]
    weight_decay: float = Field(0.1, ge=0)
    """Decoupled weight decay: each step multiplies the parameters by 1 - (learning rate) * `weight_decay`."""
    momentum: float = Field(0.95, ge=0, lt=1)
    """Momentum: share of the previous step that each step keeps."""
    nesterov: bool = True
    """Use Nesterov momentum."""
    ns_coefficients: Annotated[list[float], Field(min_length=3, max_length=3)] = [3.4445, -4.775, 2.0315]
    """a, b, c of a Newton-Schulz iteration X <- a X + b (X X^T) X + c (X X^T)^2 X."""
    ns_steps: int = Field(5, ge=1, lt=100)
    """Number of Newton-Schulz iterations."""
    eps: float = Field(1e-7, gt=0)
    """Smallest norm to divide a matrix by."""
    adjust_lr_fn: Literal["original", "match_rms_adamw"] = "original"
    """Scale of a step for a matrix (a, b): max(1, a / b)^0.5, or 0.2 max(a, b)^0.5, which suits AdamW's learning rates."""
    adamw_lr: float | None = Field(None, gt=0)
    """Peak learning rate of AdamW; default: `lr`. It follows the same schedule, and a group's `lr` changes it in proportion."""
    adamw_betas: Betas = [0.9, 0.999]
    """`betas` of AdamW, for the parameters that are not matrices."""
    adamw_eps: float = Field(1e-8, gt=0)
    """`eps` of AdamW, for the parameters that are not matrices."""
