"""The file that a network starts from, in a memory file that the workers of this machine map."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from partrain.checkpoint import start_file
from partrain.comm.arena import mapped, memory_file

if TYPE_CHECKING:
    from partrain.checkpoint.start_file import StartFile
    from partrain.job.load import LoadedJob


@dataclass(frozen=True)
class SharedStart:
    """A file to start from, in memory."""

    file: StartFile
    descriptor: int
    """Memory file of its arrays; the owner closes it."""

    def free(self) -> None:
        """Give the memory back, once all workers have copied the arrays."""
        os.ftruncate(self.descriptor, 0)


def load_start(loaded: LoadedJob) -> SharedStart | None:
    """Read the file that the network starts from into a memory file; None if there is none."""
    path = start_file.file_of(loaded.job.model, loaded.folder)
    if path is None:
        return None
    descriptor = memory_file("partrain start")
    try:
        return SharedStart(start_file.read(path, lambda size: memoryview(mapped(descriptor, max(size, 1)))), descriptor)
    except BaseException:
        os.close(descriptor)
        raise
