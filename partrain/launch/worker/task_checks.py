"""Checks of the values that a user task returns, at every call: they may change in the middle of training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from partrain.errors import UserCodeFailed
from partrain.tasks.task import Task


class InvalidTaskOutput(UserCodeFailed):
    """User code returned an invalid value. There is no traceback because it returned normally."""


def check_task_calls(task: Task, name: str) -> None:
    """Wrap the calls of a task, named `name` in messages: an invalid value raises InvalidTaskOutput."""
    owns = type(task).differentiate is not Task.differentiate
    given_loss, given_differentiate = task.loss, task.differentiate

    def loss(answers: Tensor, targets: Tensor) -> Tensor:
        lost = given_loss(answers, targets)
        if torch.is_grad_enabled():
            check_loss(lost, f"[task] name: `{name}`: `loss`")
        return lost

    def differentiate(module: Any, parameters: Any, *batch: Any) -> Any:
        result = given_differentiate(module, parameters, *batch)
        check_gradients(result, parameters, f"[task] name: `{name}`: `differentiate`")
        return result

    vars(task).update({"differentiate": differentiate} if owns else {"loss": loss})


def check_loss(loss: Any, who: str) -> None:
    """Check the value of a user task's `loss`."""
    if not isinstance(loss, Tensor) or loss.shape != () or not loss.is_floating_point():
        raise InvalidTaskOutput(f"{who} gives {kind(loss)}; expected the mean loss of the items, a tensor () of one number")


def check_gradients(result: Any, parameters: Any, who: str) -> None:
    """Check the value of a user task's `differentiate`."""
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise InvalidTaskOutput(f"{who} gives {kind(result)}; expected the mean loss, and a gradient or None for each parameter")
    loss, gradients = result
    check_loss(loss, who)
    if not isinstance(gradients, tuple | list) or len(gradients) != len(parameters):
        raise InvalidTaskOutput(f"{who} gives as gradients {kind(gradients)}; expected {len(parameters)}, one for each parameter")
    for number, (gradient, parameter) in enumerate(zip(gradients, parameters, strict=True)):
        if gradient is not None and (not isinstance(gradient, Tensor) or gradient.shape != parameter.shape):
            wanted = f"expected a tensor {tuple(parameter.shape)} or None"
            raise InvalidTaskOutput(f"{who} gives {kind(gradient)} as gradient of parameter {number}; {wanted}")


def kind(value: Any) -> str:
    """Describe a value in words."""
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)} of {value.dtype}"
    return f"{type(value).__name__}" + (f" of {len(value)}" if isinstance(value, tuple | list) else "")
