"""The mini-batches of one worker, gathered in blocks and handed out as slices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partrain.training.batches import Batches, Samples

BLOCK_BYTES = 1 << 20
"""Inputs gathered at a time: iterations then train on slices of one contiguous block."""

Batch = tuple[Tensor, Tensor]
"""Inputs (b, ...) and targets (b, ...)."""


class Feed:
    """The samples of a worker, in the order of its batches."""

    def __init__(self, samples: Samples, batches: Batches, reuse: bool) -> None:
        """`reuse`: gather each block into the same memory. Only for networks that keep no reference to their inputs."""
        self.samples, self.batches = samples, batches
        self._block_items = max(1, BLOCK_BYTES // max(samples.inputs[:1].numel() * 4, 1))
        self._buffer = samples.buffer(max(self._block_items, batches.batch_size)) if reuse else None
        self._stream: Iterator[Batch] = iter(())

    def begin(self, round: int) -> None:
        """Start a round (from 1): what was gathered ahead is dropped."""
        self.batches.begin(round)
        self._stream = self._blocks()

    def take(self, count: int) -> Iterator[Batch]:
        """Yield the next mini-batches, and move the cursor past each."""
        for _ in range(count):
            inputs, targets = next(self._stream)
            self.batches.position += len(targets)
            yield inputs, targets

    def partition(self, items: int) -> Iterator[Batch]:
        """Yield the whole partition once, in its given order, this many items at a time."""
        whole = self.batches.partition
        for first in range(0, len(whole), items):
            yield self.samples.batch(self._index(whole[first : first + items]))

    def _blocks(self) -> Iterator[Batch]:
        for sizes in self.batches.blocks(self._block_items):
            inputs, targets = self.samples.batch(self._index(self.batches.draw(sum(sizes))), self._buffer)
            yield from zip(torch.split(inputs, sizes), torch.split(targets, sizes), strict=True)

    def _index(self, numbers: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(numbers).to(self.samples.inputs.device)
