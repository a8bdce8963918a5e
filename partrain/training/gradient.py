"""Loss and gradient of a worker: by autograd, or by the hand-written gradient of a plain stack of layers.

Autograd can work in parts, to save memory, and in bfloat16, to save time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn

from partrain.tasks.task import BUILT_IN, Task
from partrain.training.batches import split
from partrain.training.fast_mlp import MlpGradient
from partrain.training.replica import Replica
from partrain.training.section import Precision

Differentiate = Callable[[nn.Module, Sequence[nn.Parameter], Tensor, Tensor, int], tuple[Tensor, Sequence[Tensor | None]]]
"""The signature of `Task.differentiate`."""
Gradients = Sequence[Tensor | None]
"""A gradient tensor by tensor; None for a parameter that the loss does not depend on."""


class GradientEngine(Protocol):
    """Loss and gradient of one replica on one batch."""

    in_row: bool
    """True if the engine writes the gradient into the replica's row itself; the engine keeps no reference to its inputs and draws no random numbers."""

    def differentiate(self, inputs: Tensor, targets: Tensor, iteration: int) -> tuple[Tensor, Gradients]:
        """Compute the mean loss () over a batch and its gradient. `iteration`: local iterations before this one, for user code."""


class AutogradEngine:
    """The task's own backward pass."""

    in_row = False

    def __init__(self, replica: Replica, task: Task, parts: int, precision: Precision) -> None:
        self._replica = replica
        self._backward = backward_of(task, parts, precision, replica.params.device)

    def differentiate(self, inputs: Tensor, targets: Tensor, iteration: int) -> tuple[Tensor, Gradients]:
        return self._backward(self._replica.module, self._replica.trainable_parameters, inputs, targets, iteration)


class MlpEngine:
    """The chain rule of a plain stack of layers, written out (`fast_mlp`)."""

    in_row = True

    def __init__(self, replica: Replica, task: Task, gradient: MlpGradient) -> None:
        self._replica, self._task, self.gradient = replica, task, gradient

    def differentiate(self, inputs: Tensor, targets: Tensor, iteration: int) -> tuple[Tensor, Gradients]:
        return self.gradient.differentiate(inputs, self._task.targets(inputs, targets)), self._replica.gradient_views


def engine_for(replica: Replica, task: Task, parts: int, precision: Precision) -> GradientEngine:
    """Choose the fastest engine that gives autograd's bits. A function of network, task and settings, never of a clock."""
    plain = type(task) in BUILT_IN and task.plain  # user code may do anything in a task
    dtype = replica.params.dtype if precision == "float32" else torch.bfloat16
    fast = (
        plain and parts == 1 and (precision == "float32" or replica.params.dtype == torch.float32)
    )  # autocast leaves float64 alone
    mlp = MlpGradient.of(replica.module, replica.gradient_views, dtype) if fast else None
    return MlpEngine(replica, task, mlp) if mlp else AutogradEngine(replica, task, parts, precision)


def computing(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Let a network compute in this precision: torch decides operation by operation which gains by it and which would suffer."""
    return nullcontext() if precision == "float32" else torch.autocast(device.type, torch.bfloat16)


def backward_of(task: Task, parts: int, precision: Precision, device: torch.device) -> Differentiate:
    """Give the backward pass of a task, done in a number of parts and in a precision."""
    differentiate = task.differentiate if precision == "float32" else _in_precision(task, precision, device)
    return differentiate if parts == 1 else _in_parts(differentiate, parts)


def _in_precision(task: Task, precision: Precision, device: torch.device) -> Differentiate:
    """Run forward pass and loss in a precision; gradients keep the type of the parameters.

    A task with a backward pass of its own runs all of it so.
    """
    owns_backward = type(task).differentiate is not Task.differentiate

    def differentiate(
        module: nn.Module, parameters: Sequence[nn.Parameter], inputs: Tensor, targets: Tensor, iteration: int
    ) -> tuple[Tensor, Gradients]:
        with computing(precision, device):
            if owns_backward:
                return task.differentiate(module, parameters, inputs, targets, iteration)
            loss = task.mean_loss(module, inputs, targets)
        return loss, torch.autograd.grad(loss, list(parameters), allow_unused=True)

    return differentiate


def _in_parts(differentiate: Differentiate, count: int) -> Differentiate:
    """Compute loss and gradient of a batch as the mean over its parts, weighted by their items."""

    def all_parts(
        module: nn.Module, parameters: Sequence[nn.Parameter], inputs: Tensor, targets: Tensor, iteration: int
    ) -> tuple[Tensor, Gradients]:
        mean = torch.zeros((), device=targets.device)
        sums: list[Tensor | None] = [None] * len(parameters)
        parts = min(count, len(targets))
        shares = targets.tensor_split(parts)
        for some, wanted in zip(split(inputs, list(map(len, shares))), shares, strict=True):
            share = len(wanted) / len(targets)
            loss, gradients = differentiate(module, parameters, some, wanted, iteration)
            mean = mean + share * loss.detach()
            for index, gradient in enumerate(gradients):
                if gradient is not None:
                    so_far = sums[index]
                    sums[index] = share * gradient if so_far is None else so_far.add_(gradient, alpha=share)
        return mean, sums

    return all_parts
