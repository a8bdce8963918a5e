"""The network and the items of every training that the audit compares, as user code of a job.

In training `forward` writes the identities of its items to a file of its process. So the audit learns which items a worker
trained on, and in which order, from what the network is given, and from no code of partrain.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

FEATURES, HIDDEN, CLASSES, ITEMS = 5, 8, 3, 240


class Items:
    """Rows of an identity and features. Labels are noisy, so that gradients do not vanish."""

    def __init__(self) -> None:
        draw = np.random.default_rng(1)
        features = draw.normal(size=(ITEMS, FEATURES))
        scores = features @ draw.normal(size=(FEATURES, CLASSES)) + draw.gumbel(size=(ITEMS, CLASSES))
        self.inputs = np.column_stack([np.arange(ITEMS), features]).astype(np.float32)
        self.targets = scores.argmax(axis=1)


class Network(nn.Module):
    """A multilayer perceptron in float64, whose roundings are far below any difference of formulas."""

    def __init__(self, record: str = "") -> None:
        """Make the network; its initial parameters are the same each time. `record`: folder for the identities."""
        super().__init__()
        draw = torch.Generator().manual_seed(2)
        shapes = {"w1": (FEATURES, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, CLASSES), "b2": (CLASSES,)}
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.randn(shape, generator=draw, dtype=torch.float64) / 2))
        self.record = record

    def forward(self, rows: Tensor) -> Tensor:
        if self.training and self.record:
            with (Path(self.record) / f"{os.getpid()}.txt").open("a") as file:
                print(*rows[:, 0].long().tolist(), file=file)
        return torch.tanh(rows[:, 1:].double() @ self.w1 + self.b1) @ self.w2 + self.b2
