"""Items on a worker's device, and the order in which the worker sees its partition."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partrain.byte_layout import InputPart
from partrain.errors import InputMissing
from partrain.seeds import derive, generator

Change = Callable[[Any], Any]
"""Augmentation of the inputs of a block."""


@dataclass(frozen=True)
class Samples:
    """Items for a device: `inputs` (n, *shape), scaled at use; `targets` (n,) labels, (n, outputs) numbers or (n, length) tokens."""

    inputs: Tensor
    targets: Tensor
    scale: float
    dtype: torch.dtype = torch.float32
    """Type of the network's inputs."""
    channels_last: bool = False
    """True: batches of images have the channels innermost in memory, which makes convolutions on a CPU faster."""
    device: torch.device | None = None
    """The device of batches, if it differs from the items'."""
    channel_scale: tuple[Sequence[float], Sequence[float]] | None = None
    """Mean and deviation of each channel of images, for standardising batches."""
    parts: tuple[InputPart, ...] = ()
    """The inputs of an item, if there are several: `inputs` are then rows (n, bytes), and a batch has a tuple or dict of tensors."""
    newest: Tensor | None = None
    """(n, number, targets): newest values of a series, on the CPU, if the data set keeps them; see `Dataset.newest`."""
    group: Tensor | None = None
    """(n,): number of the group of each item, on the CPU; see `Dataset.group`."""

    @property
    def batch_device(self) -> torch.device:
        """The device of batches."""
        return self.device or self.inputs.device

    def batch(self, index: Tensor, buffer: Tensor | None = None, change: Change | None = None) -> tuple[Tensor, Tensor]:
        """Gather inputs, as floating point, and targets of the items at `index` (b,); inputs into the `buffer`, if there is one.

        `change` augments the inputs, before channels are standardised.
        """
        return self.converted(self.inputs.index_select(0, index), self.targets.index_select(0, index), buffer, change)

    def converted(
        self, inputs: Tensor, targets: Tensor, buffer: Tensor | None = None, change: Change | None = None
    ) -> tuple[Tensor, Tensor]:
        """Convert raw inputs and targets of a block to inputs and targets of batches; see `batch`."""
        return self.scaled(self._on_device(inputs), buffer, change), self._on_device(targets)

    def chosen(self, items: Tensor | slice) -> Samples:
        """Return some of the items, by number."""
        newest, group = (None if array is None else array[items] for array in (self.newest, self.group))
        return replace(self, inputs=self.inputs[items], targets=self.targets[items], newest=newest, group=group)

    def index(self, numbers: NDArray[np.int64]) -> Tensor:
        """Move numbers of items (b,) to the device of the items."""
        return torch.from_numpy(numbers).to(self.inputs.device, non_blocking=True)

    def part(self, block: slice) -> tuple[Tensor, Tensor]:
        """Copy inputs, as floating point, and targets of consecutive items: a network may change its inputs."""
        raw = self.inputs[block]
        if self.parts:
            return self.scaled(self._on_device(raw.clone())), self._on_device(self.targets[block].clone())
        inputs = self.scaled(self._on_device(raw))
        return inputs.clone() if inputs.data_ptr() == raw.data_ptr() else inputs, self._on_device(self.targets[block].clone())

    def _changed(self, inputs: Tensor, buffer: Tensor | None, change: Change | None) -> Tensor:
        """Convert raw inputs, augment them, and standardise their channels."""
        numbers = replace(self, channel_scale=None, channels_last=False).scaled(inputs, buffer)
        if change is not None:
            numbers = change(numbers)
        if self.channel_scale is not None:
            mean, std = (numbers.new_tensor(values)[:, None, None] for values in self.channel_scale)
            numbers = (numbers - mean) / std
        return _channels_last(numbers) if self.channels_last else numbers

    def buffer(self, count: int) -> Tensor | None:
        """Allocate memory for the inputs (count, *shape) of batches, if bytes become float32: it stays in the cache between blocks."""
        if self.parts or self.inputs.dtype != torch.uint8 or self.dtype != torch.float32 or self.scale == 1:
            return None
        return torch.empty(count, *self.inputs.shape[1:], device=self.batch_device)

    @property
    def item_numbers(self) -> int:
        """Numbers of one item's inputs."""
        return math.prod(self.inputs.shape[1:])

    def _on_device(self, x: Tensor) -> Tensor:
        return x if self.device is None else x.to(self.device, non_blocking=True)  # of pageable memory, which torch copies first

    def scaled(self, inputs: Tensor, buffer: Tensor | None = None, change: Change | None = None) -> Tensor:
        """Convert raw inputs to the network's inputs; tokens do not change."""
        if change is not None or self.channel_scale is not None:
            return self._changed(inputs, buffer, change)
        if inputs.dtype == torch.int64:
            return inputs
        if self.parts:
            several: Tensor = unpack(inputs, self.parts, self.dtype)
            return several
        if buffer is not None:
            return buffer[: len(inputs)].copy_(inputs).mul_(self.scale)
        numbers = (inputs if self.scale == 1 else torch.mul(inputs, self.scale)).to(self.dtype)
        return _channels_last(numbers) if self.channels_last else numbers


def unpack(rows: Tensor, parts: Sequence[InputPart], dtype: torch.dtype) -> Any:
    """Take the inputs out of rows (b, bytes): a tuple of tensors (b, *shape), or a dict of them if they have names.

    Bytes are scaled to [0, 1] and become `dtype`, as float32 does.
    """
    tensors = []
    for part in parts:
        raw = rows[:, part.offset : part.end].contiguous()
        numbers = (raw if part.dtype == "uint8" else raw.view(getattr(torch, part.dtype))).reshape(len(rows), *part.shape)
        if part.dtype == "uint8":
            numbers = torch.mul(numbers, 1 / 255)
        tensors.append(numbers if part.dtype == "int64" else numbers.to(dtype))
    return {part.name: tensor for part, tensor in zip(parts, tensors, strict=True)} if parts[0].name else tuple(tensors)


def split(inputs: Any, sizes: Sequence[int]) -> Sequence[Any]:
    """Split the inputs of a block into batches of these sizes. Several inputs are split in the same way."""
    if isinstance(inputs, Tensor):
        return torch.split(inputs, list(sizes))
    if isinstance(inputs, tuple):
        return list(zip(*(torch.split(values, list(sizes)) for values in inputs), strict=True))
    pieces = {name: torch.split(values, list(sizes)) for name, values in inputs.items()}
    return [{name: piece[number] for name, piece in pieces.items()} for number in range(len(sizes))]


def join(batches: Sequence[Any]) -> Any:
    """Concatenate the inputs of batches."""
    first = batches[0]
    if isinstance(first, Tensor):
        return torch.cat(list(batches))
    if isinstance(first, tuple):
        return tuple(torch.cat(ones) for ones in zip(*batches, strict=True))
    return {name: torch.cat([batch[name] for batch in batches]) for name in first}


def _channels_last(images: Tensor) -> Tensor:
    """Put the channels of images (b, c, h, w) innermost in memory."""
    if images.shape[1] == 1:  # the memory has both orders; torch goes by the strides
        return images.as_strided(images.shape, (images.stride(0), 1, images.stride(2), 1))
    return images.contiguous(memory_format=torch.channels_last)


class Gathered(NamedTuple):
    """The raw items of consecutive mini-batches."""

    sizes: Sequence[int]
    """Items of each mini-batch."""
    position: int
    """Position of the first item; see `Batches.position`."""
    inputs: Tensor
    targets: Tensor


class Batches:
    """The order in which a worker sees its partition: each pass is a permutation derived from (seed, worker, pass)."""

    def __init__(
        self,
        partition: NDArray[np.int64],
        batch_size: int,
        iterations: int,
        *,
        passes: int | None = None,
        seed: int,
        rank: int,
        redraw: Callable[[int], NDArray[np.int64]] | None = None,
        resize: Callable[[Sequence[int]], NDArray[np.int64]] | None = None,
        labels: NDArray[np.int64] | None = None,
        weights: NDArray[np.float32] | None = None,
    ) -> None:
        """Cut a partition into batches.

        `passes` over the partition make a round; None: `iterations`. `redraw` draws the partition of a round, if each round has its
        own; a batch has no more items than the partition. `resize` cuts it for caps of all workers, if it follows
        them. `labels` (n,) of all items: a pass is drawn with replacement, each class of the partition equally often. `weights` (n,) of
        all items: a pass has each item as often as its weight demands.
        """
        self.partition = partition
        self.batch_size = batch_size
        self.iterations = iterations
        """Cap per round."""
        self.position = 0
        """Items trained on since the first pass began: the cursor a checkpoint keeps."""
        self._ahead = 0
        self._passes = passes
        self.largest_batch = batch_size
        """Items of a mini-batch on a partition that has as many."""
        self._seed, self._rank = seed, rank
        self._redraw, self._resize, self._labels, self._weights = redraw, resize, labels, weights
        self._caps: Sequence[int] = ()
        self._pass: tuple[int, NDArray[np.int64]] = (-1, partition)
        self._label: tuple[str | int, ...] = ()

    def limit(self, caps: Sequence[int]) -> int:
        """Take the caps of all workers, by rank; the partition may follow them. Return the iterations of this worker's rounds."""
        self.iterations = caps[self._rank]
        if self._resize and list(caps) != self._caps:
            self.partition = self._resize(caps)
            self._pass = (-1, self.partition)
        self._caps = list(caps)
        if self._resize and self._passes:
            self.iterations = self._passes * self.per_pass
        return self.iterations

    @property
    def per_pass(self) -> int:
        """Iterations of one pass, the last of which may be short."""
        return -(-len(self.partition) // self.batch_size)

    @property
    def size(self) -> int:
        """Items of a pass."""
        return len(self.partition)

    def augmentation_seed(self, position: int) -> int:
        """Derive the seed for the augmentation of the batch that begins at a position: no block or interruption changes it."""
        return derive(self._seed, "augment", *self._label, self._rank, position)

    def gather(self, samples: Samples, most: int) -> Iterator[Gathered]:
        """Yield raw items of mini-batches without end, in blocks of at most `most` items (and at least one batch)."""
        for sizes in self.blocks(most):
            position, index = self._ahead, samples.index(self.draw(sum(sizes)))
            yield Gathered(sizes, position, samples.inputs.index_select(0, index), samples.targets.index_select(0, index))

    def begin(self, number: int) -> None:
        """Start a round (from 1); whole passes start at the beginning of the partition."""
        if self._redraw is not None:
            self.partition, self.position = self._redraw(number), 0
            self._label, self._pass = ("round", number), (-1, self.partition)
            self.batch_size = min(self.largest_batch, len(self.partition))
            if self._passes and not self._caps:
                self.iterations = self._passes * self.per_pass
        if self._passes:
            self.position = -(-self.position // len(self.partition)) * len(self.partition)
        self._ahead = self.position

    def blocks(self, most: int) -> Iterator[list[int]]:
        """Yield sizes of mini-batches without end, in blocks of at most `most` items (and at least one batch).

        A block ends where a round's cap is reached.
        """
        short = len(self.partition) - (self.per_pass - 1) * self.batch_size
        block: list[int] = []
        items = 0
        for number in itertools.count(1):
            last = self._passes and number % self.per_pass == 0
            block.append(short if last else self.batch_size)
            items += block[-1]
            if number % self.iterations == 0 or items + self.batch_size > most:
                yield block
                block, items = [], 0

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
            draw = generator(self._seed, "pass", *self._label, self._rank, number)
            if self._weights is not None:
                drawn = weighted(self.partition, self._weights[self.partition], draw)
            elif self._labels is not None:
                drawn = balanced(self.partition, self._labels[self.partition], draw)
            else:
                drawn = self.partition[draw.permutation(len(self.partition))]
            self._pass = (number, drawn)
        return self._pass[1]


def balanced(items: NDArray[np.int64], labels: NDArray[np.int64], draw: np.random.Generator) -> NDArray[np.int64]:
    """Draw as many items as there are, with replacement: each class equally often, within it each item with equal probability.

    If the number of items is not a multiple of the number of classes, some classes, also drawn, come once more.
    """
    classes = np.unique(labels)
    per_class, more = divmod(len(items), len(classes))
    wanted = np.full(len(classes), per_class)
    wanted[draw.permutation(len(classes))[:more]] += 1
    drawn = [draw.choice(items[labels == label], count) for label, count in zip(classes, wanted, strict=True)]
    return draw.permutation(np.concatenate(drawn))


def weighted(items: NDArray[np.int64], weights: NDArray[np.float32], draw: np.random.Generator) -> NDArray[np.int64]:
    """Draw as many items as there are: each n * weight / sum of the weights times, rounded up or down at random.

    Items of equal weight are drawn once each. The draw is systematic resampling (Kitagawa. Monte Carlo Filter and Smoother for
    Non-Gaussian Nonlinear State Space Models. 1996) over the items in a random order, so that no two are rounded together.

    Raises:
        InputMissing: all weights are 0.
    """
    order = draw.permutation(len(items))
    expected = np.cumsum(weights[order], dtype=np.float64)
    if not expected[-1]:
        raise InputMissing(f"all {len(items):,} items of a worker have the weight 0: give it others, by `order` in [partition]")
    expected *= len(items) / expected[-1]
    ends = np.floor(expected + draw.random()).astype(np.int64)
    return draw.permutation(np.repeat(items[order], ends - np.append(0, ends[:-1])))
