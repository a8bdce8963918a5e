"""Loss and gradient of a worker: by autograd, or by compiled code for a plain stack of layers.

Autograd takes recurrent layers on the CPU through compiled code, too.

Autograd can work in parts, to save memory, and in bfloat16, to save time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn

from partrain.system.compiler import CannotCompile
from partrain.tasks.task import BUILT_IN, Task
from partrain.training.batches import Samples, split
from partrain.training.compiled_mlp import CompiledMlp
from partrain.training.compiled_recurrent import compile_recurrent
from partrain.training.feed import Piece
from partrain.training.replica import Replica
from partrain.training.section import Engine, Precision

Differentiate = Callable[[nn.Module, Sequence[nn.Parameter], Tensor, Tensor, int], tuple[Tensor, Sequence[Tensor | None]]]
"""The signature of `Task.differentiate`."""
Gradients = Sequence[Tensor | None]
"""A gradient tensor by tensor; None for a parameter that the loss does not depend on."""


class GradientEngine(Protocol):
    """Loss and gradient of one replica on one batch."""

    in_row: bool
    """True if the engine writes the gradient into the replica's row itself; the engine keeps no reference to its inputs and draws no random numbers."""
    compiled: bool
    """True if the network, or a part of it, computes in compiled code."""

    def differentiate(self, inputs: Tensor, targets: Tensor, iteration: int) -> tuple[Tensor | float, Gradients]:
        """Compute the mean loss over a batch, a number or a tensor (), and its gradient. `iteration`: local iterations before, for user code."""


class AutogradEngine:
    """The task's own backward pass."""

    in_row = False

    def __init__(self, replica: Replica, task: Task, parts: int, precision: Precision, *, compiled: bool = False) -> None:
        self._replica, self.compiled = replica, compiled
        self._backward = backward_of(task, parts, precision, replica.params.device)

    def differentiate(self, inputs: Tensor, targets: Tensor, iteration: int) -> tuple[Tensor, Gradients]:
        return self._backward(self._replica.module, self._replica.trainable_parameters, inputs, targets, iteration)


MOST_ITEMS, MOST_PRODUCTS = 1 << 16, 1 << 30
"""Items, and items times parameters, that compiled code trains on between two signs of life: they take less than a second."""


class MlpEngine:
    """A plain stack of layers in compiled code."""

    in_row = compiled = True

    def __init__(self, replica: Replica, task: Task, mlp: CompiledMlp) -> None:
        self._replica, self._task, self._mlp = replica, task, mlp
        self.steps, self.step = mlp.steps, mlp.step
        """`steps`: True if `train` does the optimizer's steps, too, and `step` takes one with the gradient in the row."""

    def differentiate(self, inputs: Tensor, targets: Tensor, iteration: int) -> tuple[float, Gradients]:
        return self._mlp.differentiate(inputs, self._task.targets(inputs, targets)), self._replica.gradient_views

    def most_numbered(self, samples: Samples) -> int:
        """Return the most items of a piece that `train` gathers from all items by their numbers; 0 if the feed has to convert them."""
        inputs, targets, dtype = samples.inputs, samples.targets, samples.dtype
        convertible = (inputs.dtype == dtype and samples.scale == 1) or (inputs.dtype == torch.uint8 and dtype == torch.float32)
        simple = samples.channel_scale is None and not samples.parts and inputs.is_contiguous() and targets.is_contiguous()
        own_targets = type(self._task).targets is Task.targets and targets.dtype in (torch.int64, dtype)
        most = max(1, min(MOST_ITEMS, MOST_PRODUCTS // self._replica.params.numel()))
        return most if self.steps and convertible and simple and own_targets else 0

    def train(self, piece: Piece, rates: Sequence[float], scale: float) -> list[float]:
        """Train on the mini-batches of a piece, each at its learning rate. Returns their losses.

        Without rates only the gradient of each is computed. `scale`: that of numbered items.
        """
        targets = piece.targets if piece.numbers is not None else self._task.targets(piece.inputs, piece.targets)
        return self._mlp.train(piece.inputs, targets, piece.sizes, rates, piece.numbers, scale)


def engine_for(replica: Replica, task: Task, parts: int, engine: Engine) -> tuple[GradientEngine, str]:
    """Choose the engine: a function of network, task and settings, never of a clock.

    Returns it, and why the network's code could not be compiled, or "".
    """
    compiled, reason = False, ""
    if type(task) in BUILT_IN and engine.compiled and engine.precision == "float32":  # user code may do anything in a task
        try:
            plain = task.plain and parts == 1
            if plain and (mlp := CompiledMlp.of(replica.module, replica.gradient_views, replica.optimizer)):
                return MlpEngine(replica, task, mlp), ""
            compiled = compile_recurrent(replica.module)
        except CannotCompile as error:
            reason = str(error)
    return AutogradEngine(replica, task, parts, engine.precision, compiled=compiled), reason


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
