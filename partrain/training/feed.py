"""The mini-batches of one worker, gathered in blocks and handed out as slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from partrain.data.transforms import Augment
from partrain.training.batches import Batches, Samples, join, split
from partrain.training.stream_batches import StreamBatches

BLOCK_BYTES = 1 << 20
"""Inputs gathered at a time: iterations then train on slices of one contiguous block."""


class Piece(NamedTuple):
    """Mini-batches that follow one another in memory."""

    sizes: Sequence[int]
    """Items of each."""
    inputs: Any
    targets: Tensor


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
        self._blocks: Iterator[Piece] = iter(())
        self._rest = Piece((), None, torch.empty(0))

    def begin(self, round_number: int) -> None:
        """Start a round (from 1): what was gathered ahead is dropped."""
        self.batches.begin(round_number)
        self._blocks = self._gather()
        self._stream = self._cut()
        self._rest = Piece((), None, torch.empty(0))

    def take(self, count: int) -> Iterator[Batch]:
        """Yield the next mini-batches, and move the cursor past each."""
        for _ in range(count):
            inputs, targets = next(self._stream)
            self.batches.position += targets.shape[0]
            yield inputs, targets

    def pieces(self, count: int, most_bytes: int) -> Iterator[Piece]:
        """Yield the next mini-batches in pieces, each of at most these bytes (or one batch), instead of `take` in the whole round."""
        most_items = most_bytes // max(self.samples.item_numbers * 4, 1)
        while count:
            block = self._rest if self._rest.sizes else next(self._blocks)
            number = min(count, max(1, most_items // block.sizes[0]), len(block.sizes))
            items = sum(block.sizes[:number])
            self._rest = Piece(block.sizes[number:], block.inputs[items:], block.targets[items:])
            self.batches.position += items
            count -= number
            yield Piece(block.sizes[:number], block.inputs[:items], block.targets[:items])

    def partition(self, items: int) -> Iterator[Batch]:
        """Yield the whole partition once, in its given order, this many items at a time."""
        assert isinstance(self.batches, Batches)  # a job's checks refuse streams here
        whole = self.batches.partition
        for first in range(0, len(whole), items):
            yield self.samples.batch(self.samples.index(whole[first : first + items]))

    def _cut(self) -> Iterator[Batch]:
        for sizes, inputs, targets in self._blocks:
            yield from zip(split(inputs, sizes), torch.split(targets, list(sizes)), strict=True)

    def _gather(self) -> Iterator[Piece]:
        for sizes, position, raw_inputs, raw_targets in self.batches.gather(self.samples, self._block_items):
            change = None if self._augment is None else partial(self._augmented, self._augment, sizes, position)
            inputs, targets = self.samples.converted(raw_inputs, raw_targets, self._buffer, change)
            yield Piece(sizes, inputs, targets)

    def _augmented(self, augment: Augment, sizes: Sequence[int], position: int, inputs: Any) -> Any:
        """Augment the batches of a block that begins at a position, each by a seed of its own."""
        changed = []
        for batch, size in zip(split(inputs, sizes), sizes, strict=True):
            changed.append(augment(batch, self.batches.augmentation_seed(position)))
            position += size
        return join(changed)
