"""The mini-batches of a worker's shard of a stream, in the stream's order.

A separate process draws them, exactly one batch ahead of the training. So user code never shares random generators or a crash
with the network, and workers of one process give the same bits as separate processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from partrain.data.base import DatasetInfo
from partrain.data.user.pipe import DataProcess
from partrain.data.user.work import Cursor, Share
from partrain.seeds import derive
from partrain.training.batches import Gathered, Samples


class StreamBatches:
    """The stream's order, in which a worker sees its shard. It replaces `Batches`, which cut a partition."""

    def __init__(self, process: DataProcess, share: Share, info: DatasetInfo, iterations: int) -> None:
        """Draw batches from the process of a share. `info` has the types of the items."""
        self._process, self._share = process, share
        self._forms = {slot.name: (slot.dtype, slot.shape[1:]) for slot in info.slots}
        self.batch_size, self.size = share.batch_size, share.length
        self.iterations = iterations
        """Cap per round."""
        self.position = 0
        """Items trained on since the first pass began."""
        self.cursor = Cursor()
        """The position in the stream after the newest batch, which a checkpoint keeps."""
        self._begun = False

    def augmentation_seed(self, position: int) -> int:
        """Derive the seed for the augmentation of the batch that begins at a position."""
        return derive(self._share.seed, "augment", self._share.rank, position)

    def limit(self, caps: Sequence[int]) -> int:
        """Take the caps of all workers, by rank. Return the iterations of this worker's rounds."""
        self.iterations = caps[self._share.rank]
        return self.iterations

    def begin(self, number: int) -> None:
        """Start a round (from 1); whole passes start at the beginning of the shard."""
        within = self._share.whole_passes and self.size is not None and 0 < self.cursor.drawn < self.size
        if within:
            self.cursor = Cursor(self.cursor.pass_number + 1)
        if within or not self._begun:
            self._process.request(start=self.cursor)
            self._begun = True

    def gather(self, samples: Samples, most: int) -> Iterator[Gathered]:
        """Yield raw items of mini-batches without end, one batch at a time; the process makes the next one meanwhile."""
        while True:
            self._process.request()
            batch = self._process.receive()
            inputs, targets = (self._receive(role, batch["items"]) for role in ("inputs", "targets"))
            self.cursor = Cursor(*batch["cursor"])
            yield Gathered([batch["items"]], self.position, inputs, targets)

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _receive(self, role: str, count: int) -> torch.Tensor:
        dtype, shape = self._forms[role]
        array = np.empty((count, *shape), dtype)
        self._process.fill(array.reshape(-1).view(np.uint8).data)
        return torch.from_numpy(array)
