"""Tasks: the loss of an answer, its correctness, and the gradient of the loss.

Symbols: b items of a batch; C classes; k numbers; L tokens of an item, V in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class Task:
    """Base class of tasks. A user task defines `loss` at least and may override the rest."""

    accuracy = False
    """True if answers are correct or wrong, so that the task counts correct ones."""
    plain = False
    """True if the loss is the mean cross-entropy against labels (b,) or the mean squared error against numbers (b, k)."""

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss () over the items of a batch."""
        raise NotImplementedError(f"{type(self).__name__} has no `loss(answers, targets)`; or give `differentiate` and `score`")

    def correct(self, answers: Tensor, targets: Tensor) -> float:
        """Count the items with a correct answer. An item may count as a fraction."""
        raise NotImplementedError(f"{type(self).__name__} has `accuracy = True`, but no `correct(answers, targets)`")

    def targets(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the tensor to compare the answers with; by default the data set's targets."""
        return targets

    def differentiate(
        self, module: nn.Module, parameters: Sequence[nn.Parameter], inputs: Tensor, targets: Tensor, iteration: int
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Run the backward pass: return the mean loss () of a batch and its gradient by each parameter (None: no update).

        Args:
            module: The network, in training mode.
            parameters: The parameters to train.
            inputs: (b, *shape)
            targets: Targets of the data set.
            iteration: Local iterations of this worker before this one.
        """
        loss = self.loss(module(inputs), self.targets(inputs, targets))
        return loss, torch.autograd.grad(loss, list(parameters), allow_unused=True)

    def score(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
        """Return the sum of the loss over the items of a batch and the count of correct answers. The network is in evaluation mode."""
        answers, targets = module(inputs), self.targets(inputs, targets)
        return float(self.loss(answers, targets)) * len(inputs), self.correct(answers, targets) if self.accuracy else 0.0


class Classification(Task):
    """Cross-entropy: answers (b, C) are logits, targets (b,) labels."""

    accuracy = plain = True

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(answers, targets)

    def correct(self, answers: Tensor, targets: Tensor) -> float:
        return float((answers.argmax(1) == targets).sum())


class Regression(Task):
    """Squared error: answers and targets (b, k). A forecast is a regression on future numbers."""

    plain = True

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        if answers.shape != targets.shape:
            raise ValueError(f"the network gives answers {tuple(answers.shape)} to targets {tuple(targets.shape)}")
        numbers = targets.to(
            torch.promote_types(answers.dtype, targets.dtype)
        )  # the backward pass of torch 2.11 needs equal types
        return functional.mse_loss(answers, numbers)


class Language(Task):
    """Cross-entropy per token: answers (b, L, V) are logits for the next token of each token, targets (b, L)."""

    accuracy = True

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        if answers.dim() != 3 or answers.shape[:2] != targets.shape:
            raise ValueError(f"the network gives answers {tuple(answers.shape)} to targets {tuple(targets.shape)}")
        return functional.cross_entropy(answers.flatten(0, 1), targets.flatten())

    def correct(self, answers: Tensor, targets: Tensor) -> float:
        return float((answers.argmax(-1) == targets).double().mean(1).sum())


class Reconstruction(Regression):
    """Squared error between answers and inputs, which have the same shape."""

    def targets(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return inputs


KINDS: dict[str, type[Task]] = {
    "classification": Classification,
    "regression": Regression,
    "forecast": Regression,
    "language": Language,
    "autoencoder": Reconstruction,
}
