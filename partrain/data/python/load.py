"""Load arrays from a Python script: see `partrain.config.python_objects`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.config.python_objects import absent, current
from partrain.data.arrays.classes import select_classes
from partrain.data.arrays.files import ArraySource, in_memory
from partrain.data.arrays.headers import spec_of
from partrain.data.arrays.load import load_arrays
from partrain.data.arrays.packed import longest, named_inputs, padded, padded_targets
from partrain.data.base import WEIGHTS, Allocate, Dataset, DatasetSpec, Training, WrongSetting
from partrain.data.python.section import PythonArrays
from partrain.data.python.several import Ragged, Several
from partrain.errors import InputMissing

if TYPE_CHECKING:
    from numpy.typing import NDArray

MANY = 20
"""Number of classes that is plausible even with few items."""


def read_spec(section: PythonArrays, folder: Path) -> DatasetSpec:
    """Read the shapes of arrays; see `data.read_spec`."""
    return spec_of(section, _sources(section))


def load(section: PythonArrays, folder: Path, allocate: Allocate, training: Training) -> Dataset:
    """Copy the arrays into the buffer; see `data.load`."""
    return load_arrays(section, _sources(section), allocate, training)


def _sources(section: PythonArrays) -> dict[str, ArraySource]:
    arrays = current().data
    if not isinstance(arrays, Mapping):
        raise absent("dataset")
    targets = arrays["targets"]
    if isinstance(arrays["inputs"], Several | Ragged):
        return select_classes(_packed(section, arrays), section.classes)
    named = _named(section, targets)
    if named and targets.dtype.kind in "iu" and (count := len(np.unique(targets))) > max(MANY, len(targets) // 2):
        many = f"{count:,} different whole numbers in {len(targets):,} items are hardly classes"
        raise InputMissing(f"`targets`: {many}; for a regression give floats, as y.astype(float)")
    return select_classes({role: _source(role, array, named=named) for role, array in arrays.items()}, section.classes)


def _named(section: PythonArrays, targets: NDArray[Any]) -> bool:
    """Return whether the targets are classes that become names."""
    return needs_names(targets) and not section.classes and section.target_kind != "number"


def _packed(section: PythonArrays, arrays: Mapping[str, Any]) -> dict[str, ArraySource]:
    """Make the sources of several inputs, or of sequences of unequal length, and of their targets."""
    if section.standardise:
        raise WrongSetting("standardise", "`standardise` is for one input of one shape", "remove it")
    sources = {role: _source(role, array, named=False) for role, array in arrays.items() if role == WEIGHTS}
    named = isinstance(arrays["targets"], np.ndarray) and _named(section, arrays["targets"])
    inputs = {role: array for role, array in arrays.items() if role.endswith("inputs")}
    offsets = {
        role: _source("offsets", ragged.offsets, named=False) for role, ragged in inputs.items() if isinstance(ragged, Ragged)
    }
    values = {role: _source(role, ragged.values, named=False) for role, ragged in inputs.items() if isinstance(ragged, Ragged)}
    if offsets and len(offsets) < len(inputs):
        raise InputMissing("`test_inputs` and `inputs`: one is of unequal lengths, the other is not")
    most = max((longest(values[role], offsets[role]) for role in offsets), default=0)
    for role, array in inputs.items():
        answers = arrays[role.removesuffix("inputs") + "targets"]
        of = role.removesuffix("inputs") + "targets"
        sources[role] = (
            padded(values[role], offsets[role], tokens=section.tokens is True, longest=most)
            if offsets
            else _several(section, role, array)
        )
        if isinstance(answers, Ragged):
            sources[of] = padded_targets(_source(of, answers.values, named=False), offsets[role], sources[role])
        else:
            sources[of] = _source(of, answers, named=named)
    return sources


def _several(section: PythonArrays, role: str, several: Several) -> ArraySource:
    """Make the source of several inputs. Messages number the inputs that have no names."""
    tokens = section.tokens if isinstance(section.tokens, list) else []
    if section.tokens is True:
        named = 'tokens=["text"], say' if several.named else 'give a dict of arrays, and tokens=["text"], say'
        raise WrongSetting("tokens", "of several inputs, name those that are tokens", named)
    if tokens and not several.named:
        raise WrongSetting("tokens", "`tokens` names inputs, and these have no names", "give a dict of arrays")
    held = {name: _source(f"{role}.{name}", array, named=False) for name, array in several.arrays.items()}
    source = named_inputs(held, list(held), Path(role), role, tokens)
    return source if several.named else replace(source, parts=tuple(replace(part, name="") for part in source.parts))


def needs_names(targets: NDArray[Any]) -> bool:
    """Return whether class labels are names: texts, or whole numbers that are not 0, 1, ..."""
    if targets.dtype.kind in "US":
        return True
    if targets.dtype.kind not in "iu" or targets.ndim > 2 or (targets.ndim == 2 and targets.shape[1] > 1) or not targets.size:
        return False
    different = np.unique(targets)
    return bool(different[0] != 0 or different[-1] != len(different) - 1)


def _source(role: str, array: NDArray[Any], *, named: bool) -> ArraySource:
    return in_memory(array.astype(str) if named and role.endswith("targets") else array, f"`{role}`", Path(role))
