"""Load arrays and DataFrames that a Python script gave: see `partrain.config.python_objects`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.config.python_objects import absent, current
from partrain.data.arrays.classes import select_classes
from partrain.data.arrays.files import ArraySource
from partrain.data.arrays.headers import spec_of
from partrain.data.arrays.load import load_arrays
from partrain.data.base import Allocate, Dataset, DatasetSpec, Training, WrongContent
from partrain.data.python.frames import NAME, TEST_NAME, Frames
from partrain.data.python.section import PythonArrays, PythonTable
from partrain.data.tables import load as tables
from partrain.data.tables import schema
from partrain.data.tables.labels import encode_labels
from partrain.errors import Failure, InputMissing

if TYPE_CHECKING:
    from numpy.typing import NDArray

TEXT = "<U1"
MANY = 20
"""Number of classes that is plausible among few items, too."""


def read_spec(section: PythonArrays | PythonTable, folder: Path) -> DatasetSpec:
    """Read the shapes of arrays, or the rows of a DataFrame; see `data.read_spec`."""
    if isinstance(section, PythonTable):
        with _as_files(section) as filed:
            return schema.read_spec(filed, folder)
    return spec_of(section, _sources(section))


def load(section: PythonArrays | PythonTable, folder: Path, allocate: Allocate, training: Training) -> Dataset:
    """Copy the arrays into the buffer, or read the rows of a DataFrame; see `data.load`."""
    if isinstance(section, PythonTable):
        with _as_files(section) as filed:
            return tables.load(filed, folder, allocate, training)
    return load_arrays(section, _sources(section), allocate, training)


@contextmanager
def _as_files(section: PythonTable) -> Iterator[PythonTable]:
    """Yield the section with the paths of the DataFrames' files. Messages name the DataFrame instead."""
    frames = current().data
    if not isinstance(frames, Frames):
        raise absent("dataset")
    paths = {"path": str(frames.path / NAME)} | ({"test_path": str(frames.path / TEST_NAME)} if frames.tested else {})
    try:
        yield section.model_copy(update=paths)
    except Failure as failure:
        raise _renamed(failure, f"{frames.path}/") from None


def _renamed(failure: Failure, folder: str) -> Failure:
    """Replace the temporary files in a message by the names of the objects."""

    def shown(text: str) -> str:
        return text.replace(folder, "").replace(TEST_NAME, "test DataFrame").replace(NAME, "DataFrame")

    failure.message = shown(failure.message)
    failure.args = (failure.message,)
    if isinstance(failure, WrongContent):
        failure.faults = tuple((keys, shown(text)) for keys, text in failure.faults)
    return failure


def _sources(section: PythonArrays) -> dict[str, ArraySource]:
    arrays = current().data
    if not isinstance(arrays, Mapping):
        raise absent("dataset")
    targets = arrays["targets"]
    named = needs_names(targets) and not section.tokens and not section.classes
    if named and targets.dtype.kind in "iu" and (count := len(np.unique(targets))) > max(MANY, len(targets) // 2):
        many = f"{count:,} different whole numbers in {len(targets):,} items are hardly classes"
        raise InputMissing(f"`targets`: {many}; for a regression give floats, as y.astype(float)")
    return select_classes({role: _source(role, array, named) for role, array in arrays.items()}, section.classes)


def needs_names(targets: NDArray[Any]) -> bool:
    """Tell if class labels are names: texts, or whole numbers that do not run from 0."""
    if targets.dtype.kind in "US":
        return True
    if targets.dtype.kind not in "iu" or targets.ndim > 2 or (targets.ndim == 2 and targets.shape[1] > 1) or not targets.size:
        return False
    different = np.unique(targets)
    return bool(different[0] != 0 or different[-1] != len(different) - 1)


def _source(role: str, array: NDArray[Any], named: bool) -> ArraySource:
    where = f"`{role}`"
    if role.endswith("targets") and named:
        texts: dict[str, int] = {}
        words = array.astype(str)

        def read_words(target: NDArray[Any]) -> None:
            target[...] = encode_labels(words, texts, where, 0).reshape(target.shape)

        return ArraySource(where, Path(role), TEXT, array.shape, None, read_words, texts=texts)

    def read(target: NDArray[Any]) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # the caller reports numbers beyond float32
            target[...] = array.reshape(target.shape)

    unsupported = "" if array.dtype.kind in "iuf" else "texts" if array.dtype.kind in "US" else f"objects ({array.dtype})"
    return ArraySource(where, Path(role), array.dtype.str.replace("=", "<"), array.shape, None, read, unsupported=unsupported)


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
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InputMissing(f"{where}: is no array: {str(error).splitlines()[0]}") from None
    if array.dtype.kind == "O" and array.size:
        words = [isinstance(one, str) for one in array.flat]
        with suppress(ValueError, TypeError):
            array = array.astype(str) if all(words) else array.astype(np.float64) if not any(words) else array
    return array.astype(np.int8) if array.dtype.kind == "b" else array
