"""The shared arena of a run: one anonymous memory file (nothing in /dev/shm) that every process of the run maps.

    board      what the processes tell one another: commands, arrivals, weights, scores, a ring of round records
    rows       one flat row per worker (see `partrain.worker` for what lies in it)
    slots      snapshots: one consistent copy of everything a round changes, each

The board's size depends on the number of workers only; rows and slots are added by `extend` once the network is known.
Numbers are 8-byte words written by one process each, one cache line apart where processes spin on them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING

from partrain.comm import futex

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PAGE = mmap.PAGESIZE
LINE = 8
"""Words of 8 bytes in a cache line."""
RING = 2048
"""Round records kept until the coordinator has read them."""
SLOTS = 3
"""Snapshots: one being written, one waiting, one free to be filled."""

RECORD = (
    "round",
    "iterations",
    "items",
    "loss",
    "lr",
    "compute",
    "wait",
    "mix",
    "distance",
    "judged_loss",
    "accuracy",
    "seconds",
)
"""Fields of one round record of one worker; durations in seconds; NaN where there is nothing to say."""

SCORES = 8
"""Numbers each worker can show the others at once."""

_WORDS = ("command", "wanted", "granted", "committed", "drained", "restored")
"""All are the coordinator's. `command`: 1 = end after this round. `wanted`: 1 = a snapshot is welcome. `granted`: the slot
that may be filled next, plus 1; 0 = none (worker 0 takes it by setting 0). `committed`: newest round on disk. `drained`: newest
round read from the ring. `restored`: 1 = the state to resume from lies in slot 0."""


class Arena:
    """A mapping of the arena; `descriptor` names the memory file."""

    def __init__(self, descriptor: int, size: int) -> None:
        import numpy as np

        self.descriptor = descriptor
        self.size = size
        words = len(_WORDS) * LINE
        arrivals, weights, scores = size * LINE, size * LINE, 2 * size * SCORES
        ring = RING * size * len(RECORD)
        total = words + 2 * arrivals + weights + scores + ring
        self.board_bytes = -(-total * 8 // PAGE) * PAGE
        grow(descriptor, self.board_bytes)
        self._map = mmap.mmap(descriptor, self.board_bytes)
        board: NDArray[np.int64] = np.frombuffer(self._map, dtype=np.int64)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        parts = np.split(board[:total], np.cumsum([words, arrivals, arrivals, weights, scores]))
        self.words = parts[0][::LINE]
        self.arrivals = parts[1][::LINE]
        """(N,): barriers each worker has come to."""
        self.beats = parts[2][::LINE]
        """(N,): local iterations each worker has done: a sign of life."""
        self.weights = parts[3].view(np.float64)[::LINE]
        """(N,): weight of each worker in the mean under way."""
        self.scores = parts[4].view(np.float64).reshape(2, size, SCORES)
        """(2, N, SCORES): numbers each worker shows the others, on two boards in turn."""
        self.ring = parts[5].view(np.float64).reshape(RING, size, len(RECORD))
        """(RING, N, fields): records of the newest rounds."""

    @classmethod
    def create(cls, size: int) -> Arena:
        """A new arena for N workers."""
        return cls(os.memfd_create("partrain", os.MFD_CLOEXEC), size)

    def get(self, word: str) -> int:
        """A word of the board."""
        return int(self.words[_WORDS.index(word)])

    def put(self, word: str, value: int) -> None:
        """Change a word of the board (each has one owner) and wake who waits for it."""
        self.words[_WORDS.index(word)] = value
        futex.wake(self._address + _WORDS.index(word) * LINE * 8)

    def sleep(self, word: str, value: int, timeout: float) -> None:
        """Sleep while a word of the board has this value, at most `timeout` seconds."""
        futex.wait(self._address + _WORDS.index(word) * LINE * 8, value & 0xFFFFFFFF, timeout)

    def arrival_address(self, rank: int) -> int:
        """Address of a worker's arrival counter (its low 32 bits: the machines we run on are little-endian)."""
        return self._address + (len(_WORDS) + rank) * LINE * 8

    def map_rows(self, row_bytes: int, slot_bytes: int) -> tuple[list[memoryview], list[memoryview]]:
        """The rows of all workers and the snapshot slots, as bytes. All processes ask for the same sizes.

        Untouched pages cost nothing, so a row may be generous.
        """
        row_span, slot_span = (-(-count // PAGE) * PAGE for count in (row_bytes, slot_bytes))
        start, total = self.board_bytes, self.size * row_span + SLOTS * slot_span
        if not total:
            return [memoryview(b"")] * self.size, [memoryview(b"")] * SLOTS
        grow(self.descriptor, start + total)
        view = memoryview(mmap.mmap(self.descriptor, total, offset=start))
        rows = [view[rank * row_span : rank * row_span + row_bytes] for rank in range(self.size)]
        base = self.size * row_span
        return rows, [view[base + slot * slot_span : base + slot * slot_span + slot_bytes] for slot in range(SLOTS)]


def grow(descriptor: int, size: int) -> None:
    """Make a memory file at least this long. Every process may ask: writing its last byte never shortens it."""
    if os.fstat(descriptor).st_size < size:
        os.pwrite(descriptor, b"\0", size - 1)
