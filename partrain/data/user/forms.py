"""Forms of a user's items, and conversion of the values that user code returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partrain.config import usercode
from partrain.errors import UserCodeFailed


@dataclass(frozen=True)
class ItemForm:
    """Form shared by all inputs, or all targets, of a data set."""

    name: str
    """Name of the form: `bytes`, `numbers`, `tokens` or `label`."""
    shape: tuple[int, ...]
    """Shape as user code returns it."""

    def __str__(self) -> str:
        return f"{self.name} {self.shape}"

    @property
    def dtype(self) -> str:
        """Type in the buffer."""
        return {"bytes": "uint8", "numbers": "float32"}.get(self.name, "int64")

    @property
    def stored(self) -> tuple[int, ...]:
        """Shape in the buffer: a single number becomes a vector of length one, a label does not."""
        return self.shape or (() if self.name == "label" else (1,))

    def differs_in_length(self, other: ItemForm) -> bool:
        """Return whether both are sequences, tokens (L,) or numbers (L, features), and differ only in length."""
        axes = {"tokens": 1, "numbers": 2}.get(self.name)
        return (
            self.name == other.name
            and len(self.shape) == len(other.shape) == axes
            and self.shape[1:] == other.shape[1:]
            and self.shape != other.shape
        )


def input_form(array: NDArray[Any], where: str) -> ItemForm:
    letter = array.dtype.kind
    if letter not in "fiub":
        raise UserCodeFailed(f"{where} is no array of numbers, but of {array.dtype}")
    if not array.size:
        raise UserCodeFailed(f"{where} holds no numbers: its shape is {array.shape}")
    return ItemForm("bytes" if array.dtype == "uint8" else "tokens" if letter in "iu" else "numbers", array.shape)


def target_form(array: NDArray[Any], where: str, first: ItemForm | None) -> ItemForm:
    """Determine the form of a target; `first` is the form of the inputs, None if there are several."""
    if array.dtype.kind == "f" and array.ndim < 2:
        return ItemForm("numbers", array.shape)
    if array.dtype.kind in "iub" and array.ndim == 0:
        return ItemForm("label", ())
    if array.dtype.kind in "iu" and first == ItemForm("tokens", array.shape):
        return ItemForm("tokens", array.shape)
    raise UserCodeFailed(
        f"{where} is {array.dtype} {array.shape}: expected one whole number as the label of a class, one or a row of float"
        " numbers, or as many whole numbers as there are tokens in the input"
    )


def convert(value: Any, where: str) -> NDArray[Any]:
    """Convert a value to an array."""
    try:
        return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except (ValueError, TypeError) as error:
        raise UserCodeFailed(f"{where} is no array of numbers: {error}") from None
    except Exception as error:  # some images are decoded only here
        raise failure(where, error) from None


def failure(where: str, error: BaseException) -> UserCodeFailed:
    """Describe an exception of user code."""
    text = f"{type(error).__name__}: {error}".rstrip(": \n")
    return UserCodeFailed(f"{where}: {text.splitlines()[0]}", usercode.frames(error) + text)
