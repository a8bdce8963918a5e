"""The only import of h5py in this package, with its plug-ins switched off, and the number types of checkpoints.

Importing this module loads h5py: import it inside functions, or from modules that are imported inside functions.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

# A file must not make HDF5 load a filter library. HDF5 reads this variable once, when it starts.
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
    """Return the type under which numbers of a type are stored. HDF5 has no booleans, so `bool` is stored as `uint8` 0 and 1."""
    return "uint8" if name == "bool" else name


@lru_cache(256)
def text_type(size: int) -> h5t.TypeID:
    """Return the HDF5 type of a UTF-8 string of exactly `size` bytes."""
    kind = h5t.C_S1.copy()
    kind.set_size(size)
    kind.set_strpad(h5t.STR_NULLPAD)
    kind.set_cset(h5t.CSET_UTF8)
    return kind


@lru_cache(1024)
def space_of(shape: tuple[int, ...]) -> h5s.SpaceID:
    """Return the dataspace of an array. Cached: making one costs as much as writing a small array."""
    return h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)


def text_array(value: list[str] | str) -> NDArray[Any]:
    """Turn the value of an attribute into fixed-length strings: () for a text, (n,) for a list."""
    return np.array([text.encode() for text in value]) if isinstance(value, list) else np.array(value.encode())


NUMBERS: dict[str, h5t.TypeID] = {name: h5t.py_create(np.dtype(name).newbyteorder("<")) for name in DTYPES if name != "bool"}
"""HDF5's type of each number type, little-endian on every machine."""
