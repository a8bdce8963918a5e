"""Tasks: what is lost with an answer, which answers are right, and the gradient of that.

Symbols: b items of a batch; C classes; k numbers; L tokens of an item, V in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class Task:
    """What a network is trained to do. A subclass of the user's own gives `loss` at least; it may own the rest, too."""

    accuracy = False
    """Whether there are right answers to count."""
    plain = False
    """Whether the loss is the mean cross-entropy against labels (b,), or the mean squared error against numbers (b, k)."""

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        """Mean loss () over the items of a batch."""
        raise NotImplementedError(f"{type(self).__name__} has no `loss(answers, targets)`; or give `differentiate` and `score`")

    def correct(self, answers: Tensor, targets: Tensor) -> float:
        """How many of the items are answered rightly; an item may count as a fraction."""
        raise NotImplementedError(f"{type(self).__name__} has `accuracy = True`, but no `correct(answers, targets)`")

    def targets(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """What the answers are compared with."""
        return targets

    def differentiate(
        self, module: nn.Module, parameters: Sequence[nn.Parameter], inputs: Tensor, targets: Tensor, iteration: int
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        """The backward pass: mean loss () of a batch, and its gradient by each parameter (None: stays as it is).

        Args:
            module: The network, in training mode.
            parameters: Those that are trained.
            inputs: (b, *shape)
            targets: As the data set has them.
            iteration: Local iterations of this worker before this one.
        """
        loss = self.loss(module(inputs), self.targets(inputs, targets))
        return loss, torch.autograd.grad(loss, list(parameters), allow_unused=True)

    def score(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
        """Sum of the loss over the items of a batch, and how many are answered rightly; the network is in evaluation mode."""
        answers, targets = module(inputs), self.targets(inputs, targets)
        return float(self.loss(answers, targets)) * len(inputs), self.correct(answers, targets) if self.accuracy else 0.0


class Classification(Task):
    """Answers (b, C) are logits, targets (b,) labels: cross-entropy."""

    accuracy = plain = True

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(answers, targets)

    def correct(self, answers: Tensor, targets: Tensor) -> float:
        return float((answers.argmax(1) == targets).sum())


class Regression(Task):
    """Answers and targets (b, k): squared error. A forecast is one whose numbers lie in the future."""

    plain = True

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        if answers.shape != targets.shape:
            raise ValueError(f"the network gives answers {tuple(answers.shape)} to targets {tuple(targets.shape)}")
        numbers = targets.to(torch.promote_types(answers.dtype, targets.dtype))  # torch 2.11 does not do so in a backward pass
        return functional.mse_loss(answers, numbers)


class Language(Task):
    """Answers (b, L, V) are logits for the next token of each, targets (b, L): cross-entropy per token."""

    accuracy = True

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        if answers.dim() != 3 or answers.shape[:2] != targets.shape:
            raise ValueError(f"the network gives answers {tuple(answers.shape)} to targets {tuple(targets.shape)}")
        return functional.cross_entropy(answers.flatten(0, 1), targets.flatten())

    def correct(self, answers: Tensor, targets: Tensor) -> float:
        return float((answers.argmax(-1) == targets).double().mean(1).sum())


class Reconstruction(Regression):
    """Answers have the shape of the inputs, which they are to give back: squared error."""

    def targets(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return inputs


KINDS: dict[str, type[Task]] = {
    "classification": Classification,
    "regression": Regression,
    "forecast": Regression,
    "language": Language,
    "autoencoder": Reconstruction,
}
