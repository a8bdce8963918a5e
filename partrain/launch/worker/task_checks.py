"""Checks, at every call, of the values that a task returns: user code may return other values in the middle of training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from partrain.errors import UserCodeFailed
from partrain.tasks.task import Task


class InvalidTaskOutput(UserCodeFailed):
    """User code returned an invalid value. There is no traceback because it returned normally."""


class TaskChecks:
    """Checks of a task's methods, in its `vars`: so they also check the task's own calls, and its class still decides its engine."""

    def __init__(self, task: Task, name: str, under_test: str = "", look: Callable[[Any], None] | None = None) -> None:
        """Check the calls of a task, named `name` in messages: an invalid value raises UserCodeFailed.

        `under_test`: code that a dry run tries, in words; a dry run checks more. `look`: called with the answers before each loss.
        """
        self._who, self._under_test, self._look = f"[task] name: `{name}`", under_test, look
        self._owns = type(task).differentiate is not Task.differentiate
        self._loss, self._differentiate, self._score, self._correct = task.loss, task.differentiate, task.score, task.correct
        if under_test:
            vars(task).update(loss=self.loss, differentiate=self.differentiate, score=self.score, correct=self.correct)
            vars(task).update(plain=False)  # the engine computes the gradient of a plain stack of layers without the task
        else:
            vars(task).update({"differentiate": self.differentiate} if self._owns else {"loss": self.loss})

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        if self._look:
            self._look(answers)
        lost = self._loss(answers, targets)
        training = torch.is_grad_enabled()
        if not self._owns and (self._under_test or training):
            check_loss(lost, f"{self._who}: `loss`")
            if training and self._under_test and not lost.requires_grad:
                raise UserCodeFailed(f"{self._under_test}: the loss does not depend on any parameter that is trained")
        return lost

    def differentiate(self, module: Any, parameters: Any, *batch: Any) -> Any:
        result = self._differentiate(module, parameters, *batch)
        if self._owns:
            check_gradients(result, parameters, f"{self._who}: `differentiate`")
        elif sparse := [gradient for gradient in result[1] if gradient is not None and gradient.is_sparse]:
            what = f"a gradient of shape {tuple(sparse[0].shape)} is sparse, and partrain trains on dense ones"
            raise UserCodeFailed(f"{self._under_test}: {what}; leave sparse=True out, as of `nn.Embedding`")
        elif all(gradient is None for gradient in result[1]):
            raise UserCodeFailed(f"{self._under_test}: the loss does not depend on any parameter that is trained")
        return result

    def correct(self, answers: Tensor, targets: Tensor) -> Any:
        count = self._correct(answers, targets)
        if not _is_number(count):
            wanted = "expected the number of items with a right answer, as (answers.argmax(1) == targets).sum()"
            raise UserCodeFailed(f"{self._who}: `correct` gives {kind(count)}; {wanted}")
        return count

    def score(self, *batch: Any) -> Any:
        scores: Any = self._score(*batch)
        who, expected = f"{self._who}: `score` gives", "expected the sum of the losses and the number of right answers"
        try:
            two = tuple(scores)
        except TypeError:
            two = ()
        if len(two) != 2:
            raise UserCodeFailed(f"{who} {kind(scores)}; {expected}")
        for number in two:
            if not _is_number(number):
                raise UserCodeFailed(f"{who} {kind(number)} for a number; {expected}")
        return scores


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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (getattr(value, "shape", None) == () and value.dtype not in (bool, torch.bool))
