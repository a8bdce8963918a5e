"""Differences of a series at lags, and their inverse. Symbols: n items; H steps; k columns; B the shift by one moment.

Differences at lags d1, d2, ... are z = (1 - B^d1)(1 - B^d2) ... y (Box and Jenkins. Time Series Analysis. 1970). A forecast of z
becomes a forecast of y step by step: each step subtracts the values that the product's other terms shift, known or forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


def difference(rows: NDArray[Any], lags: Sequence[int]) -> NDArray[Any]:
    """Return the differences (moments - sum of lags, k) of rows (moments, k)."""
    for lag in lags:
        rows = rows[lag:] - rows[:-lag]
    return rows


def integrate(differences: Tensor, levels: Tensor, lags: Sequence[int]) -> Tensor:
    """Return the values (n, H, k) with these differences, after the newest values `levels` (n, at least the sum of lags, k)."""
    import torch

    weights = _coefficients(lags)
    values = [levels[:, at] for at in range(levels.shape[1])]
    for step in range(differences.shape[1]):
        value = differences[:, step]
        for back, weight in weights.items():
            value = value - weight * values[-back]
        values.append(value)
    return torch.stack(values[levels.shape[1] :], dim=1)


def _coefficients(lags: Sequence[int]) -> dict[int, int]:
    """Return the coefficient of each power of B in the product, without the coefficient of B^0, which is 1."""
    product = {0: 1}
    for lag in lags:
        shifted = dict(product)
        for power, weight in product.items():
            shifted[power + lag] = shifted.get(power + lag, 0) - weight
        product = shifted
    return {power: weight for power, weight in product.items() if power and weight}
