"""Differences of a series at lags, and their inverse. Symbols: n items; H steps; k columns; B the shift by one moment.

Differences at lags d1, d2, ... are z = (1 - B^d1)(1 - B^d2) ... y (Box and Jenkins. Time Series Analysis. 1970). A forecast of z
becomes a forecast of y step by step: each step subtracts the values that the product's other terms shift, known or forecast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from numpy.typing import NDArray

Values = TypeVar("Values")
"""Tensors, or arrays of numpy."""


def difference(rows: NDArray[Any], lags: Sequence[int]) -> NDArray[Any]:
    """Return the differences (moments - sum of lags, k) of rows (moments, k)."""
    for lag in lags:
        rows = rows[lag:] - rows[:-lag]
    return rows


def integrate(
    differences: Values, levels: Values, lags: Sequence[int], stack: Callable[[list[Any], int], Any] | None = None
) -> Values:
    """Return the values (n, H, k) with these differences, after the newest values `levels` (n, at least the sum of lags, k).

    They are tensors; or arrays, with numpy's `stack`.
    """
    if stack is None:
        import torch

        stack = torch.stack
    weights = _coefficients(lags)
    changes, newest = cast(Any, differences), cast(Any, levels)
    values = [newest[:, at] for at in range(newest.shape[1])]
    for step in range(changes.shape[1]):
        value = changes[:, step]
        for back, weight in weights.items():
            value = value - weight * values[-back]
        values.append(value)
    return cast(Values, stack(values[newest.shape[1] :], 1))


def _coefficients(lags: Sequence[int]) -> dict[int, int]:
    """Return the coefficient of each power of B in the product, without the coefficient of B^0, which is 1."""
    product = {0: 1}
    for lag in lags:
        shifted = dict(product)
        for power, weight in product.items():
            shifted[power + lag] = shifted.get(power + lag, 0) - weight
        product = shifted
    return {power: weight for power, weight in product.items() if power and weight}
