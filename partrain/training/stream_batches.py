"""The mini-batches of one worker's shard of a stream, in the order in which the stream gives them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from partrain.data.user.stream import ShardStream
from partrain.data.user.work import Cursor
from partrain.seeds import derive
from partrain.training.batches import Gathered, Samples


class StreamBatches:
    """The order in which a worker sees its shard: the stream's. It takes the place of `Batches`, which cut a partition."""

    def __init__(
        self, stream: ShardStream, batch_size: int, iterations: int, size: int | None, whole_passes: bool, seed: int, rank: int
    ) -> None:
        """Draw batches from a stream. `size`: items of the shard in each pass, if known; `whole_passes` need it."""
        self.stream = stream
        self.batch_size, self.size = batch_size, size
        self.iterations = iterations
        """Cap per round."""
        self.position = 0
        """Items trained on since the first pass began."""
        self.cursor = Cursor()
        """The position in the stream behind the newest batch: a checkpoint keeps it."""
        self._whole_passes, self._begun = whole_passes, False
        self._seed, self._rank = seed, rank

    def augmentation_seed(self, position: int) -> int:
        """Derive the seed for the augmentation of the batch that begins at a position."""
        return derive(self._seed, "augment", self._rank, position)

    def begin(self, number: int) -> None:
        """Start a round (from 1); whole passes start at the beginning of the shard."""
        within = self._whole_passes and self.size is not None and 0 < self.cursor.drawn < self.size
        if within:
            self.cursor = Cursor(self.cursor.pass_number + 1)
        if within or not self._begun:
            self.stream.start(self.cursor)
            self._begun = True

    def gather(self, samples: Samples, most: int) -> Iterator[Gathered]:
        """Yield raw items of mini-batches without end, one batch at a time; the stream makes the next one meanwhile."""
        while True:
            inputs, targets, self.cursor = self.stream.receive()
            yield Gathered([len(targets)], self.position, torch.from_numpy(inputs), torch.from_numpy(targets))
