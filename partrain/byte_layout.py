"""Several arrays in one buffer of bytes, each on a cache line: data sets in shared memory, and snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALIGNMENT = 64
"""Bytes of a cache line."""
LENGTHS = "lengths"
"""Name of the part that counts an item's elements without padding."""
_WIDTHS = {"uint8": 1, "float32": 4, "int64": 8}


@dataclass(frozen=True)
class InputPart:
    """One of several inputs of an item. An item's inputs follow one another in a row of bytes."""

    name: str
    """Name of the network's argument; "" for the first arguments, which are positional."""
    dtype: str
    """`uint8` (bytes, which the network sees divided by 255), `float32`, or `int64` (tokens, lengths)."""
    shape: tuple[int, ...]
    offset: int
    """Bytes from the row's beginning, a multiple of 8."""
    vocabulary: int | None = None
    """Number of tokens; None if the part holds numbers."""

    @property
    def counts_lengths(self) -> bool:
        """True if this part holds the lengths of a padded part."""
        return self.name.endswith(LENGTHS) and self.dtype == "int64"

    @property
    def end(self) -> int:
        """Bytes from the row's beginning to the part's end."""
        return self.offset + prod(self.shape) * _WIDTHS[self.dtype]


def lay_out_parts(forms: Sequence[tuple[str, str, tuple[int, ...]]]) -> tuple[tuple[InputPart, ...], int]:
    """Lay out inputs, given as (name, dtype, shape), in a row. Returns the parts, and the row's bytes."""
    parts: list[InputPart] = []
    end = 0
    for name, dtype, shape in forms:
        parts.append(InputPart(name, dtype, shape, end))
        end = parts[-1].end + -parts[-1].end % 8
    return tuple(parts), end


def of_unequal_lengths(parts: Sequence[InputPart]) -> bool:
    """Return whether items are sequences of unequal length: one padded input, and its length."""
    return len(parts) == 2 and parts[1].name == LENGTHS and not parts[0].name


def input_names(names: Sequence[str]) -> list[str]:
    """Return the names of inputs in files and graphs. Positional inputs, which have no names, are named by their order.

    The first input of items of unequal length is `inputs`.
    """
    if list(names[1:]) == [LENGTHS] and not names[0]:
        return ["inputs", LENGTHS]
    return [name or f"input_{number}" for number, name in enumerate(names)]


def offsets(sizes: Iterable[int]) -> Iterator[int]:
    """Yield the first byte of each array, for arrays of `sizes` bytes laid out in order and aligned."""
    start = 0
    for size in sizes:
        yield start
        start += aligned(size)


def aligned(size: int) -> int:
    """Round bytes up to whole cache lines."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def view(content: memoryview, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> NDArray[Any]:
    """Return an array's bytes as that array, without a copy; `strides` in bytes, None if its numbers are contiguous."""
    import numpy as np

    return np.ndarray(shape, dtype, content, strides=strides)


def part_view(rows: NDArray[Any], part: InputPart) -> NDArray[Any]:
    """Return one input (n, *shape) of the rows (n, bytes) of all, without a copy."""
    return rows[:, part.offset : part.end].view(part.dtype).reshape(len(rows), *part.shape)
