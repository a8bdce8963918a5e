"""The mini-batches of one worker, gathered in blocks and handed out as slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from partrain.data.transforms import Augment
from partrain.training.batches import Batches, Samples, join, split
from partrain.training.stream_batches import StreamBatches

BLOCK_BYTES = 1 << 20
"""Inputs gathered at a time: iterations then train on slices of one contiguous block."""

Batch = tuple[Tensor, Tensor]
"""Inputs (b, ...), or a tuple or dict of such tensors where items have several, and targets (b, ...)."""


class Feed:
    """The samples of a worker, in the order of its batches."""

    def __init__(
        self, samples: Samples, batches: Batches | StreamBatches, *, reuse: bool, augment: Augment | None = None
    ) -> None:
        """Make the feed.

        Args:
            samples: All items; beside a stream, the held-out ones, which are like those of the stream.
            batches: The worker's partition, or its shard of a stream.
            reuse: Gather each block into the same memory. Only for networks that keep no reference to their inputs.
            augment: Changes the inputs of each mini-batch by a seed.
        """
        self.samples, self.batches, self._augment = samples, batches, augment
        self._block_items = max(1, BLOCK_BYTES // max(samples.item_numbers * 4, 1))
        self._buffer = samples.buffer(max(self._block_items, batches.batch_size)) if reuse else None
        self._stream: Iterator[Batch] = iter(())

    def begin(self, round_number: int) -> None:
        """Start a round (from 1): what was gathered ahead is dropped."""
        self.batches.begin(round_number)
        self._stream = self._blocks()

    def take(self, count: int) -> Iterator[Batch]:
        """Yield the next mini-batches, and move the cursor past each."""
        for _ in range(count):
            inputs, targets = next(self._stream)
            self.batches.position += targets.shape[0]
            yield inputs, targets

    def partition(self, items: int) -> Iterator[Batch]:
        """Yield the whole partition once, in its given order, this many items at a time."""
        assert isinstance(self.batches, Batches)  # a job's checks refuse streams here
        whole = self.batches.partition
        for first in range(0, len(whole), items):
            yield self.samples.batch(self.samples.index(whole[first : first + items]))

    def _blocks(self) -> Iterator[Batch]:
        for sizes, position, raw_inputs, raw_targets in self.batches.gather(self.samples, self._block_items):
            change = None if self._augment is None else partial(self._augmented, self._augment, sizes, position)
            inputs, targets = self.samples.converted(raw_inputs, raw_targets, self._buffer, change)
            yield from zip(split(inputs, sizes), torch.split(targets, list(sizes)), strict=True)

    def _augmented(self, augment: Augment, sizes: Sequence[int], position: int, inputs: Any) -> Any:
        """Augment the batches of a block that begins at a position, each by a seed of its own."""
        changed = []
        for batch, size in zip(split(inputs, sizes), sizes, strict=True):
            changed.append(augment(batch, self.batches.augmentation_seed(position)))
            position += size
        return join(changed)
