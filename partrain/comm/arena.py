"""A run's shared arena: one anonymous memory file (nothing in /dev/shm) that every process of the run maps.

    board      messages between the processes: commands, arrivals, weights, scores, a ring of round records
    rows       one flat row per worker (`partrain.training.worker` defines its layout)
    commons    vectors that all workers share: the center variable of asynchronous rules
    slots      snapshots: each is one consistent copy of everything a round changes

The board's size depends only on the number of workers. The processes map the rest once they know the network.
Numbers are 8-byte words. One process writes each word. Words that processes spin on are one cache line apart.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from typing import TYPE_CHECKING, Any

from partrain.comm import futex
from partrain.comm.futex import LINE
from partrain.errors import InputOutputFailed
from partrain.record.round_record import FIELDS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PAGE = mmap.PAGESIZE
RING = 2048
"""Round records kept until the coordinator has read them."""
SLOTS = 4
"""Snapshots: the writer reads one, the best may wait, the newest is kept in case a worker is lost, workers fill one."""

SCORES = 8
"""Numbers each worker can share with the others at once."""
SLICES = 16
"""Maximum number of slices of a center."""

ZEROED_BYTES = 1 << 24
"""Bytes overwritten at a time; a multiple of a page."""

LONG_S = 0.1
"""Duration from which a round counts as long. The file of a small network takes 6 ms of processor time to write."""
IF_LONG = 2
"""Value of `wanted`: the coordinator accepts a snapshot only after a long round."""
ASKED = 3
"""Value of `wanted`: the user asked for a checkpoint of the next round."""

_WORDS = ("command", "wanted", "granted", "committed", "drained", "restored")
"""Words that the coordinator writes. `command`: 1 = end after this round. `wanted`: 1 = fill a snapshot, or IF_LONG, or ASKED.
`granted`: the slot to fill next (worker 0 takes the slot by setting 0). `committed`: newest round on disk.
`drained`: newest round read from the ring. `restored`: the slot that holds the state to go on from.
`granted` and `restored` are 1 + the slot, and 0 = none: a new arena is all 0."""


class Arena:
    """A mapping of the arena; `descriptor` names the memory file."""

    def __init__(self, descriptor: int, size: int, metrics: int = 0) -> None:
        """Map the arena of N workers, whose records have some metrics each."""
        import numpy as np

        self.descriptor = descriptor
        self.size = size
        self.read: dict[int, Any] = {}
        """Messages that a worker of this process has read for all of its workers, by number of the part; see `ArenaGroup.gather_once`."""
        self._rows: dict[int, memoryview] = {}
        """Mappings of rows and commons, by size."""
        words, lines = (len(_WORDS) + 1) * LINE, size * LINE
        ring = RING * size * (len(FIELDS) + metrics)
        sizes = [words, lines, lines, lines, 2 * size * SCORES, lines, lines, SLICES * LINE, (SLICES + 1) * LINE, ring]
        total = sum(sizes)
        self.board_bytes = -(-total * 8 // PAGE) * PAGE
        self._map = mapped(descriptor, self.board_bytes)
        board: NDArray[np.int64] = np.frombuffer(self._map, dtype=np.int64)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        parts = np.split(board[:total], np.cumsum(sizes[:-1]))
        self.words = parts[0][:-LINE:LINE]
        self.meetings = parts[0][-LINE:]
        """(8,): newest meeting that all workers of this machine have reached, newest meeting that one worker mixed for all."""
        self.arrivals = parts[1][::LINE]
        """(N,): meetings each worker has reached."""
        self.alone = parts[1].reshape(size, LINE)[:, 1:3]
        """(N, 2): 1 if the worker wants one worker to mix alone, for all: at the newest even meeting, at the newest odd one."""
        self.beats = parts[2][::LINE]
        """(N,): local iterations each worker has done: its heartbeat."""
        self.trained = parts[2][1::LINE]
        """(N,): item-iterations of each worker so far, including the unfinished round's."""
        self.delays = parts[2][2::LINE]
        """(N,): nanoseconds each worker was ready to run and had no core."""
        self.weights = parts[3].view(np.float64).reshape(size, LINE)[:, :2]
        """(N, 2): weight of each worker in the current mean, and in the mean of the vector averaged with it."""
        self.scores = parts[4].view(np.float64).reshape(2, size, SCORES)
        """(2, N, SCORES): numbers each worker shares with the others, on two boards in turn."""
        self.visits = parts[5][::LINE]
        """(N,): progress of each worker under an asynchronous rule, counted in visits."""
        self.shares = parts[6].view(np.float64)[::LINE]
        """(N,): sum of the shares of the messages in each worker's inbox."""
        self.versions = parts[7][::LINE]
        """(SLICES,): updates merged into each slice of the center."""
        numbers = parts[8].reshape(SLICES + 1, LINE)
        self.claims = numbers[0]
        """(1 + ...,): visits claimed. Each round starts at the next multiple of `center.LEFT`."""
        self.numbers = numbers[1:].view(np.float64)
        """(SLICES, 8): numbers the rule keeps with each slice of the center."""
        self.ring = parts[9].view(np.float64).reshape(RING, size, len(FIELDS) + metrics)
        """(RING, N, fields + metrics): records of the newest rounds."""

    @classmethod
    def create(cls, size: int, metrics: int = 0) -> Arena:
        """Create an arena for N workers, whose records have some metrics each."""
        return cls(memory_file("partrain"), size, metrics)

    def reset(self, end: int) -> None:
        """Clear the board, and rows and commons up to byte `end`, once all processes of the arena are dead. Keep the slots, and
        the coordinator's words except `restored`."""
        kept = {word: self.get(word) for word in _WORDS if word != "restored"}
        for first in range(0, end, ZEROED_BYTES):
            self._view(first, min(ZEROED_BYTES, end - first))[:] = bytes(min(ZEROED_BYTES, end - first))
        for word, value in kept.items():
            self.put(word, value)

    def get(self, word: str) -> int:
        """Read a word of the board."""
        return int(self.words[_WORDS.index(word)])

    def put(self, word: str, value: int) -> None:
        """Change a word of the board (one process owns each) and wake the processes that wait for it."""
        self.words[_WORDS.index(word)] = value
        futex.wake(self._address + _WORDS.index(word) * LINE * 8)

    def slot(self, word: str) -> int:
        """Read the slot that a word of the board names; it names one."""
        return self.get(word) - 1

    def put_slot(self, word: str, slot: int | None) -> None:
        """Name a slot, or none, in a word of the board."""
        self.put(word, 0 if slot is None else 1 + slot)

    def sleep(self, word: str, value: int, timeout: float) -> None:
        """Sleep while a word of the board keeps this value, at most `timeout` seconds."""
        futex.wait(self._address + _WORDS.index(word) * LINE * 8, value & 0xFFFFFFFF, timeout)

    @property
    def meeting_address(self) -> int:
        """The address of the newest meeting: its low 32 bits, as all supported machines are little-endian."""
        return self._address + len(_WORDS) * LINE * 8

    def map_rows(self, row_bytes: int, common_bytes: int = 0) -> tuple[NDArray[np.uint8], memoryview, int]:
        """Map the rows of all workers (N, row_bytes) and the commons, as bytes. Return them and their end in the file.

        All workers pass the same sizes. Workers of one process share one mapping. A row may be larger than needed: untouched
        pages take no memory.
        """
        import numpy as np

        span = _whole_pages(row_bytes)
        size = self.size * span + common_bytes
        view = self._rows[size] = self._rows.get(size) or self._view(self.board_bytes, size)
        rows = np.frombuffer(view[: self.size * span], dtype=np.uint8).reshape(self.size, span)[:, :row_bytes]
        return rows, view[self.size * span :], self.board_bytes + self.size * span + _whole_pages(common_bytes)

    def map_slots(self, start: int, slot_bytes: int) -> list[memoryview]:
        """Map the snapshot slots. `start`: end of everything else."""
        span = _whole_pages(slot_bytes)
        view = self._view(start, SLOTS * span)
        return [view[slot * span : slot * span + slot_bytes] for slot in range(SLOTS)]

    def _view(self, start: int, size: int) -> memoryview:
        if not size:
            return memoryview(b"")
        return memoryview(mapped(self.descriptor, size, start))


def _whole_pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


def memory_file(name: str) -> int:
    """Create a memory file and return its descriptor."""
    try:
        return os.memfd_create(name, os.MFD_CLOEXEC)
    except OSError as error:
        raise _no_memory(0, error) from error


def mapped(descriptor: int, size: int, start: int = 0) -> mmap.mmap:
    """Map a part of a memory file; grow the file first if it is too short."""
    grow(descriptor, start + size)
    try:
        return mmap.mmap(descriptor, size, offset=start)
    except OSError as error:
        raise _no_memory(size, error) from error


def grow(descriptor: int, size: int) -> None:
    """Make a memory file at least this long. Every process may call this: writing the last byte never shortens the file."""
    try:
        if os.fstat(descriptor).st_size < size:
            os.pwrite(descriptor, b"\0", size - 1)
    except OSError as error:
        raise _no_memory(size, error) from error


_REMEDIES = {
    errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENOMEM: "free memory, or raise the limits of this process (ulimit -v)",
}


def _no_memory(size: int, error: OSError) -> InputOutputFailed:
    what = f"a shared memory of {size:,} bytes" if size else "a shared memory"
    remedy = _REMEDIES.get(error.errno or 0, "free memory, or use a machine that has more")
    return InputOutputFailed(f"cannot make {what}: {(error.strerror or str(error)).lower()}; {remedy}")
