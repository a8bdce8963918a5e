"""Several inputs from one file, or sequences of unequal length, as one array of rows: see `byte_layout.InputPart`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partrain.byte_layout import LENGTHS, lay_out_parts, part_view
from partrain.data.arrays.files import ArraySource, choose_array
from partrain.data.base import WrongSetting, check_finite
from partrain.data.parts import refused_name
from partrain.errors import InputMissing

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PADDED_TARGET = -100
"""Target of padding: `tasks.task.PADDING`."""


def argument_name(name: str) -> str:
    """Return the argument name for an array: without `test_`; in HDF5, the last part of its path."""
    return name.rpartition("/")[2].removeprefix("test_")


def named_inputs(held: Mapping[str, ArraySource], names: list[str], path: Path, key: str, tokens: Sequence[str]) -> ArraySource:
    """Combine arrays of a file into one array of rows, one input of the items after the other.

    `tokens`: names of token inputs.
    """
    sources = [choose_array(dict(held), name, path, key) for name in names]
    forms = []
    for name, source in zip(names, sources, strict=True):
        argument = argument_name(name)
        if fault := refused_name(argument):
            raise WrongSetting(key, f"`{key}`: {fault}, which the network takes it by", "rename the array")
        if not source.shape or not prod(source.shape):
            raise InputMissing(f"{source.where}: holds no numbers: its shape is {source.shape}")
        if source.shape[0] != sources[0].shape[0]:
            raise InputMissing(f"{source.where}: holds {source.shape[0]} items, {sources[0].where} {sources[0].shape[0]}")
        dtype = "int64" if argument in tokens else "uint8" if source.dtype == "|u1" else "float32"
        if argument in tokens and source.kind not in "iu":
            raise InputMissing(f"{source.where}: is {source.dtype}; tokens are whole numbers")
        forms.append((argument, dtype, source.shape[1:] if argument in tokens else source.shape[1:] or (1,)))
    if unknown := [name for name in tokens if name not in {form[0] for form in forms}]:
        raise WrongSetting("tokens", f"`tokens` names {unknown[0]}, which is no input", "name inputs")
    if twice := [form[0] for form in forms if [other[0] for other in forms].count(form[0]) > 1]:
        raise WrongSetting(key, f"`{key}` gives two inputs the name {twice[0]}", "rename an array")
    parts, width = lay_out_parts(forms)

    def read(rows: NDArray[Any]) -> None:
        rows[...] = 0
        for part, source in zip(parts, sources, strict=True):
            place = part_view(rows, part)
            source.read(place.reshape(source.shape))
            check_finite(place, source.where)
            if part.name in tokens and int(place.min()) < 0:
                raise InputMissing(f"{source.where}: holds a negative number; tokens are 0 or more")

    return ArraySource(
        f"{path}: arrays {', '.join(names)}",
        path,
        "|u1",
        (sources[0].shape[0], width),
        None,
        read,
        parts=parts,
        tokens=frozenset(tokens),
        from_memory=sources[0].from_memory,
    )


def longest(values: ArraySource, offsets: ArraySource) -> int:
    """Return the length of the longest item."""
    starts = _starts(values, offsets)
    return int((starts[1:] - starts[:-1]).max())


def padded(values: ArraySource, offsets: ArraySource, *, tokens: bool, longest: int) -> ArraySource:
    """Make an array of rows from concatenated sequences: item i is values[offsets[i]:offsets[i + 1]]."""
    starts = _starts(values, offsets)
    if tokens and (values.kind not in "iu" or len(values.shape) != 1):
        raise InputMissing(f"{values.where}: is {values.dtype} {values.shape}; tokens of all items are whole numbers (total,)")
    if not tokens and len(values.shape) != 2:
        advice = "; whole numbers of one axis are tokens: set tokens = true" * (values.kind in "iu" and len(values.shape) == 1)
        raise InputMissing(
            f"{values.where}: is {values.dtype} {values.shape}; the steps of all items are (total, features){advice}"
        )
    dtype = "int64" if tokens else "float32"
    parts, width = lay_out_parts([("", dtype, (longest, *values.shape[1:])), (LENGTHS, "int64", ())])

    def read(rows: NDArray[Any]) -> None:
        rows[...] = 0
        _scatter(values, starts, part_view(rows, parts[0]))
        part_view(rows, parts[1])[...] = starts[1:] - starts[:-1]
        check_finite(part_view(rows, parts[0]), values.where)
        if tokens and int(part_view(rows, parts[0]).min()) < 0:
            raise InputMissing(f"{values.where}: holds a negative number; tokens are 0 or more")

    shape, names, from_memory = (len(starts) - 1, width), frozenset([""] * tokens), values.from_memory
    return ArraySource(values.where, values.path, "|u1", shape, None, read, parts=parts, tokens=names, from_memory=from_memory)


def padded_targets(values: ArraySource, offsets: ArraySource, inputs: ArraySource) -> ArraySource:
    """Make the targets of each token: (n, longest) int64, with PADDING as the target of padding."""
    starts = _starts(values, offsets)
    longest = inputs.parts[0].shape[0]

    def read(target: NDArray[Any]) -> None:
        target[...] = _PADDED_TARGET
        _scatter(values, starts, target)

    return replace(values, dtype="<i8", shape=(len(starts) - 1, longest), offset=None, read=read, checksum=None, digests=None)


def _starts(values: ArraySource, offsets: ArraySource) -> NDArray[Any]:
    """Read the offsets (n + 1,)."""
    if offsets.kind not in "iu" or len(offsets.shape) != 1 or offsets.shape[0] < 2:
        raise InputMissing(
            f"{offsets.where}: is {offsets.dtype} {offsets.shape}; offsets are whole numbers, one more than there are items"
        )
    starts = offsets.whole("int64")
    lengths = starts[1:] - starts[:-1]
    if starts[0] != 0 or starts[-1] != values.shape[0]:
        raise InputMissing(
            f"{offsets.where}: run from {starts[0]} to {starts[-1]}, and {values.where} has {values.shape[0]} elements"
        )
    if (lengths < 1).any():
        raise InputMissing(f"{offsets.where}: item {int((lengths < 1).argmax())} is empty")
    return starts


def _scatter(values: ArraySource, starts: NDArray[Any], places: NDArray[Any]) -> None:
    """Write the values (total, ...) of each item into the first elements of its place (n, longest, ...)."""
    flat = values.whole(places.dtype)
    for number, (start, stop) in enumerate(pairwise(starts)):
        places[number, : stop - start] = flat[start:stop]
