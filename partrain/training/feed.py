"""A worker's mini-batches: gathered in blocks and handed out as slices, or as numbers of items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partrain.data.transforms import Augment
from partrain.training.batches import Batches, Samples, join, split
from partrain.training.stream_batches import StreamBatches

BLOCK_BYTES = 1 << 20
"""Bytes of the inputs gathered at a time: iterations then train on slices of one contiguous block."""


Batch = tuple[Any, Tensor]
"""Inputs (b, ...), or a tuple or dict of such tensors if items have several, and targets (b, ...)."""


class Piece(NamedTuple):
    """Consecutive mini-batches: in memory, or as a list of numbers."""

    sizes: Sequence[int]
    """Number of items in each."""
    inputs: Any
    targets: Tensor
    numbers: NDArray[np.int64] | None = None
    """Numbers of the items, if the piece has the raw inputs and targets of all; None: the piece has its own items, converted."""
    scale: float = 1.0
    """Factor of raw inputs."""

    def batches(self) -> Iterator[Batch]:
        """Yield each mini-batch of converted items."""
        return zip(split(self.inputs, self.sizes), torch.split(self.targets, list(self.sizes)), strict=True)


NO_PIECE = Piece((), None, torch.empty(0))


class Feed:
    """The samples of a worker, in the order of its batches."""

    def __init__(
        self,
        samples: Samples,
        batches: Batches | StreamBatches,
        *,
        reuse: bool,
        augment: Augment | None = None,
        most_numbered: int = 0,
    ) -> None:
        """Make the feed.

        Args:
            samples: All items; with a stream, the held-out items, which have the stream's form.
            batches: The worker's partition, or its shard of a stream.
            reuse: Gather each block into the same memory. Only for networks that keep no reference to their inputs.
            augment: Changes the inputs of each mini-batch by a seed.
            most_numbered: Most items of a piece that holds only their numbers, where the engine gathers them; 0: the feed gathers them.
        """
        self.samples, self.batches, self._augment = samples, batches, augment
        self._block_items = max(1, BLOCK_BYTES // max(samples.item_numbers * 4, 1))
        self._buffer = samples.buffer(max(self._block_items, batches.batch_size)) if reuse and not most_numbered else None
        self._most_numbered = most_numbered
        self._blocks: Iterator[Piece] = iter(())
        self._rest = NO_PIECE

    def begin(self) -> None:
        """Follow the batches into a new round: drop items gathered ahead."""
        self._blocks = self._number() if self._most_numbered else self._gather()
        self._rest = NO_PIECE

    def pieces(self, count: int) -> Iterator[Piece]:
        """Yield the next mini-batches in pieces, and move the cursor past each."""
        while count:
            piece = self._rest if self._rest.sizes else next(self._blocks)
            self._rest = NO_PIECE
            if count < len(piece.sizes):
                piece, self._rest = _cut(piece, count)
            self.batches.position += sum(piece.sizes)
            count -= len(piece.sizes)
            yield piece

    def partition(self, items: int) -> Iterator[Batch]:
        """Yield the whole partition once, in its given order, this many items at a time."""
        assert isinstance(self.batches, Batches)  # a job's checks refuse streams here
        whole = self.batches.partition
        for first in range(0, len(whole), items):
            yield self.samples.batch(self.samples.index(whole[first : first + items]))

    def _number(self) -> Iterator[Piece]:
        assert isinstance(self.batches, Batches)
        for sizes in self.batches.blocks(self._most_numbered):
            yield Piece(sizes, self.samples.inputs, self.samples.targets, self.batches.draw(sum(sizes)), self.samples.scale)

    def _gather(self) -> Iterator[Piece]:
        for sizes, position, raw_inputs, raw_targets in self.batches.gather(self.samples, self._block_items):
            change = None if self._augment is None else partial(self._augmented, self._augment, sizes, position)
            inputs, targets = self.samples.converted(raw_inputs, raw_targets, self._buffer, change)
            yield Piece(sizes, inputs, targets)

    def _augmented(self, augment: Augment, sizes: Sequence[int], position: int, inputs: Any) -> Any:
        """Augment the batches of a block that begins at a position, each by its own seed."""
        changed = []
        for batch, size in zip(split(inputs, sizes), sizes, strict=True):
            changed.append(augment(batch, self.batches.augmentation_seed(position)))
            position += size
        return join(changed)


def _cut(piece: Piece, count: int) -> tuple[Piece, Piece]:
    """Cut a piece after some mini-batches."""
    first, rest = piece.sizes[:count], piece.sizes[count:]
    spans = [sum(first), sum(rest)]
    if piece.numbers is not None:
        numbers = piece.numbers[: spans[0]], piece.numbers[spans[0] :]
        return piece._replace(sizes=first, numbers=numbers[0]), piece._replace(sizes=rest, numbers=numbers[1])
    inputs, targets = split(piece.inputs, spans), torch.split(piece.targets, spans)
    return Piece(first, inputs[0], targets[0]), Piece(rest, inputs[1], targets[1])
