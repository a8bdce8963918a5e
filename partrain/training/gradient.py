"""The engine of a worker's local iterations: autograd, or compiled code for a plain stack of layers and for the network `tabular`.

Autograd also uses compiled code for recurrent layers on the CPU.

Autograd can work in parts to save memory, and in bfloat16 to save time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from partrain.system.compiler import CannotCompile
from partrain.tasks.task import BUILT_IN, Task, targets_of_answers
from partrain.training.batches import Samples, split
from partrain.training.compiled_linear import compile_linear
from partrain.training.compiled_mlp import CompiledMlp
from partrain.training.compiled_recurrent import compile_recurrent
from partrain.training.compiled_step import CompiledStep
from partrain.training.compiled_tabular import CompiledTabular
from partrain.training.feed import Piece
from partrain.training.replica import Replica
from partrain.training.section import Engine, Precision

Differentiate = Callable[[nn.Module, Sequence[nn.Parameter], Tensor, Tensor, int], tuple[Tensor, Sequence[Tensor | None]]]
"""The signature of `Task.differentiate`."""
Gradients = Sequence[Tensor | None]
"""A gradient, tensor by tensor; None for a parameter that does not affect the loss."""


Trained = Iterator[tuple[Sequence[float | Tensor], Sequence[int]]]
"""Losses, numbers or tensors (), and item counts of mini-batches after differentiation; the steps follow before the next mini-batches."""


class LocalEngine(Protocol):
    """Local iterations of a replica."""

    reuses_inputs: bool
    """True if the engine keeps no reference to its inputs, so that the next inputs may take their memory."""
    draws: bool
    """True if the engine may draw random numbers."""
    compiled: bool
    """True if the network, or a part of it, computes in compiled code."""

    def train(self, piece: Piece, rates: Sequence[float], iteration: int) -> Trained:
        """Take a step for each mini-batch of a piece, at its learning rate. `iteration`: number of earlier local iterations, for user code."""

    def gradient(self, piece: Piece, iteration: int) -> float | Tensor:
        """Write the gradient of a piece's only mini-batch into the row. Returns the mean loss, a number or a tensor ()."""

    def add_gradient(self, inputs: Any, targets: Tensor, iteration: int, share: float, *, add: bool) -> float | Tensor:
        """Write `share` times the gradient of a large batch into the row, or add it to the row. Return the mean loss."""

    def step(self, rate: float) -> None:
        """Take a step with the gradient in the row."""

    def most_numbered(self, samples: Samples) -> int:
        """Return the most items in a piece that the engine can gather by number from all items; 0 if the feed has to convert them."""


class AutogradEngine:
    """The task's own backward pass."""

    reuses_inputs, draws = False, True

    def __init__(self, replica: Replica, task: Task, parts: int, precision: Precision, *, compiled: bool = False) -> None:
        self._replica, self.compiled = replica, compiled
        self._backward = backward_of(task, parts, precision, replica.params.device)

    def train(self, piece: Piece, rates: Sequence[float], iteration: int) -> Trained:
        for number, (rate, size, (inputs, targets)) in enumerate(zip(rates, piece.sizes, piece.batches(), strict=True)):
            loss, gradients = self._differentiate(inputs, targets, iteration + number)
            yield [loss], [size]
            self._replica.optimizer.step(gradients, rate)

    def gradient(self, piece: Piece, iteration: int) -> float | Tensor:
        ((inputs, targets),) = piece.batches()
        return self.add_gradient(inputs, targets, iteration, 1.0, add=False)

    def add_gradient(self, inputs: Any, targets: Tensor, iteration: int, share: float, *, add: bool) -> float | Tensor:
        loss, gradients = self._differentiate(inputs, targets, iteration)
        self._replica.store_gradient(gradients, share, add=add)
        return loss

    def step(self, rate: float) -> None:
        self._replica.step(self._replica.grads, rate)

    def most_numbered(self, samples: Samples) -> int:
        return 0

    def _differentiate(self, inputs: Any, targets: Tensor, iteration: int) -> tuple[float | Tensor, Gradients]:
        loss, gradients = self._backward(self._replica.module, self._replica.trainable_parameters, inputs, targets, iteration)
        return loss.item() if loss.is_cpu else loss.detach(), gradients


MOST_ITEMS, MOST_PRODUCTS = 1 << 16, 1 << 30
"""Most items, and items times parameters, in compiled code between two signs of life: they take less than a second."""


class CompiledEngine:
    """Compiled code that writes a network's gradient into the replica's row, and takes some optimizers' steps. Autograd takes large batches."""

    reuses_inputs = compiled = True

    def __init__(self, replica: Replica, task: Task, step: CompiledStep | None, autograd: AutogradEngine) -> None:
        self._replica, self._task, self.add_gradient = replica, task, autograd.add_gradient
        self.step = step or replica.optimizer.bind(replica.gradient_views)

    def train(self, piece: Piece, rates: Sequence[float], iteration: int) -> Trained:
        for rate, size, (inputs, targets) in zip(rates, piece.sizes, piece.batches(), strict=True):
            yield [self._differentiate(Piece([size], inputs, targets))], [size]
            self.step(rate)

    def gradient(self, piece: Piece, iteration: int) -> float:
        return self._differentiate(piece)

    def most_numbered(self, samples: Samples) -> int:
        return 0

    def _differentiate(self, piece: Piece) -> float:
        """Write the gradient of a piece's only mini-batch into the row. Returns the mean loss."""
        raise NotImplementedError


class TabularEngine(CompiledEngine):
    """The network `tabular` in compiled code, with any built-in task's loss."""

    draws = True

    def __init__(self, replica: Replica, task: Task, network: CompiledTabular, autograd: AutogradEngine) -> None:
        super().__init__(replica, task, network.step, autograd)
        self._network = network

    def _differentiate(self, piece: Piece) -> float:
        answers = self._network(piece.inputs)
        loss = self._task.loss(answers, targets_of_answers(self._task, self._network, piece.inputs, piece.targets))
        (delta,) = torch.autograd.grad(loss, [answers])
        self._network.backward(delta)
        return loss.item()


class MlpEngine(CompiledEngine):
    """A plain stack of layers in compiled code, for a plain loss."""

    draws = False

    def __init__(self, replica: Replica, task: Task, mlp: CompiledMlp, autograd: AutogradEngine) -> None:
        super().__init__(replica, task, mlp.step, autograd)
        self._mlp = mlp

    def train(self, piece: Piece, rates: Sequence[float], iteration: int) -> Trained:
        if not self._mlp.step:
            yield from super().train(piece, rates, iteration)
            return
        yield self._losses(piece, rates), piece.sizes

    def most_numbered(self, samples: Samples) -> int:
        inputs, targets, dtype = samples.inputs, samples.targets, samples.dtype
        convertible = (inputs.dtype == dtype and samples.scale == 1) or (inputs.dtype == torch.uint8 and dtype == torch.float32)
        simple = samples.channel_scale is None and not samples.parts and inputs.is_contiguous() and targets.is_contiguous()
        own_targets = type(self._task).targets is Task.targets and targets.dtype in (torch.int64, dtype)
        most = max(1, min(MOST_ITEMS, MOST_PRODUCTS // self._replica.params.numel()))
        return most if self._mlp.step and convertible and simple and own_targets else 0

    def _differentiate(self, piece: Piece) -> float:
        (loss,) = self._losses(piece)
        return loss

    def _losses(self, piece: Piece, rates: Sequence[float] = ()) -> list[float]:
        """Train on the mini-batches of a piece, each at its learning rate; without rates compute only their gradients."""
        targets = piece.targets if piece.numbers is not None else self._task.targets(piece.inputs, piece.targets)
        return self._mlp.train(piece.inputs, targets, piece.sizes, rates, piece.numbers, piece.scale)


def engine_for(replica: Replica, task: Task, parts: int, engine: Engine) -> tuple[LocalEngine, str]:
    """Choose the engine by network, task and settings, never by a clock.

    Return the engine, and the reason why the network's code could not be compiled, or "".
    """
    compiled, reason = False, ""
    if type(task) in BUILT_IN and engine.compiled and engine.precision == "float32":  # a user's task may do anything
        try:
            plain = task.plain and parts == 1
            if plain and (mlp := CompiledMlp.of(replica.module, replica.gradient_views, replica.optimizer)):
                return MlpEngine(replica, task, mlp, AutogradEngine(replica, task, parts, engine.precision)), ""
            if parts == 1 and (tabular := CompiledTabular.of(replica.module, replica.gradient_views, replica.optimizer)):
                return TabularEngine(replica, task, tabular, AutogradEngine(replica, task, parts, engine.precision)), ""
            compiled = any([compile_recurrent(replica.module), compile_linear(replica.module)])
        except CannotCompile as error:
            reason = str(error)
    return AutogradEngine(replica, task, parts, engine.precision, compiled=compiled), reason


def computing(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Let a network compute in this precision: torch decides for each operation whether it would gain or suffer."""
    return nullcontext() if precision == "float32" else torch.autocast(device.type, torch.bfloat16)


def backward_of(task: Task, parts: int, precision: Precision, device: torch.device) -> Differentiate:
    """Return a task's backward pass in this number of parts and in this precision."""
    differentiate = task.differentiate if precision == "float32" else _in_precision(task, precision, device)
    return differentiate if parts == 1 else _in_parts(differentiate, parts)


def _in_precision(task: Task, precision: Precision, device: torch.device) -> Differentiate:
    """Run forward pass and loss in a precision; gradients keep the type of the parameters.

    A task with its own backward pass runs all of it in this precision.
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
