"""The networks and the items of the trainings that the audit compares, as user code of a job.

In training `forward` writes the identities of its items to a file of its process. So the audit learns which items a worker
trained on, and in which order, from what the network is given, and from no code of partrain. Outside training it writes them to
another file: held-out items.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

FEATURES, HIDDEN, CLASSES, ITEMS, SIDE = 5, 8, 3, 240, 4


class Items:
    """Rows of an identity and features. Labels are noisy, so that gradients do not vanish."""

    def __init__(self, targets: str = "classes", items: int = ITEMS) -> None:
        """Make the items. `targets`: "classes", "rare" (of unequal classes), "numbers", "counts" or "labels" (several 0 or 1)."""
        draw = np.random.default_rng(1)
        features = draw.normal(size=(items, FEATURES))
        scores = features @ draw.normal(size=(FEATURES, CLASSES)) + draw.gumbel(size=(items, CLASSES))
        self.inputs = np.column_stack([np.arange(items), features]).astype(np.float32)
        self.targets: Any = {
            "classes": scores.argmax(axis=1),
            "rare": (scores - [0.0, 1.0, 3.0]).argmax(axis=1),
            "numbers": scores.astype(np.float32),
            "counts": draw.poisson(np.exp(scores / 3)).astype(np.float32),
            "labels": (scores > 0.5).astype(np.float32),
        }[targets]


class Maps:
    """Images of an identity and two channels, with a label for each pixel; the label CLASSES marks pixels that do not count."""

    def __init__(self, items: int = 60) -> None:
        draw = np.random.default_rng(3)
        pixels = draw.normal(size=(items, 2, SIDE, SIDE))
        scores = np.stack([pixels[:, 0], pixels[:, 1], -pixels.sum(1)], axis=1) + draw.gumbel(size=(items, CLASSES, SIDE, SIDE))
        identity = np.broadcast_to(np.arange(items)[:, None, None, None], (items, 1, SIDE, SIDE))
        self.inputs = np.concatenate([identity, pixels], axis=1).astype(np.float32)
        self.targets = scores.argmax(axis=1)
        self.targets[draw.random(self.targets.shape) < 0.2 + 0.6 * draw.random((items, 1, 1))] = CLASSES


class Recorder(nn.Module):
    """A network that records the identities of its items."""

    def __init__(self, record: str = "") -> None:
        """Make the network; its initial parameters are the same each time. `record`: folder for the identities."""
        super().__init__()
        self.record = record

    def note(self, identities: Tensor) -> None:
        """Write the identities of a batch. partrain also tries the network on two items that it draws: their numbers are not whole."""
        if self.record and bool((identities == identities.round()).all()):
            kind = "" if self.training else "held-out-"
            with (Path(self.record) / f"{kind}{os.getpid()}.txt").open("a") as file:
                print(*identities.long().tolist(), file=file)


class Network(Recorder):
    """A multilayer perceptron in float64, whose roundings are far below any difference of formulas."""

    def __init__(self, record: str = "") -> None:
        super().__init__(record)
        draw = torch.Generator().manual_seed(2)
        shapes = {"w1": (FEATURES, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, CLASSES), "b2": (CLASSES,)}
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.randn(shape, generator=draw, dtype=torch.float64) / 2))

    def forward(self, rows: Tensor) -> Tensor:
        self.note(rows[:, 0])
        return torch.tanh(rows[:, 1:].double() @ self.w1 + self.b1) @ self.w2 + self.b2


class Layered(Recorder):
    """Three linear layers and a BatchNorm in float64, with statistics that are not those of a new network."""

    def __init__(self, record: str = "") -> None:
        super().__init__(record)
        linear = partial(nn.Linear, dtype=torch.float64)
        norm = nn.BatchNorm1d(HIDDEN, dtype=torch.float64)
        self.layers = nn.Sequential(linear(FEATURES, HIDDEN), norm, nn.Tanh(), linear(HIDDEN, 6), nn.Tanh(), linear(6, CLASSES))
        draw = torch.Generator().manual_seed(2)
        with torch.no_grad():
            for tensor in self.state_dict().values():
                if tensor.is_floating_point():
                    tensor.copy_(torch.randn(tensor.shape, generator=draw, dtype=torch.float64) / 2)
            assert norm.running_var is not None
            norm.running_var.abs_().add_(0.5)

    def forward(self, rows: Tensor) -> Tensor:
        self.note(rows[:, 0])
        logits: Tensor = self.layers(rows[:, 1:].double())
        return logits


class Pixels(Recorder):
    """Two convolutions in float64: a score of each label for each pixel, also of the label that does not count."""

    def __init__(self, record: str = "") -> None:
        super().__init__(record)
        convolution = partial(nn.Conv2d, kernel_size=3, padding=1, dtype=torch.float64)
        self.layers = nn.Sequential(convolution(2, 4), nn.Tanh(), convolution(4, CLASSES + 1))
        draw = torch.Generator().manual_seed(2)
        with torch.no_grad():
            for tensor in self.parameters():
                tensor.copy_(torch.randn(tensor.shape, generator=draw, dtype=torch.float64) / 4)

    def forward(self, images: Tensor) -> Tensor:
        self.note(images[:, 0, 0, 0])
        scores: Tensor = self.layers(images[:, 1:].double())
        return scores


class Forecaster(nn.Module):
    """A forecast of two numbers. It writes the windows of each item, with its answers where it does not train."""

    def __init__(self, record: str, size: int) -> None:
        """Make the network for windows of `size` numbers."""
        super().__init__()
        self.record, self.layer = record, nn.Linear(size, 2)

    def forward(self, windows: Tensor) -> Tensor:
        answers: Tensor = self.layer(windows.flatten(1).float())
        kind = "" if self.training else "tried-" if len(windows) == 2 else "held-out-"  # two made-up items try the network
        rows = windows.flatten(1) if self.training else torch.cat([windows.flatten(1), answers], 1)
        with (Path(self.record) / f"{kind}{os.getpid()}.txt").open("a") as file:
            for row in rows.tolist():
                print(*row, file=file)
        return answers
