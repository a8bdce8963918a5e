"""The optimizers besides SGD, as torch names and sets them: their `[optimizer]` tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from partrain.optim import Decaying, Optimizer
from partrain.optim.schedule import Remark

Beta = Annotated[float, Field(ge=0, lt=1)]
Betas = Annotated[list[Beta], Field(min_length=2, max_length=2)]


class _Corrected(Decaying):
    """Running means of the gradient and of its square, corrected by the number of steps."""

    @property
    def moments(self) -> dict[str, float]:
        return {"exp_avg": 0.0, "exp_avg_sq": 0.0}

    @property
    def counts(self) -> bool:
        return True


class _TwoMoments(_Corrected):
    """Adam and its kin."""

    betas: Betas = [0.9, 0.999]
    eps: float = Field(1e-8, gt=0)


class Adam(_TwoMoments):
    """Adam as torch.optim.Adam. Kingma, Ba. Adam: A Method for Stochastic Optimization. 2015. arXiv:1412.6980"""

    name: Literal["adam"]
    amsgrad: bool = False
    """Divide by the largest second moment so far. Reddi, Kale, Kumar. 2018. arXiv:1904.09237"""

    @property
    def moments(self) -> dict[str, float]:
        return super().moments | ({"max_exp_avg_sq": 0.0} if self.amsgrad else {})


class AdamW(Adam):
    """Adam with decoupled weight decay, as torch.optim.AdamW. Loshchilov, Hutter. 2019. arXiv:1711.05101"""

    name: Literal["adamw"]  # type: ignore[assignment]
    weight_decay: float = Field(0.01, ge=0)


class _Decoupling(_TwoMoments):
    """What may decay as AdamW does."""

    decoupled_weight_decay: bool = False
    """Weight decay as AdamW has it."""

    def remarks(self) -> Iterator[Remark]:
        yield from super().remarks()
        if self.decoupled_weight_decay and not self.weight_decay:
            message = "`decoupled_weight_decay` has no effect without `weight_decay`"
            yield Remark("decoupled_weight_decay", message, "add `weight_decay = 0.01`, say")


class NAdam(_Decoupling):
    """Adam with Nesterov's momentum, as torch.optim.NAdam. Dozat. Incorporating Nesterov Momentum into Adam. 2016."""

    name: Literal["nadam"]
    momentum_decay: float = Field(4e-3, ge=0)
    """psi: at step t the momentum is betas[0] (1 - 0.96^(t psi) / 2)."""


class RAdam(_Decoupling):
    """Adam that trusts its second moment only once it is known, as torch.optim.RAdam. Liu et al. 2020. arXiv:1908.03265"""

    name: Literal["radam"]


class Adamax(_TwoMoments):
    """Adam by the largest gradient instead of the second moment, as torch.optim.Adamax. arXiv:1412.6980, section 7.1"""

    name: Literal["adamax"]

    @property
    def moments(self) -> dict[str, float]:
        return {"exp_avg": 0.0, "exp_inf": 0.0}


class RmsProp(Decaying):
    """RMSprop as torch.optim.RMSprop. Hinton. Neural Networks for Machine Learning, lecture 6. 2012.

    Averaged over workers, `square_avg` stays at least `grad_avg` squared, so that the centered variance is never negative.
    """

    name: Literal["rmsprop"]
    alpha: float = Field(0.99, ge=0, lt=1)
    """Share of the mean square that remains at each step."""
    eps: float = Field(1e-8, gt=0)
    momentum: float = Field(0.0, ge=0, lt=1)
    centered: bool = False
    """Divide by the standard deviation of the gradient instead of its root mean square."""

    @property
    def moments(self) -> dict[str, float]:
        return {"square_avg": 0.0} | ({"grad_avg": 0.0} if self.centered else {}) | ({"momentum": 0.0} if self.momentum else {})


class Adagrad(Decaying):
    """Adagrad as torch.optim.Adagrad. Duchi, Hazan, Singer. 2011. Averaged over workers, the sum is that of a mean worker."""

    name: Literal["adagrad"]
    lr_decay: float = Field(0.0, ge=0)
    """The learning rate is divided by 1 + this times the steps before."""
    initial_accumulator_value: float = Field(0.0, ge=0, le=1e38)
    """What the sum of squares begins with."""
    eps: float = Field(1e-10, gt=0)

    @property
    def moments(self) -> dict[str, float]:
        return {"sum": self.initial_accumulator_value}

    @property
    def counts(self) -> bool:
        return bool(self.lr_decay)


class Rprop(Optimizer):
    """Resilient propagation as torch.optim.Rprop: each number has a step of its own, which follows the sign of its gradient.

    `lr` is the first step. Signs say little on mini-batches, so batches are full by default. Averaged over workers,
    `step_size` is the mean step and `prev` the mean of the previous gradients, whose sign the next one is compared with. (The
    sync rule of this name is another thing: all workers take the same steps on the gradient of all items.)

    Source: Riedmiller, Braun. A direct adaptive method for faster backpropagation learning. 1993
    """

    name: Literal["rprop"]
    full_batch: bool = True
    etas: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=2, max_length=2)] = [0.5, 1.2]
    """Factors of a step where the sign has changed (below 1), and where it has not (above 1)."""
    step_sizes: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=2, max_length=2)] = [1e-6, 50.0]
    """Smallest and largest step."""

    in_vain: ClassVar[tuple[str, ...]] = ("schedule", "warmup", "horizon", "clip_norm", "clip_value")
    rateless: ClassVar[bool] = True

    @property
    def moments(self) -> dict[str, float]:
        return {"prev": 0.0, "step_size": self.lr}

    def remarks(self) -> Iterator[Remark]:
        yield from super().remarks()
        if not self.etas[0] < 1 < self.etas[1]:
            yield Remark("etas", f"`etas` {self.etas} are not below and above 1", "torch has [0.5, 1.2]")
        if self.step_sizes[0] > self.step_sizes[1]:
            yield Remark("step_sizes", f"the smallest step {self.step_sizes[0]:g} is larger than the largest")


class Lbfgs(Optimizer):
    """Limited-memory BFGS as torch.optim.LBFGS with max_iter = 1: an iteration is one gradient, and one step of length `lr`.

        s = x - x',  y = g - g'                                   (where s y > 1e-10: the newest of at most m pairs)
        x <- x - lr H g                                           (H: the inverse Hessian that the pairs imply)

    The first step is a gradient step no longer, summed over all numbers, than `lr`. Pairs are of one function only if batches
    are full, which they are by default. There is no line search, which would take more than one gradient per iteration.
    x' and g' are kept as they were, so a pair is right, too, where mixing has moved x in between; with `optimizer_state = "local"`
    it is one of the worker's own function. Averaged pairs that curve the wrong way are passed over.

    Source: Nocedal, Wright. Numerical Optimization. 2006, algorithm 7.4
    """

    name: Literal["lbfgs"]
    full_batch: bool = True
    history_size: int = Field(10, ge=1, le=1000)
    """m: pairs remembered, two vectors (d,) each. (torch's default is 100.)"""
    tolerance_grad: float = Field(1e-7, ge=0)
    """There is no step where no number of the gradient is larger."""
    tolerance_change: float = Field(1e-9, ge=0)
    """There is no step along which the loss falls, per unit of `lr`, by no more than this."""

    @property
    def moments(self) -> dict[str, float]:
        pairs = range(self.history_size)
        names = [*(f"old_dirs_{pair}" for pair in pairs), *(f"old_stps_{pair}" for pair in pairs), "prev_params", "prev_grad"]
        return dict.fromkeys(names, 0.0)


class Muon(_Corrected):
    """Momentum with orthogonal steps for matrices, as torch.optim.Muon; all other parameters go by AdamW.

    Newton-Schulz iterations bring all singular values of a matrix's momentum near 1. `exp_avg` is Muon's momentum, too.

    Source: Jordan. Muon: An optimizer for hidden layers in neural networks. 2024
    Source: Liu et al. Muon is Scalable for LLM Training. 2025. arXiv:2502.16982 (`match_rms_adamw`)
    """

    name: Literal["muon"]
    weight_decay: float = Field(0.1, ge=0)
    momentum: float = Field(0.95, ge=0, lt=1)
    nesterov: bool = True
    ns_coefficients: Annotated[list[float], Field(min_length=3, max_length=3)] = [3.4445, -4.775, 2.0315]
    """a, b, c of a Newton-Schulz iteration X <- a X + b (X X^T) X + c (X X^T)^2 X."""
    ns_steps: int = Field(5, ge=1, lt=100)
    """Newton-Schulz iterations."""
    eps: float = Field(1e-7, gt=0)
    """Least norm that a matrix is divided by."""
    adjust_lr_fn: Literal["original", "match_rms_adamw"] = "original"
    """Scale of a step for a matrix (a, b): max(1, a / b)^0.5, or 0.2 max(a, b)^0.5, with which AdamW's rates fit."""
    adamw_lr: float | None = Field(None, gt=0)
    """Peak learning rate of AdamW; default: `lr`. It follows the same schedule."""
    adamw_betas: Betas = [0.9, 0.999]
    adamw_eps: float = Field(1e-8, gt=0)
