"""Several arrays in one buffer of bytes, each on a cache line: data sets in shared memory, and snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALIGNMENT = 64
"""Bytes of a cache line."""


def offsets(sizes: Iterable[int]) -> Iterator[int]:
    """Yield the first byte of each of several arrays of `sizes` bytes, laid out in order and aligned."""
    start = 0
    for size in sizes:
        yield start
        start += -(-size // ALIGNMENT) * ALIGNMENT


def view(content: memoryview, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> NDArray[Any]:
    """Return an array's bytes as that array, without a copy; `strides` in bytes, None if its numbers are contiguous."""
    import numpy as np

    return np.ndarray(shape, dtype, content, strides=strides)
