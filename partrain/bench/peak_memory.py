"""The peak memory of this process and its descendants over some time."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Self

from partrain.system.parent_death import descendants

INTERVAL_S = 0.5
"""Seconds between two readings: one takes 3 ms of CPU time for each process, which the workers may need."""


def held(pid: int) -> int:
    """Return the bytes of memory that a process and its descendants hold; shared memory counts once.

    Files, such as libraries, do not count: the kernel can drop their pages, and shares them with other programs.
    """
    total = 0
    for process in (pid, *descendants(pid)):
        with suppress(OSError):  # it has ended, or belongs to another user
            rollup = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii")
            total += sum(int(size) << 10 for size in re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+)", rollup, re.MULTILINE))
    return total


class PeakMemory:
    """Readings of the memory of a process and its descendants, less `extra` bytes, taken by a thread within a `with` block."""

    def __init__(self, pid: int, extra: int = 0) -> None:
        self._most, self._pid, self._extra, self._ended = 0, pid, extra, Event()
        self._thread = Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def take(self) -> int:
        """Return the largest number of bytes since the last call; 0 if the kernel reports none."""
        most, self._most = self._most, 0
        return most

    def _read(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self._most = max(self._most, held(self._pid) - self._extra)
