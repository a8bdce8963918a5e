"""Items with several inputs, or of unequal length, from named arrays: of an NPZ or HDF5 file, or in memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from partrain.byte_layout import input_names, part_view
from partrain.data.arrays.files import ArraySource, choose_array, hdf5, npz
from partrain.data.arrays.packed import argument_name, longest, named_inputs, padded, padded_targets
from partrain.data.arrays.sections import NamedArrays
from partrain.errors import InputMissing
from partrain.inference.inputs.sample import Sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.network import TrainedNetwork

SUFFIXES = {".npz": npz, ".h5": hdf5, ".hdf5": hdf5}


def find_arrays(network: TrainedNetwork, path: Path) -> dict[str, ArraySource]:
    """Find the arrays of a file, by name."""
    if (kind := SUFFIXES.get(path.suffix.lower())) is None:
        what = "of unequal length" if network.record.interface.unequal else f"of {len(network.record.parts)} inputs"
        raise InputMissing(f"{path}: is no NPZ or HDF5 file (.npz, .h5), and items {what} come in these")
    return kind(path)


def of_parts(network: TrainedNetwork, held: dict[str, ArraySource], path: Path) -> tuple[Sample, NDArray[Any] | None]:
    """Return items as rows (n, bytes) of the network's inputs, and their targets if there is an array for them.

    Several inputs have the names of the network's arguments, or `input_0`, `input_1`... if it takes them by position. Items of
    unequal length are concatenated in `inputs`, and `offsets` (n + 1,) gives the start of each. If the job itself names arrays,
    its names are used.
    """
    section = network.loaded.job.dataset
    arrays_section = section if isinstance(section, NamedArrays) else None
    named = arrays_section.targets if arrays_section and arrays_section.targets in held else "targets"
    answers = choose_array(held, named, path, "targets") if named in held else None
    rows_of = _unequal if network.record.interface.unequal else _several
    array, answers = rows_of(network, arrays_section, held, path, answers)
    rows = array.whole(np.uint8)
    for part in network.record.parts:
        if part.vocabulary is not None and int(part_view(rows, part).max()) >= part.vocabulary:
            which = f" of `{part.name}`" if part.name else ""
            raise InputMissing(f"{path}: tokens{which} must be whole numbers from 0 to {part.vocabulary - 1}")
    sample = Sample(torch.from_numpy(rows), None, list(map(str, range(len(rows)))))
    return sample, None if answers is None else answers.values()


def _several(
    network: TrainedNetwork,
    arrays_section: NamedArrays | None,
    held: dict[str, ArraySource],
    path: Path,
    answers: ArraySource | None,
) -> tuple[ArraySource, ArraySource | None]:
    parts = network.record.parts
    wanted = input_names([part.name for part in parts])
    own = {
        argument_name(name): name
        for name in (arrays_section.inputs if arrays_section and isinstance(arrays_section.inputs, list) else [])
    }
    names = [own[name] if own.get(name) in held else name for name in wanted]
    array = named_inputs(
        held, names, path, "inputs", [name for name, part in zip(wanted, parts, strict=True) if part.dtype == "int64"]
    )
    for name, part, actual in zip(wanted, parts, array.parts, strict=True):
        if (part.dtype, part.shape) != (actual.dtype, actual.shape):
            now, before = f"{actual.dtype} {actual.shape}", f"{part.dtype} {part.shape}"
            raise InputMissing(f"{path}: `{name}` is {now}, the network takes {before}")
    return array, answers


def _unequal(
    network: TrainedNetwork,
    arrays_section: NamedArrays | None,
    held: dict[str, ArraySource],
    path: Path,
    answers: ArraySource | None,
) -> tuple[ArraySource, ArraySource | None]:
    part = network.record.parts[0]
    name = (
        arrays_section.inputs
        if arrays_section and isinstance(arrays_section.inputs, str) and arrays_section.inputs in held
        else "inputs"
    )
    where = arrays_section.offsets if arrays_section and arrays_section.offsets in held else "offsets"
    values, offsets = choose_array(held, name, path, "inputs"), choose_array(held, where or "offsets", path, "offsets")
    if (most := longest(values, offsets)) > part.shape[0]:
        raise InputMissing(f"{path}: an item has {most} elements, and the network was built for at most {part.shape[0]}")
    array = padded(values, offsets, tokens=part.vocabulary is not None, longest=part.shape[0])
    if array.parts[0].shape != part.shape:
        raise InputMissing(f"{path}: elements are of shape {array.parts[0].shape[1:]}, the network takes {part.shape[1:]}")
    if answers is not None and network.kind.targets == "tokens":
        answers = padded_targets(answers, offsets, array)
    return array, answers
