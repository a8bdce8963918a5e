"""A network that suffers a deed once, at one of its training iterations on a device. A copy lies beside the job of a case."""

import os
import signal
from pathlib import Path

import torch
from torch import Tensor, nn

DONE = Path(__file__).with_name("done")
PIECE = 1 << 50
"""Bytes that no device has."""


class Net(nn.Sequential):
    """An MLP with BatchNorm and dropout. `deed`: `kill` ends its process, `allocate` asks for more memory than the device has."""

    def __init__(self, deed: str = "", iteration: int = 0) -> None:
        super().__init__(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.25), nn.Linear(32, 3))
        self.deed, self.iteration, self.iterations = deed, iteration, 0

    def forward(self, items: Tensor) -> Tensor:
        """Return the logits (b, 3)."""
        self.iterations += self.training and not items.is_cpu
        if self.deed and self.iterations == self.iteration and not DONE.exists():
            DONE.touch()
            if self.deed == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            torch.empty(PIECE, dtype=torch.uint8, device=items.device)
        for layer in self:
            items = layer(items)
        return items
