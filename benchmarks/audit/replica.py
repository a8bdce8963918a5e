"""A replica that is trained by hand: autograd and an optimizer of torch, and no code of partrain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from benchmarks.audit.network import Items, Network

Vector = NDArray[np.float64]
Optimizers = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]
"""Makes the optimizer of some parameters."""

ITEMS = Items()
ROWS, LABELS = torch.from_numpy(ITEMS.inputs), torch.from_numpy(ITEMS.targets)
SGD = partial(torch.optim.SGD, lr=0.1)


def loss_of(network: torch.nn.Module, ids: Sequence[int]) -> torch.Tensor:
    """Compute the mean loss over some items."""
    index = torch.tensor(ids)
    return torch.nn.functional.cross_entropy(network(ROWS[index]), LABELS[index])


class Replica:
    """The network at its initial parameters, and its optimizer."""

    def __init__(self, optimizer: Optimizers = SGD) -> None:
        self.network = Network()
        self._new_optimizer = optimizer
        self.reset()

    def reset(self) -> None:
        """Forget momentum and moments."""
        self.optimizer = self._new_optimizer(list(self.network.parameters()))

    @property
    def names(self) -> list[str]:
        """Names of the parameters."""
        return [name for name, _ in self.network.named_parameters()]

    @property
    def params(self) -> Vector:
        """A copy of all parameters (d,)."""
        return parameters_to_vector(self.network.parameters()).detach().numpy().copy()

    @params.setter
    def params(self, x: Vector) -> None:
        vector_to_parameters(torch.from_numpy(x.copy()), self.network.parameters())

    def gradient(self, ids: Sequence[int]) -> tuple[float, Vector]:
        """Compute loss and gradient (d,) of a batch."""
        loss = loss_of(self.network, ids)
        gradients = torch.autograd.grad(loss, list(self.network.parameters()))
        return float(loss.detach()), parameters_to_vector(gradients).numpy()

    def step(self, ids: Sequence[int]) -> None:
        """Take one step of the optimizer."""

        def closure() -> torch.Tensor:
            self.optimizer.zero_grad()
            loss = loss_of(self.network, ids)
            loss.backward()
            return loss

        self.optimizer.step(closure)

    def train(self, batches: Sequence[Sequence[int]]) -> None:
        """Take one step on each batch."""
        for ids in batches:
            self.step(ids)
