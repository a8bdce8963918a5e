"""Remarks on numbers far from those trained on, because of another unit, say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.number_format import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

FAR = 1000
"""Number of standard deviations from the training mean beyond which a number is remarked on."""


def far_numbers(where: str, numbers: NDArray[Any], positions: Sequence[int | str], noun: str = "item") -> list[str]:
    """Return a sentence if standardized numbers (n, k) are far from training.

    `positions` (n,): number of each `noun` in the rows.
    """
    far = (np.abs(numbers) > FAR).any(1)
    if not far.any():
        return []
    count, first = int(far.sum()), positions[int(far.argmax())]
    beyond = f"more than {FAR:,} standard deviations from the mean in training; the first: {noun} {first}"
    return [f"{where}: {count:,} {plural(noun, count)} {beyond}"]
