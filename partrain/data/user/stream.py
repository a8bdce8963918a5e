"""A worker's shard of a stream, drawn in a process of its own: one batch ahead of the training, and no more.

The worker requests where to start, and then one batch after the other. While it trains on a batch, the process makes the next.
User code so never shares random generators or a crash with the network, and workers of one process give the bits of separate ones.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partrain.data.base import DatasetInfo
from partrain.data.user.pipe import DataProcess, running, waiting_at_most
from partrain.data.user.section import UserData
from partrain.data.user.work import Cursor, Lengths, Share


def lengths(section: UserData, folder: Path, size: int) -> list[int | None]:
    """Ask user code for the items of each worker's shard in each pass."""
    with running(section, folder, Lengths(size)) as process:
        told: list[int | None] = process.receive()["lengths"]
    return told


class ShardStream:
    """The batches of one worker."""

    def __init__(
        self,
        section: UserData,
        folder: Path,
        info: DatasetInfo,
        share: Share,
        length: int | None,
        whole_passes: bool,
        limit_s: float,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the process.

        Args:
            section: The `[dataset]` table.
            folder: The folder of the job.
            info: The data set, which has the types of its items.
            share: The worker and its batches.
            length: Items of the shard in each pass, if known.
            whole_passes: The last batch of a pass may be short.
            limit_s: Seconds without an item after which Stalled is raised.
            on_wait: Called now and then while a batch is awaited.
        """
        self._forms = {slot.name: (slot.dtype, slot.shape[1:]) for slot in info.slots}
        self._order = (length, whole_passes)
        self._limit_s = limit_s
        self._process = DataProcess(section, folder, share, on_wait)

    def start(self, cursor: Cursor) -> None:
        """Let the next batch begin at a position."""
        self._process.request(start=cursor, order=self._order)

    def receive(self) -> tuple[NDArray[Any], NDArray[Any], Cursor]:
        """Return inputs and targets of the next batch, and the position behind it."""
        self._process.request()
        with waiting_at_most(self._limit_s):
            told = self._process.receive()
            inputs, targets = (self._array(role, told["items"]) for role in ("inputs", "targets"))
        return inputs, targets, Cursor(*told["cursor"])

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _array(self, role: str, count: int) -> NDArray[Any]:
        dtype, shape = self._forms[role]
        array = np.empty((count, *shape), dtype)
        self._process.fill(array.reshape(-1).view(np.uint8).data)
        return array
