"""The answers of a network in evaluation mode: their loss, and the count of correct ones.

Judgements and later commands answer in the same way, so that `evaluate` gives the numbers of the judgement.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from partrain.errors import UserCodeFailed
from partrain.system.compiler import CannotCompile
from partrain.tasks.judged import JudgedMetrics
from partrain.tasks.task import BUILT_IN, Task
from partrain.training.batches import Samples
from partrain.training.compiled_mlp import MlpAnswers
from partrain.training.compiled_tabular import TabularAnswers

CHUNK_NUMBERS = 1 << 18
"""Number of input numbers that a network answers at a time: they stay in the cache."""


def items_at_a_time(inputs: Tensor) -> int:
    """Return how many of the items (n, *shape) a network answers at a time, in judgements and in later commands alike."""
    return max(16, min(1024, CHUNK_NUMBERS // max(1, math.prod(inputs.shape[1:]))))


class _Answers:
    """A network that keeps its newest answers."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self._answer = answer
        self.newest: Any = None

    def __call__(self, inputs: Any) -> Any:
        self.newest = self._answer(inputs)
        return self.newest


def answers_of(module: nn.Module, *, compiled: bool = True) -> Callable[[Any], Any]:
    """Return the function that answers items with a network's present parameters: in C code if it also trains in C code.

    Both answer alike, up to rounding. `compiled`: False for a job whose `[engine]` wants no C code.
    """
    try:
        return (compiled and (MlpAnswers.of(module) or TabularAnswers.of(module))) or module
    except CannotCompile:  # the engine has reported it
        return module


@dataclass(frozen=True)
class Evaluator:
    """The evaluation of a network's answers by a task, and by the job's metrics."""

    module: nn.Module
    task: Task
    metrics: JudgedMetrics | None = None
    """The metrics besides loss and accuracy, which get the answers of each evaluation."""
    compiled: bool = True
    """False for a job whose `[engine]` wants no C code."""

    @property
    def answer(self) -> Callable[[Any], Any]:
        """Function that answers items (b, ...) with the present parameters, as in judgements."""
        return answers_of(self.module, compiled=self.compiled and self._built_in)

    @property
    def _built_in(self) -> bool:
        """True unless the task is user code, which may do more with the network than call it."""
        return type(self.task) in BUILT_IN

    def evaluate(self, samples: Samples, span: range, heartbeat: Callable[[], None] = lambda: None) -> tuple[float, float]:
        """Sum the loss and count the correct answers over a range of items. The numbers have the parameters' type, as in answers.

        The network must be in evaluation mode. `heartbeat` is called before each chunk. Raises UserCodeFailed if a task counts more
        correct answers than there are items.
        """
        module, task, metrics, built_in = self.module, self.task, self.metrics, self._built_in
        answers = _Answers(self.answer)
        network: Any = answers if built_in else module
        watched = metrics and not built_in
        hook = module.register_forward_hook(lambda *call: setattr(answers, "newest", call[-1])) if watched else None
        loss, correct = 0.0, 0.0
        chunk = items_at_a_time(samples.inputs)
        with torch.no_grad():
            for first in range(span.start, span.stop, chunk):
                heartbeat()
                block = slice(first, min(first + chunk, span.stop))
                inputs, targets = samples.part(block)
                answers.newest = None
                scored = task.score(network, inputs, targets)
                loss, correct = loss + scored[0], correct + scored[1]
                if metrics:
                    newest = None if samples.newest is None else samples.newest[block]
                    if answers.newest is None:
                        raise UserCodeFailed(
                            f"[task] name: `score` of {type(task).__name__} does not call the network: metrics get no answers"
                        )
                    metrics.update(answers.newest, task.targets(inputs, targets), newest)
        if hook:
            hook.remove()
        right = float(correct)  # user code may give tensors of any device
        if not 0 <= right <= len(span) * 1.001:  # fractions are rounded
            raise UserCodeFailed(f"[task] name: {type(task).__name__} counts {right:g} right answers of {len(span)} items")
        return float(loss), right
