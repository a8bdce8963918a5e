"""What a worker trains on: items on its device, and the order in which it sees its partition."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partrain.seeds import generator


@dataclass(frozen=True)
class Samples:
    """Items for a device: `inputs` (n, *shape), scaled on use; `targets` (n,) labels, (n, outputs) numbers or (n, length) tokens."""

    inputs: Tensor
    targets: Tensor
    scale: float
    dtype: torch.dtype = torch.float32
    """What the network computes in."""
    channels_last: bool = False
    """Images are handed over with the channels innermost in memory, which a CPU's convolutions want."""
    device: torch.device | None = None
    """Where batches are wanted, if not where the items lie."""

    @property
    def place(self) -> torch.device:
        """Where batches are."""
        return self.device or self.inputs.device

    def batch(self, index: Tensor, room: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Inputs as floating point and targets of the items at `index` (b,); the inputs in the `room`, if one is given."""
        return self.scaled(self._there(self.inputs.index_select(0, index)), room), self._there(
            self.targets.index_select(0, index)
        )

    def part(self, block: slice) -> tuple[Tensor, Tensor]:
        """Inputs as floating point and targets of some items in a row: copies, for a network may change what it is given."""
        raw = self.inputs[block]
        inputs = self.scaled(self._there(raw))
        return inputs.clone() if inputs.data_ptr() == raw.data_ptr() else inputs, self._there(self.targets[block].clone())

    def room(self, count: int) -> Tensor | None:
        """Memory for the inputs of so many items (count, *shape), where bytes become float32: what the last ones left in the cache."""
        if self.inputs.dtype != torch.uint8 or self.dtype != torch.float32 or self.scale == 1:
            return None
        return torch.empty(count, *self.inputs.shape[1:], device=self.place)

    def _there(self, x: Tensor) -> Tensor:
        return x if self.device is None else x.to(self.device)

    def scaled(self, inputs: Tensor, room: Tensor | None = None) -> Tensor:
        """Raw inputs as the network sees them; tokens stay what they are."""
        if inputs.dtype == torch.int64:
            return inputs
        if room is not None:
            return room[: len(inputs)].copy_(inputs).mul_(self.scale)
        numbers = (inputs if self.scale == 1 else torch.mul(inputs, self.scale)).to(self.dtype)
        return _channels_last(numbers) if self.channels_last else numbers


def _channels_last(images: Tensor) -> Tensor:
    """The same images (b, c, h, w), with the channels innermost in memory."""
    if images.shape[1] == 1:  # such memory has both orders, and torch goes by the strides that it is said to have
        return images.as_strided(images.shape, (images.stride(0), 1, images.stride(2), 1))
    return images.contiguous(memory_format=torch.channels_last)


class Batches:
    """The order in which a worker sees its partition: each pass a permutation derived from (seed, worker, pass)."""

    def __init__(
        self,
        partition: NDArray[np.int64],
        batch_size: int,
        iterations: int,
        whole_passes: bool,
        seed: int,
        rank: int,
        redraw: Callable[[int], NDArray[np.int64]] | None = None,
    ) -> None:
        self.partition = partition
        self.batch_size = batch_size
        self.iterations = iterations
        """Cap per round."""
        self.position = 0
        """Items trained on since the first pass began: the cursor a checkpoint keeps."""
        self._ahead = 0
        self._whole_passes = whole_passes
        self._seed, self._rank = seed, rank
        self._redraw = redraw
        """Gives the partition of a round, where each round has one of its own."""
        self._pass: tuple[int, NDArray[np.int64]] = (-1, partition)
        self._label: tuple[str | int, ...] = ()

    @property
    def per_pass(self) -> int:
        """Iterations of one pass, the last of which may be short."""
        return -(-len(self.partition) // self.batch_size)

    def begin(self, number: int) -> None:
        """A round (from 1) begins; whole passes begin at the beginning."""
        if self._redraw is not None:
            self.partition, self.position = self._redraw(number), 0
            self._label, self._pass = ("round", number), (-1, self.partition)
        if self._whole_passes:
            self.position = -(-self.position // len(self.partition)) * len(self.partition)
        self._ahead = self.position

    def blocks(self, most: int) -> Iterator[list[int]]:
        """Sizes of mini-batches without end, in blocks of at most `most` items (and at least one batch) that end with a round's cap."""
        short = len(self.partition) - (self.per_pass - 1) * self.batch_size
        block: list[int] = []
        for number in itertools.count(1):
            last = self._whole_passes and number % self.per_pass == 0
            block.append(short if last else self.batch_size)
            if number % self.iterations == 0 or sum(block) + self.batch_size > most:
                yield block
                block = []

    def draw(self, count: int) -> NDArray[np.int64]:
        """The next items (count,), running on into the next pass."""
        parts = []
        while count:
            number, start = divmod(self._ahead, len(self.partition))
            part = self._permuted(number)[start : start + count]
            parts.append(part)
            self._ahead += len(part)
            count -= len(part)
        return np.concatenate(parts)

    def _permuted(self, number: int) -> NDArray[np.int64]:
        if self._pass[0] != number:
            order = generator(self._seed, "pass", *self._label, self._rank, number).permutation(len(self.partition))
            self._pass = (number, self.partition[order])
        return self._pass[1]
