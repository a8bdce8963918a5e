"""The arrays that a network starts from, of a file or the run's checkpoint, in a memory file mapped by processes of this machine."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from partrain.checkpoint import start_file
from partrain.checkpoint.start_file import StartFile
from partrain.comm.arena import mapped, memory_file
from partrain.training.snapshot_layout import PROBE

if TYPE_CHECKING:
    from partrain.checkpoint import Content
    from partrain.job.load import LoadedJob


@dataclass(frozen=True)
class InitialWeights:
    """The arrays of a file, or of a checkpoint, in memory."""

    file: StartFile
    descriptor: int
    """Memory file of the arrays; its owner closes it."""

    def free(self) -> None:
        """Free the memory after all workers have copied the arrays."""
        os.ftruncate(self.descriptor, 0)


def shared_network(content: Content) -> InitialWeights:
    """Copy a checkpoint's network, and its answers to drawn items, into a memory file, by their paths in the checkpoint."""
    from safetensors.numpy import save

    data = save({path: array for path, array in content.arrays.items() if path == PROBE or path.startswith("model/")})
    descriptor = memory_file("partrain network")
    try:
        memoryview(mapped(descriptor, len(data)))[:] = data
    except BaseException:
        os.close(descriptor)
        raise
    return InitialWeights(StartFile("the checkpoint", "safetensors", hashlib.sha256(data).hexdigest(), len(data)), descriptor)


def load_start(loaded: LoadedJob) -> InitialWeights | None:
    """Read the file that the network starts from into a memory file; None without one."""
    path = start_file.file_of(loaded.job.model, loaded.folder)
    if path is None:
        return None
    descriptor = memory_file("partrain start")
    try:
        return InitialWeights(start_file.read(path, lambda size: memoryview(mapped(descriptor, max(size, 1)))), descriptor)
    except BaseException:
        os.close(descriptor)
        raise
