"""Arrays in files of each kind, for the tests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from pydantic import TypeAdapter

from partrain.data import AnyDataset, load
from partrain.errors import InputMissing

KINDS = ["npz", "npy", "hdf5"]


def section_of(table: Mapping[str, Any]) -> Any:
    """Return the section of a table `[dataset]`."""
    return TypeAdapter[Any](AnyDataset).validate_python(table)


def write_dataset(folder: Path, kind: str, keys: Mapping[str, Any] | None = None, **arrays: Any) -> Any:
    """Write the files of a data set, and return its section with these keys."""
    table: dict[str, Any] = {"kind": kind, **(keys or {})}
    if kind == "npz":
        np.savez(folder / "a.npz", **arrays)
        table["path"] = "a.npz"
    elif kind == "hdf5":
        with h5py.File(folder / "a.h5", "w") as file:
            for name, array in arrays.items():
                file[name] = array
        table["path"] = "a.h5"
    else:
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
            table[name] = f"{name}.npy"
    return section_of(table)


def load_error(section: Any, folder: Path) -> str:
    with pytest.raises(InputMissing) as caught:
        load(section, folder)
    assert "\n" not in caught.value.message
    return caught.value.message.replace(f"{folder}/", "")


def is_mapped(array: Any) -> bool:
    """Return whether an array's numbers lie in a mapped file."""
    address = array.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if start <= address < end:
            return line.split()[-1].endswith((".npy", ".npz", ".h5", ".items"))
    return False
