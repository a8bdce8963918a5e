"""Items on a worker's device, and the order in which the worker sees its partition."""

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
    """Type of the network's inputs."""
    channels_last: bool = False
    """Batches of images have the channels innermost in memory: convolutions on a CPU are faster so."""
    device: torch.device | None = None
    """The device of batches, if it is not that of the items."""

    @property
    def batch_device(self) -> torch.device:
        """The device of batches."""
        return self.device or self.inputs.device

    def batch(self, index: Tensor, buffer: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Gather inputs, as floating point, and targets of the items at `index` (b,); inputs into the `buffer`, if there is one."""
        inputs = self.scaled(self._on_device(self.inputs.index_select(0, index)), buffer)
        return inputs, self._on_device(self.targets.index_select(0, index))

    def part(self, block: slice) -> tuple[Tensor, Tensor]:
        """Copy inputs, as floating point, and targets of consecutive items: a network may change its inputs."""
        raw = self.inputs[block]
        inputs = self.scaled(self._on_device(raw))
        return inputs.clone() if inputs.data_ptr() == raw.data_ptr() else inputs, self._on_device(self.targets[block].clone())

    def buffer(self, count: int) -> Tensor | None:
        """Allocate memory for the inputs (count, *shape) of batches, where bytes become float32: it stays in the cache between blocks."""
        if self.inputs.dtype != torch.uint8 or self.dtype != torch.float32 or self.scale == 1:
            return None
        return torch.empty(count, *self.inputs.shape[1:], device=self.batch_device)

    def _on_device(self, x: Tensor) -> Tensor:
        return x if self.device is None else x.to(self.device)

    def scaled(self, inputs: Tensor, buffer: Tensor | None = None) -> Tensor:
        """Convert raw inputs to what the network sees; tokens stay as they are."""
        if inputs.dtype == torch.int64:
            return inputs
        if buffer is not None:
            return buffer[: len(inputs)].copy_(inputs).mul_(self.scale)
        numbers = (inputs if self.scale == 1 else torch.mul(inputs, self.scale)).to(self.dtype)
        return _channels_last(numbers) if self.channels_last else numbers


def _channels_last(images: Tensor) -> Tensor:
    """Put the channels of images (b, c, h, w) innermost in memory."""
    if images.shape[1] == 1:  # the memory has both orders; torch goes by the strides
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
        """Draws the partition of a round, if each round has its own."""
        self._pass: tuple[int, NDArray[np.int64]] = (-1, partition)
        self._label: tuple[str | int, ...] = ()

    @property
    def per_pass(self) -> int:
        """Iterations of one pass, the last of which may be short."""
        return -(-len(self.partition) // self.batch_size)

    def begin(self, number: int) -> None:
        """Start a round (from 1); whole passes start at the beginning of the partition."""
        if self._redraw is not None:
            self.partition, self.position = self._redraw(number), 0
            self._label, self._pass = ("round", number), (-1, self.partition)
        if self._whole_passes:
            self.position = -(-self.position // len(self.partition)) * len(self.partition)
        self._ahead = self.position

    def blocks(self, most: int) -> Iterator[list[int]]:
        """Yield sizes of mini-batches without end, in blocks of at most `most` items (and at least one batch).

        A block ends where a round's cap is reached.
        """
        short = len(self.partition) - (self.per_pass - 1) * self.batch_size
        block: list[int] = []
        for number in itertools.count(1):
            last = self._whole_passes and number % self.per_pass == 0
            block.append(short if last else self.batch_size)
            if number % self.iterations == 0 or sum(block) + self.batch_size > most:
                yield block
                block = []

    def draw(self, count: int) -> NDArray[np.int64]:
        """Take the next items (count,), running on into the next pass."""
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
