"""The layout of a snapshot: the one consistent copy of everything that a round changes.

Workers fill a snapshot at the end of a round; the checkpoint writer reads it, and resuming reads it. It is in a slot of the arena. Its
map names each array as a checkpoint does (`model/0.weight`, `workers/1/optimizer/momentum`), so the writer needs no knowledge of
networks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from partrain.byte_layout import offsets, view

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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


@dataclass(frozen=True)
class SlotMap:
    """Positions of all arrays of a snapshot."""

    entries: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """Bytes of a slot."""
        return max((entry.start + entry.size for entry in self.entries), default=0)

    @classmethod
    def of(cls, arrays: list[tuple[str, str, tuple[int, ...]]]) -> SlotMap:
        """Lay out arrays, given as (path, dtype, shape), each on a cache line."""
        starts = offsets(nbytes(dtype, shape) for _, dtype, shape in arrays)
        return cls(tuple(Entry(*array, start) for array, start in zip(arrays, starts, strict=True)))

    def span(self, prefix: str) -> slice:
        """Return the range of bytes of all arrays whose paths begin with `prefix`. They must be adjacent."""
        within = [entry for entry in self.entries if entry.path.startswith(prefix)]
        return slice(within[0].start, within[-1].start + within[-1].size)

    def view(self, slot: memoryview) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of a slot by path, as views."""
        return {
            entry.path: view(slot[entry.start : entry.start + entry.size], entry.dtype, entry.shape) for entry in self.entries
        }

    def to_json(self) -> list[dict[str, Any]]:
        """Convert to JSON: a worker sends it to the coordinator, which does not build the network."""
        return [vars(entry) for entry in self.entries]

    @classmethod
    def from_json(cls, entries: list[dict[str, Any]]) -> SlotMap:
        return cls(tuple(Entry(**{**entry, "shape": tuple(entry["shape"])}) for entry in entries))
