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
Loss = Callable[[torch.nn.Module, Sequence[int]], torch.Tensor]
"""Computes the mean loss of a network over some items."""
Optimizers = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]
"""Makes the optimizer of some parameters."""

ITEMS = Items()
ROWS, LABELS = torch.from_numpy(ITEMS.inputs), torch.from_numpy(ITEMS.targets)
SGD = partial(torch.optim.SGD, lr=0.1)


def loss_of(network: torch.nn.Module, ids: Sequence[int]) -> torch.Tensor:
    """Compute the mean loss over some items."""
    index = torch.tensor(ids)
    return torch.nn.functional.cross_entropy(network(ROWS[index]), LABELS[index])


def arrays(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Give the parameters of a network by name, then its floating-point buffers."""
    buffers = {name: buffer for name, buffer in network.named_buffers() if buffer.is_floating_point()}
    return dict(network.named_parameters()) | buffers


class Replica:
    """The network at its initial parameters, and its optimizer."""

    def __init__(
        self, optimizer: Optimizers = SGD, network: Callable[[], torch.nn.Module] = Network, loss: Loss = loss_of
    ) -> None:
        self.network, self._loss = network(), loss
        self._new_optimizer = optimizer
        self.reset()

    def reset(self) -> None:
        """Forget momentum and moments."""
        self.optimizer = self._new_optimizer(list(self.network.parameters()))

    @property
    def state(self) -> Vector:
        """A copy of all parameters and of floating-point buffers, in this order."""
        return np.concatenate([tensor.detach().numpy().ravel() for tensor in arrays(self.network).values()])

    @property
    def params(self) -> Vector:
        """A copy of all parameters (d,)."""
        return parameters_to_vector(self.network.parameters()).detach().numpy().copy()

    @params.setter
    def params(self, x: Vector) -> None:
        vector_to_parameters(torch.from_numpy(x.copy()), self.network.parameters())

    def gradient(self, ids: Sequence[int]) -> tuple[float, Vector]:
        """Compute loss and gradient (d,) of a batch."""
        loss = self._loss(self.network, ids)
        gradients = torch.autograd.grad(loss, list(self.network.parameters()))
        return float(loss.detach()), parameters_to_vector(gradients).numpy()

    def step(self, ids: Sequence[int]) -> None:
        """Take one step of the optimizer."""

        def closure() -> torch.Tensor:
            self.optimizer.zero_grad()
            loss = self._loss(self.network, ids)
            loss.backward()
            return loss

        self.optimizer.step(closure)

    def train(self, batches: Sequence[Sequence[int]]) -> None:
        """Take one step on each batch."""
        for ids in batches:
            self.step(ids)
