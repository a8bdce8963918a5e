"""Tasks: the loss of an answer, its correctness, and the gradient of the loss.

Symbols: b items of a batch; C classes; k numbers; L tokens of an item, V in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from partrain.system.accelerator import in_float64
from partrain.tasks.kinds import CLASSIFICATION, KINDS, REGRESSION, USER, TaskKind
from partrain.tasks.section import BuiltinTask

PADDING = -100
"""Target of a padding token: no loss, neither correct nor wrong. It is not a class."""


class Task:
    """Base class of tasks. A user task defines at least `loss` and may override the rest.

        class Within(partrain.Task):                       # a regression: the share of answers within a tolerance counts
            accuracy = True                                # `correct` is defined

            def __init__(self, tolerance=0.1):             # keys of [task] except `name`
                self.tolerance = tolerance

            def loss(self, answers, targets):              # -> a tensor (), the mean over the b items
                return torch.nn.functional.smooth_l1_loss(answers, targets)

            def correct(self, answers, targets):           # -> one number from 0 to b: a count, not one answer per item
                return float(((answers - targets).abs() < self.tolerance).all(1).sum())

    In the job: `[task]` with `name = "task.py:Within"` and `tolerance = 0.05`. The members of a task:

    loss           required: the mean loss of a batch, one number in a tensor (), which autograd differentiates
    accuracy       True if `correct` is defined; then the run judges by accuracy, and `[stop] accuracy` may be set
    correct        the number of right answers in a batch: a sum over items, such as `float((answers.argmax(1) == targets).sum())`
    targets        the tensor to compare the answers with, if it is not the data set's targets
    score          replaces `loss` and `correct` in judgements: sum of losses, count of right answers
    differentiate  replaces `loss` in training: mean loss, and a gradient for each parameter

    Shapes, for a batch of b items: `answers` are what the network returns, (b, C) logits of C classes or (b, k) numbers; `targets` are
    the data set's, (b,) labels as int64 or (b, k) numbers. All are on the worker's device. A run tries a task on one batch before
    any worker starts, and checks every value that it returns.
    """

    accuracy = False
    """True if answers are correct or wrong, so that the task counts correct ones."""
    padded = False
    """True if items are sequences of unequal length: inputs are a tuple of padded items and their lengths, targets may be PADDING."""
    plain = False
    """True if the loss is the mean cross-entropy against labels (b,) or the mean squared error against numbers (b, k)."""
    answers: Literal["logits", "numbers", ""] = ""
    """Meaning of a user task's answers, for `evaluate` and `predict`: logits or numbers; "": logits if targets are labels."""

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss () over the items of a batch."""
        raise NotImplementedError(f"{type(self).__name__} has no `loss(answers, targets)`; or give `differentiate` and `score`")

    def correct(self, answers: Tensor, targets: Tensor) -> float:
        """Return the number of items with a correct answer, from 0 to b, as in `(answers.argmax(1) == targets).sum()`. An item may
        count as a fraction."""
        raise NotImplementedError(f"{type(self).__name__} has `accuracy = True`, but no `correct(answers, targets)`")

    def targets(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the tensor to compare the answers with; by default the data set's targets."""
        return targets

    def predicted(self, answers: Tensor) -> Tensor:
        """Convert answers to those about the data: logarithms to counts, logits to logits without class weights; default: none."""
        return answers

    def differentiate(
        self, module: nn.Module, parameters: Sequence[nn.Parameter], inputs: Tensor, targets: Tensor, iteration: int
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Run the backward pass: return the mean loss () of a batch and its gradient by each parameter (None: no update).

        Args:
            module: The network, in training mode.
            parameters: The parameters to train.
            inputs: (b, *shape); a tuple or dict of such tensors if items have several inputs. `module(inputs)` takes all of them,
            and
                `mean_loss` pairs its answers with the targets, even if a network gives several answers to each item.
            targets: Targets of the data set.
            iteration: Local iterations of this worker before this one.
        """
        loss = self.mean_loss(module, inputs, targets)
        return loss, torch.autograd.grad(loss, list(parameters), allow_unused=True)

    def mean_loss(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss () of a batch in training.

        A network with `answers_per_item` gives several answers to each item, one after the other.
        """
        return self.loss(module(inputs), targets_of_answers(self, module, inputs, targets))

    def score(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
        """Return the sum of the loss over the items of a batch and the count of correct answers. The network is in evaluation mode."""
        answers, targets = module(inputs), self.targets(inputs, targets)
        return float(self.loss(answers, targets)) * len(targets), self.correct(answers, targets) if self.accuracy else 0.0


def targets_of_answers(task: Task, network: object, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the target of each answer in training: those of the task, several times if the network has `answers_per_item`."""
    members = getattr(network, "answers_per_item", 1)
    targets = task.targets(inputs, targets)
    return targets.repeat_interleave(members, 0) if members > 1 else targets


class Classification(Task):
    """Cross-entropy: answers (b, C) are logits, targets (b,) labels."""

    accuracy = plain = True
    weights: Tensor | None = None
    """(C,): factors of the items' losses by class."""
    smoothing = focal = 0.0

    @classmethod
    def of(cls, section: BuiltinTask, weights: Sequence[float] | None) -> Self:
        """Make the task of a `[task]` table."""
        task = cls()
        task.weights = None if weights is None else torch.tensor(weights, dtype=torch.float64)
        task.smoothing, task.focal = section.label_smoothing or 0.0, section.focal or 0.0
        task.plain = cls.plain and weights is None and not task.smoothing and not task.focal
        return task

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        if self.plain:
            return functional.cross_entropy(answers, targets)
        return self.cross_entropy(answers, targets).mean()

    def cross_entropy(self, logits: Tensor, labels: Tensor, ignore: int = PADDING) -> Tensor:
        """Return the cross-entropy of each label (b, ...), logits (b, C, ...); 0 where the label is `ignore`.

        The result is not normalised: a plain mean over items makes a mean over workers equal to one worker with all items.
        `smoothing`: label smoothing as in torch (Szegedy et al. 2016). `focal`: the gamma of the focal loss (Lin et al. 2017.
        arXiv:1708.02002).
        """
        weights = None if self.weights is None else self.weights.to(logits.device, logits.dtype)
        plain = functional.cross_entropy(
            logits, labels, weights, reduction="none", label_smoothing=self.smoothing, ignore_index=ignore
        )
        if not self.focal:
            return plain
        classes = labels.masked_fill(labels == ignore, 0).unsqueeze(1)
        return plain * (1 - logits.softmax(1).gather(1, classes).squeeze(1)).pow(self.focal)

    def correct(self, answers: Tensor, targets: Tensor) -> float:
        return float((answers.argmax(1) == targets).sum())

    def predicted(self, answers: Tensor) -> Tensor:
        """Return the logits (b, C, ...) of the data's probabilities p. Training gives those of weight * p (Menon et al. 2021).

        Source: Menon et al. 2021. arXiv:2007.07314
        """
        if self.weights is None:
            return answers
        shift = self.weights.where(self.weights > 0, 1.0).log().to(answers)  # the network knows nothing of a class without weight
        return answers - shift.reshape(-1, *[1] * (answers.dim() - 2))


class Regression(Task):
    """Answers and targets (b, k), squared error by default. A forecast is a regression on future numbers."""

    plain = True
    error: Callable[[Tensor, Tensor], Tensor] = staticmethod(functional.mse_loss)
    """Function that returns the mean loss () of answers against numbers."""
    counts = False
    """True if answers are logarithms of expected counts."""
    central = True
    """True if answers estimate the middle of the possible values; the only such quantile is the median."""

    @classmethod
    def of(cls, section: BuiltinTask, weights: Sequence[float] | None) -> Self:
        """Make the task of a `[task]` table."""
        task = cls()
        match section.loss:
            case "absolute":
                task.error = functional.l1_loss
            case "huber":
                delta = section.delta or 1.0
                task.error = lambda answers, numbers: functional.huber_loss(answers, numbers, delta=delta)
            case "quantile":
                quantile = section.quantile or 0.5
                task.central = quantile == 0.5
                task.error = lambda answers, numbers: _pinball(answers, numbers, quantile)
            case "poisson":
                task.error, task.counts = functional.poisson_nll_loss, True
        task.plain = section.loss in (None, "squared")
        return task

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        if answers.shape != targets.shape:
            raise ValueError(f"the network gives answers {tuple(answers.shape)} to targets {tuple(targets.shape)}")
        numbers = targets.to(
            torch.promote_types(answers.dtype, targets.dtype)
        )  # the backward pass of torch 2.11 needs equal types
        return self.error(answers, numbers)

    def predicted(self, answers: Tensor) -> Tensor:
        return answers.exp() if self.counts else answers


class Language(Task):
    """Cross-entropy per token: answers (b, L, V) are logits for the next token of each token, targets (b, L).

    Padding has the target PADDING. The loss of an item is the mean over its other tokens: items count equally, whatever their
    length.
    """

    accuracy = True
    smoothing = 0.0

    @classmethod
    def of(cls, section: BuiltinTask, weights: Sequence[float] | None) -> Self:
        """Make the task of a `[task]` table."""
        task = cls()
        task.smoothing = section.label_smoothing or 0.0
        return task

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        if answers.dim() != 3 or answers.shape[:2] != targets.shape:
            raise ValueError(f"the network gives answers {tuple(answers.shape)} to targets {tuple(targets.shape)}")
        if self.padded:
            losses = functional.cross_entropy(
                answers.transpose(1, 2), targets, ignore_index=PADDING, reduction="none", label_smoothing=self.smoothing
            )
            return (losses.sum(1) / (targets != PADDING).sum(1)).mean()
        return functional.cross_entropy(answers.flatten(0, 1), targets.flatten(), label_smoothing=self.smoothing)

    def correct(self, answers: Tensor, targets: Tensor) -> float:
        right = in_float64(answers.argmax(-1) == targets)
        if self.padded:
            return float((right.sum(1) / (targets != PADDING).sum(1)).sum())
        return float(right.mean(1).sum())


class Reconstruction(Regression):
    """Error between answers and inputs, which have the same shape; squared by default."""

    def targets(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return inputs


class MultiLabel(Task):
    """Binary cross-entropy: answers (b, k) are logits, targets (b, k) are 0 or 1. Accuracy is the share of labels that are right."""

    accuracy = True
    focal, threshold = 0.0, 0.5

    @classmethod
    def of(cls, section: BuiltinTask, weights: Sequence[float] | None) -> Self:
        """Make the task of a `[task]` table."""
        task = cls()
        task.focal, task.threshold = section.focal or 0.0, section.threshold or 0.5
        return task

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        if answers.shape != targets.shape:
            raise ValueError(f"the network gives answers {tuple(answers.shape)} to targets {tuple(targets.shape)}")
        losses = functional.binary_cross_entropy_with_logits(answers, targets.to(answers.dtype), reduction="none")
        if self.focal:  # exp(-loss): probability of the true label
            losses = losses * (1 - torch.exp(-losses)).pow(self.focal)
        return losses.mean()

    def correct(self, answers: Tensor, targets: Tensor) -> float:
        return float(in_float64(self.labels(answers) == targets).mean(1).sum())

    def labels(self, answers: Tensor) -> Tensor:
        """Return the labels (b, k), True where the probability is at or above the threshold."""
        return answers.sigmoid() >= self.threshold

    def predicted(self, answers: Tensor) -> Tensor:
        return answers.sigmoid()


class Segmentation(Classification):
    """Cross-entropy per pixel: answers (b, C, h, w) are logits, targets (b, h, w) labels.

    The loss of an image is the mean over its pixels except those with the label `ignore`; its accuracy is their share of right
    answers.
    """

    plain = False
    ignore = 255

    @classmethod
    def of(cls, section: BuiltinTask, weights: Sequence[float] | None) -> Self:
        task = super().of(section, weights)
        task.ignore = section.unlabeled
        return task

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        if answers.dim() != 4 or (len(answers), *answers.shape[2:]) != tuple(targets.shape):
            raise ValueError(f"the network gives answers {tuple(answers.shape)} to label maps {tuple(targets.shape)}")
        losses = self.cross_entropy(answers, targets.long(), self.ignore)
        return (losses.flatten(1).sum(1) / self._pixels(targets)).mean()

    def correct(self, answers: Tensor, targets: Tensor) -> float:
        hits = (answers.argmax(1) == targets) & (targets != self.ignore)
        return float((in_float64(hits.flatten(1)).sum(1) / self._pixels(targets)).sum())

    def _pixels(self, targets: Tensor) -> Tensor:
        """Count the pixels (b,) with a label; 1 if an image has none."""
        return (targets != self.ignore).flatten(1).sum(1).clamp(min=1)


def _pinball(answers: Tensor, targets: Tensor, quantile: float) -> Tensor:
    """Return the mean pinball loss: its expectation is lowest if answers are the quantile."""
    error = targets - answers
    return torch.maximum(quantile * error, (quantile - 1) * error).mean()


BUILT_IN: dict[type[Task], TaskKind] = {globals()[kind.loss_class]: kind for kind in reversed(KINDS.values())}
"""Classes of the built-in tasks, each with the first kind that has it."""


def kind_of_answers(task: Task, kind: str, data: str | None) -> TaskKind:
    """Return the kind of a task by its answers, also of a user task; `USER` if they are unknown.

    `kind`: name of the kind, or the kind of user tasks. `data`: kind of the data set's items, if known.
    """
    if kind in KINDS:
        return KINDS[kind]
    built_in = next((BUILT_IN[base] for base in type(task).__mro__ if base in BUILT_IN), USER)
    if built_in is not USER or type(task).score is not Task.score:
        return built_in
    logits = task.answers == "logits" or (not task.answers and data == CLASSIFICATION)
    return KINDS[CLASSIFICATION] if logits else KINDS[REGRESSION] if task.answers == "numbers" else USER
