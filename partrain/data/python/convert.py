"""Conversion of values of a script to arrays."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.errors import InputMissing

if TYPE_CHECKING:
    from numpy.typing import NDArray


def to_array(value: Any, where: str) -> NDArray[Any]:
    """Convert a value of a script to an array of numbers or texts: a tensor, a list, a column, an array.

    Raises InputMissing for anything else.
    """
    if hasattr(value, "detach"):  # a tensor; numpy has no bfloat16
        value = value.detach().cpu()
        value = value.float() if "bfloat16" in str(value.dtype) else value
    elif hasattr(value, "to_numpy"):
        value = value.to_numpy()
    elif hasattr(value, "toarray"):
        raise InputMissing(f"{where}: is a sparse matrix; give `.toarray()`")
    if np.ma.is_masked(value):
        raise InputMissing(f"{where}: holds masked values; fill them or leave those items out")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InputMissing(f"{where}: is no array: {str(error).splitlines()[0]}") from None
    if array.dtype.kind == "O" and array.size:
        words = [isinstance(item, str) for item in array.flat]
        with suppress(ValueError, TypeError):
            array = array.astype(str) if all(words) else array.astype(np.float64) if not any(words) else array
    if array.dtype.kind == "O" and array.size:
        raise InputMissing(f"{where}: holds objects, not numbers or words")
    return array.astype(np.int8) if array.dtype.kind == "b" else array


def is_boolean(value: Any) -> bool:
    """Return whether a value is an array of True and False with one axis."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, bool | np.bool_) for item in value)
    return str(getattr(value, "dtype", "")) in ("bool", "torch.bool") and len(getattr(value, "shape", ())) == 1
