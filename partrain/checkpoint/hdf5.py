"""The one door to HDF5: h5py with its plug-ins switched off, and the number types a checkpoint may use.

Import this module inside functions or from modules that are: it loads h5py.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

# A file must not be able to name a filter library to load. HDF5 looks at this once, when it starts.
os.environ["HDF5_PLUGIN_PRELOAD"] = "::"

import numpy as np
from h5py import h5a, h5d, h5f, h5fd, h5g, h5l, h5o, h5p, h5s, h5t
from numpy.typing import NDArray

from partrain.checkpoint.content import DTYPES

__all__ = [
    "NUMBERS",
    "h5a",
    "h5d",
    "h5f",
    "h5fd",
    "h5g",
    "h5l",
    "h5o",
    "h5p",
    "h5s",
    "h5t",
    "space_of",
    "stored_dtype",
    "text_array",
    "text_type",
]


def stored_dtype(name: str) -> str:
    """The kind of number that stands in the file: HDF5 has no truth values, so `bool` is kept as 0 and 1 of `uint8`."""
    return "uint8" if name == "bool" else name


@lru_cache(256)
def text_type(size: int) -> h5t.TypeID:
    """A UTF-8 string of exactly `size` bytes."""
    kind = h5t.C_S1.copy()
    kind.set_size(size)
    kind.set_strpad(h5t.STR_NULLPAD)
    kind.set_cset(h5t.CSET_UTF8)
    return kind


@lru_cache(1024)
def space_of(shape: tuple[int, ...]) -> h5s.SpaceID:
    """The dataspace of an array; making one costs as much as writing a small array."""
    return h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)


def text_array(value: list[str] | str) -> NDArray[Any]:
    """The value of an attribute as fixed-length strings: () for a text, (n,) for a list."""
    return np.array([text.encode() for text in value]) if isinstance(value, list) else np.array(value.encode())


NUMBERS: dict[str, h5t.TypeID] = {name: h5t.py_create(np.dtype(name).newbyteorder("<")) for name in DTYPES if name != "bool"}
"""The HDF5 type of each kind of number, little-endian whatever the machine."""
