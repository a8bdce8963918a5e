"""Items of a script with several inputs, or of unequal length, given as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.byte_layout import input_names
from partrain.data.python.convert import to_array
from partrain.errors import InputMissing

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Several:
    """Several inputs (n, ...) of each item."""

    arrays: dict[str, NDArray[Any]]
    named: bool
    """The inputs have the names of the network's arguments. False: they have an order, and get names by it."""

    @classmethod
    def of(cls, inputs: Mapping[str, Any] | Sequence[Any], where: str) -> Several:
        """Convert a dict or sequence of arrays. Raises InputMissing if an element is not an array."""
        named = isinstance(inputs, Mapping)
        pairs = inputs.items() if isinstance(inputs, Mapping) else zip(input_names([""] * len(inputs)), inputs, strict=True)
        return cls({name: to_array(value, f"{where}: `{name}`") for name, value in pairs}, named)

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))


@dataclass(frozen=True)
class Ragged:
    """Sequences of unequal length, concatenated: item i is values[offsets[i]:offsets[i + 1]]."""

    values: NDArray[Any]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, sequences: Sequence[Any], where: str) -> Ragged:
        """Convert a list of sequences.

        Raises InputMissing if an element is not a sequence, or if their elements differ in shape.
        """
        items = [to_array(sequence, f"{where}: item {number}") for number, sequence in enumerate(sequences)]
        for number, array in enumerate(items):
            if not array.ndim or array.shape[1:] != items[0].shape[1:]:
                was = f"its shape is {array.shape}, and item 0 has {items[0].shape}"
                raise InputMissing(f"{where}: item {number} is no sequence as the others are: {was}")
        offsets = np.cumsum([0, *map(len, items)])
        return cls(np.concatenate(items) if items else np.zeros(0), offsets.astype(np.int64))

    def padded(self, longest: int, where: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the items (n, longest, ...), padded with zeros, and their lengths (n,)."""
        lengths = np.diff(self.offsets)
        if lengths.max(initial=0) > longest:
            raise InputMissing(f"{where}: an item has {lengths.max()} elements, and the network was built for at most {longest}")
        rows = np.zeros((len(self), longest, *self.values.shape[1:]), self.values.dtype)
        for number, (start, stop) in enumerate(pairwise(self.offsets)):
            rows[number, : stop - start] = self.values[start:stop]
        return rows, lengths

    def __len__(self) -> int:
        return len(self.offsets) - 1


def inputs_of(value: Any, items: int, where: str) -> NDArray[Any] | Several | Ragged:
    """Convert the inputs of `items` targets: an array, several arrays, or sequences of unequal length."""
    if isinstance(value, Mapping) or (isinstance(value, list | tuple) and _several(value, items)):
        return Several.of(value, where)
    return Ragged.of(value, where) if unequal(value) else to_array(value, where)


def unequal(value: Any) -> bool:
    """Return whether a value is a list of sequences whose lengths differ."""
    listed = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 1)
    if not listed or not len(value) or not all(_is_array(sequence) or isinstance(sequence, list | tuple) for sequence in value):
        return False
    return len({len(sequence) for sequence in value}) > 1


def _several(value: Sequence[Any], items: int) -> bool:
    """Distinguish inputs of the same items from a list of items. Inputs are arrays with a row for each target."""
    if not value or not all(map(_is_array, value)):
        return False
    return all(len(sequence) == items for sequence in value) and (isinstance(value, tuple) or len(value) != items)


def _is_array(value: Any) -> bool:
    """Return whether a value is an array or tensor with an axis of items."""
    return bool(getattr(value, "shape", ()))
