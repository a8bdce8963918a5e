"""The meaning of a network's answers, by kind of task: labels, probabilities, numbers in the units of the data set's files.

Judging, `evaluate`, `predict`, reports and exported graphs take them from here. Symbols: b items; C classes; k labels or numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from partrain.tasks.kinds import MultiLabel, Task

Restore = Callable[[Tensor, Tensor | None], Tensor]
"""Function that converts numbers (b, k) to the units of the files; its second argument: see `data.units.restore_units`."""


class AnswerBatch(NamedTuple):
    """A batch as metrics take it."""

    answers: Tensor
    """Probabilities, label maps, numbers in the units of the files, or the network's answers: by kind of task."""
    targets: Tensor
    """Right answers, in the same units."""
    decided: Tensor
    """(b,) classes, (b, k) labels 0 or 1, or (b, h, w) label maps; the answers if the task has no labels."""


def batch_of(
    task: Task, kind: str, answers: Tensor, targets: Tensor, newest: Tensor | None = None, restore: Restore = lambda x, _: x
) -> AnswerBatch:
    """Convert the answers of a network and the targets of the task.

    Args:
        task: The task.
        kind: Kind of its answers; see `kind_of_answers`.
        answers: The network's answers (b, ...).
        targets: What the task compares them with.
        newest: The values (b, number, targets) that differences of a series continue, where `restore` needs them.
        restore: Converts numbers to the units of the files.
    """
    full = answers.to(torch.promote_types(answers.dtype, torch.float32))
    match kind:
        case "classification" | "multi-label":
            return AnswerBatch(probabilities_of(kind, full), targets.long(), labels_of(task, answers).long())
        case "segmentation":
            maps = labels_of(task, answers)
            return AnswerBatch(maps, targets.long(), maps)
        case "regression" | "forecast":
            answers, targets = numbers_of(task, full, newest, restore), restore(targets.flatten(1), newest)
            answers, targets = (x.double().squeeze(1) if x.shape[1] == 1 else x.double() for x in (answers, targets))
    return AnswerBatch(answers, targets, answers)


def labels_of(task: Task, answers: Tensor) -> Tensor:
    """Return the classes (b, ...) of logits (b, C, ...), or which of k labels (b, k) the network gives."""
    return task.labels(answers) if isinstance(task, MultiLabel) else answers.argmax(1)


def probabilities_of(kind: str, answers: Tensor) -> Tensor:
    """Return the probabilities of logits: of each label, or of the classes along the second axis."""
    return answers.sigmoid() if kind == "multi-label" else answers.softmax(1)


def numbers_of(task: Task, answers: Tensor, newest: Tensor | None, restore: Restore) -> Tensor:
    """Return the predicted numbers (b, k) in the units of the files; see `batch_of`."""
    return restore(task.predicted(answers).flatten(1), newest)


def reconstruction_errors(answers: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared difference of each item (b,)."""
    return (answers.double() - targets.double()).square().flatten(1).mean(1)
