"""Standardization by means and deviations of the training items: block by block, in double precision, without copies.

Symbols: n items; k features. The features of items (k) and (steps, k) are the last axis; the features of items with more axes are
the first axis: the channels of images.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.data.base import Numbers, items_of_block
from partrain.errors import InputMissing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Pair = tuple[NDArray[Any], NDArray[Any]]
    """Mean and standard deviation (k,) of each feature."""


def feature_axis(dimensions: int) -> int:
    """Return the axis of features in an array (n, ...) with this number of dimensions."""
    return 1 if dimensions > 3 else -1


def safe_std(mean: NDArray[Any], std: NDArray[Any]) -> NDArray[Any]:
    """Return divisors: the deviation, or 1 where a feature is constant to within rounding."""
    return np.where(std > 1e-12 * np.maximum(abs(mean), 1e-300), std, 1.0)


def moments(numbers: Numbers, trained: NDArray[Any], where: str) -> Pair:
    """Compute mean and divisor of each feature of numbers (n, ...), over the items at `trained`."""
    axis, index = feature_axis(numbers.ndim), np.sort(trained)
    step = items_of_block(numbers)

    def blocks() -> Iterator[NDArray[Any]]:
        """Yield blocks (numbers of a feature, k)."""
        for first in range(0, len(index), step):
            block = np.moveaxis(numbers[index[first : first + step]], axis, -1)
            yield block.reshape(-1, block.shape[-1]).astype(np.float64)

    start = next(blocks())[0]
    """Offset of the sums: the sums of a constant feature are then exactly 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        count = len(index) * (numbers.size // len(numbers)) // len(start)
        mean = start + sum((block - start).sum(axis=0) for block in blocks()) / count
        std = np.sqrt(sum(((block - mean) ** 2).sum(axis=0) for block in blocks()) / count)
    if not (fine := np.isfinite(mean) & np.isfinite(std)).all():
        what = f"feature {int(fine.argmin())}: its numbers are too large for a mean and a deviation: scale them"
        raise InputMissing(f"{where}: {what}")
    return mean, safe_std(mean, std)


def standardize(numbers: NDArray[Any], scale: Pair, where: str, source: Numbers | None = None) -> None:
    """Write the standardized `source` (n, ...), by default the numbers themselves, into `numbers`."""
    axis, step = feature_axis(numbers.ndim), items_of_block(numbers)
    mean, std = (broadcastable(value, axis, numbers.ndim) for value in scale)
    source = numbers if source is None else source
    for first in range(0, len(numbers), step):
        block = numbers[first : first + step]
        with np.errstate(over="ignore"):
            block[...] = (source[first : first + step].astype(np.float64) - mean) / std
        if not (fine := np.isfinite(block)).all():
            item = first + int(np.argwhere(~fine)[0][0])
            raise InputMissing(
                f"{where}: item {item} is too far from the training items: {numbers.dtype} cannot hold it standardised"
            )


def broadcastable(values: NDArray[Any], axis: int, dimensions: int) -> NDArray[Any]:
    """Reshape values (k,) to broadcast along the features' axis, 1 or the last one."""
    return values.reshape(-1, *[1] * (dimensions - 1 - axis % dimensions))
