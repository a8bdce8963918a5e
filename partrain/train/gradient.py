"""How a worker gets its gradient where autograd works it out: in parts, to save memory; in bfloat16, to save time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from partrain.tasks.kinds import Task
from partrain.train.section import Precision

Differentiate = Callable[[nn.Module, Sequence[nn.Parameter], Tensor, Tensor, int], tuple[Tensor, Sequence[Tensor | None]]]
"""As `Task.differentiate`."""


def computing(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """While a network computes in this precision: torch decides operation by operation which gain by it and which would suffer."""
    return nullcontext() if precision == "float32" else torch.autocast(device.type, torch.bfloat16)


def backward_of(task: Task, parts: int, precision: Precision, device: torch.device) -> Differentiate:
    """The backward pass of a task, done in so many parts and in this precision."""
    differentiate = task.differentiate if precision == "float32" else _lowered(task, precision, device)
    return differentiate if parts == 1 else _in_parts(differentiate, parts)


def _lowered(task: Task, precision: Precision, device: torch.device) -> Differentiate:
    """Forward pass and loss in this precision; gradients come back in the type of the parameters. A task that owns its backward
    pass does all of it so."""
    owns = type(task).differentiate is not Task.differentiate

    def differentiate(
        module: nn.Module, parameters: Sequence[nn.Parameter], inputs: Tensor, targets: Tensor, iteration: int
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        with computing(precision, device):
            if owns:
                return task.differentiate(module, parameters, inputs, targets, iteration)
            loss = task.loss(module(inputs), task.targets(inputs, targets))
        return loss, torch.autograd.grad(loss, list(parameters), allow_unused=True)

    return differentiate


def _in_parts(differentiate: Differentiate, count: int) -> Differentiate:
    """Loss and gradient of a batch as the mean over its parts, weighted by their items."""

    def all_parts(
        module: nn.Module, parameters: Sequence[nn.Parameter], inputs: Tensor, targets: Tensor, iteration: int
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        mean = torch.zeros((), device=inputs.device)
        sums: list[Tensor | None] = [None] * len(parameters)
        parts = min(count, len(targets))
        for some, wanted in zip(inputs.tensor_split(parts), targets.tensor_split(parts), strict=True):
            share = len(wanted) / len(targets)
            loss, gradients = differentiate(module, parameters, some, wanted, iteration)
            mean = mean + share * loss.detach()
            for index, gradient in enumerate(gradients):
                if gradient is not None:
                    so_far = sums[index]
                    sums[index] = share * gradient if so_far is None else so_far.add_(gradient, alpha=share)
        return mean, sums

    return all_parts
