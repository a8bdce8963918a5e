"""The layout of a snapshot: the one consistent copy of everything that a round changes.

Workers fill a snapshot at the end of a round; the checkpoint writer reads it, and resuming reads it. It is in a slot of the arena. Its
map names each array as a checkpoint does (`model/0.weight`, `workers/1/optimizer/momentum`), so the writer needs no knowledge of
networks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from partrain.byte_layout import aligned, offsets, view

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PROBE = "probe"
"""Path of a network's answers to drawn items, see `models.answers`."""


@dataclass(frozen=True)
class Entry:
    """One array of a snapshot."""

    path: str
    dtype: str
    """numpy's name of the type, little-endian, such as `<f4`."""
    shape: tuple[int, ...]
    start: int
    """Offset in the slot in bytes."""

    @property
    def size(self) -> int:
        """Size in bytes."""
        return nbytes(self.dtype, self.shape)


def nbytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Return the size of an array in bytes, without numpy."""
    return math.prod(shape) * int(dtype[2:])


Array = tuple[str, str, tuple[int, ...]]
"""Path, dtype and shape of an array."""


@dataclass(frozen=True)
class SlotMap:
    """Positions of all arrays of a snapshot: first the run's arrays, then each worker's part. All parts have the same layout."""

    common: tuple[Entry, ...] = ()
    own: tuple[Entry, ...] = ()
    """Arrays of one worker, with paths and offsets from the beginning of its part."""
    workers: int = 0

    @classmethod
    def of(cls, common: Sequence[Array], own: Sequence[Array] = (), workers: int = 0) -> SlotMap:
        """Lay out arrays, each on a cache line."""
        return cls(_laid_out(common), _laid_out(own), workers)

    @property
    def size(self) -> int:
        """Bytes of a slot."""
        return self.part(self.workers - 1).stop if self.workers else _end(self.common)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """All arrays in their order."""
        return (*self.common, *(entry for rank in range(self.workers) for entry in self._entries_of(rank)))

    def part(self, rank: int) -> slice:
        """Return the range of bytes of a worker's part."""
        start = aligned(_end(self.common)) + rank * aligned(_end(self.own))
        return slice(start, start + _end(self.own))

    def view(self, slot: memoryview, rank: int | None = None) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of a slot by path, as views. `rank`: only the run's arrays and this worker's."""
        entries = self.entries if rank is None else (*self.common, *self._entries_of(rank))
        return {entry.path: view(slot[entry.start : entry.start + entry.size], entry.dtype, entry.shape) for entry in entries}

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON: a worker sends it to the coordinator, which does not build the network."""
        return {"common": list(map(vars, self.common)), "own": list(map(vars, self.own)), "workers": self.workers}

    @classmethod
    def from_json(cls, json: dict[str, Any]) -> SlotMap:
        common, own = (
            tuple(Entry(**{**entry, "shape": tuple(entry["shape"])}) for entry in json[part]) for part in ("common", "own")
        )
        return cls(common, own, json["workers"])

    def _entries_of(self, rank: int) -> Iterator[Entry]:
        start = self.part(rank).start
        for entry in self.own:
            yield replace(entry, path=f"workers/{rank}/{entry.path}", start=start + entry.start)


def _laid_out(arrays: Sequence[Array]) -> tuple[Entry, ...]:
    starts = offsets(nbytes(dtype, shape) for _, dtype, shape in arrays)
    return tuple(Entry(*array, start) for array, start in zip(arrays, starts, strict=True))


def _end(entries: Sequence[Entry]) -> int:
    return max((entry.start + entry.size for entry in entries), default=0)
