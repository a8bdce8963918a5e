"""Load arrays and DataFrames that a Python script gave: see `partrain.config.python_objects`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.config.python_objects import absent, current
from partrain.data.arrays.classes import select_classes
from partrain.data.arrays.files import ArraySource
from partrain.data.arrays.headers import spec_of
from partrain.data.arrays.load import load_arrays
from partrain.data.arrays.packed import longest, named_inputs, padded, padded_targets
from partrain.data.base import Allocate, Dataset, DatasetSpec, Training, WrongContent, WrongSetting
from partrain.data.python.frames import NAME, TEST_NAME, Frames
from partrain.data.python.section import PythonArrays, PythonTable
from partrain.data.python.several import Ragged, Several
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
    if isinstance(arrays["inputs"], Several | Ragged):
        return select_classes(_packed(section, arrays), section.classes)
    named = needs_names(targets) and not section.classes
    if named and targets.dtype.kind in "iu" and (count := len(np.unique(targets))) > max(MANY, len(targets) // 2):
        many = f"{count:,} different whole numbers in {len(targets):,} items are hardly classes"
        raise InputMissing(f"`targets`: {many}; for a regression give floats, as y.astype(float)")
    return select_classes({role: _source(role, array, named=named) for role, array in arrays.items()}, section.classes)


def _packed(section: PythonArrays, arrays: Mapping[str, Any]) -> dict[str, ArraySource]:
    """Make the sources of several inputs, or of sequences of unequal length, and of their targets."""
    if section.standardise:
        raise WrongSetting("standardise", "`standardise` is for one input of one shape", "remove it")
    found = dict[str, ArraySource]()
    texts = needs_names(arrays["targets"]) if isinstance(arrays["targets"], np.ndarray) else False
    inputs = {role: one for role, one in arrays.items() if role.endswith("inputs")}
    offsets = {role: _source("offsets", one.offsets, named=False) for role, one in inputs.items() if isinstance(one, Ragged)}
    values = {role: _source(role, one.values, named=False) for role, one in inputs.items() if isinstance(one, Ragged)}
    if offsets and len(offsets) < len(inputs):
        raise InputMissing("`test_inputs` and `inputs`: one is of unequal lengths, the other is not")
    most = max((longest(values[role], offsets[role]) for role in offsets), default=0)
    for role, one in inputs.items():
        answers = arrays[role.removesuffix("inputs") + "targets"]
        of = role.removesuffix("inputs") + "targets"
        found[role] = (
            padded(values[role], offsets[role], tokens=section.tokens is True, longest=most)
            if offsets
            else _several(section, role, one)
        )
        if isinstance(answers, Ragged):
            found[of] = padded_targets(_source(of, answers.values, named=False), offsets[role], found[role])
        else:
            found[of] = _source(of, answers, named=texts and not section.classes)
    return found


def _several(section: PythonArrays, role: str, given: Several) -> ArraySource:
    """Make the source of several inputs. Those without names are called by their order in messages."""
    tokens = section.tokens if isinstance(section.tokens, list) else []
    if tokens and not given.named:
        raise WrongSetting("tokens", "`tokens` names inputs, and these have no names", "give a dict of arrays")
    held = {name: _source(f"{role}.{name}", array, named=False) for name, array in given.arrays.items()}
    source = named_inputs(held, list(held), Path(role), role, tokens)
    return source if given.named else replace(source, parts=tuple(replace(part, name="") for part in source.parts))


def needs_names(targets: NDArray[Any]) -> bool:
    """Tell if class labels are names: texts, or whole numbers that do not run from 0."""
    if targets.dtype.kind in "US":
        return True
    if targets.dtype.kind not in "iu" or targets.ndim > 2 or (targets.ndim == 2 and targets.shape[1] > 1) or not targets.size:
        return False
    different = np.unique(targets)
    return bool(different[0] != 0 or different[-1] != len(different) - 1)


def _source(role: str, array: NDArray[Any], *, named: bool) -> ArraySource:
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
