"""The `[dataset]` tables of arrays: `npz`, `npy` and `hdf5`. What has the right form on the disk is mapped there, not read."""

from __future__ import annotations

import hashlib
import zlib
from abc import abstractmethod
from collections.abc import Mapping, Set
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import model_validator

from partrain.data.base import (
    Allocate,
    Card,
    DataSection,
    Dataset,
    Facts,
    MappedFile,
    Slot,
    Training,
    check_finite,
    classes,
    digest,
    lay_out,
    views,
)
from partrain.data.fetch import File, place
from partrain.data.npy import Found, chosen, hdf5, npy, npz
from partrain.errors import InputMissing
from partrain.tasks import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROLES = ("inputs", "targets", "test_inputs", "test_targets")
_SAMPLES, _SAMPLE = 64, 1 << 20
"""Blocks of so many bytes that a mapped file is known by."""


class ArraySection(DataSection):
    """What data sets of arrays have.

    Inputs (n, ...): bytes are scaled to [0, 1], those of two axes being grey images (1, height, width); other numbers stay as they
    are. Targets: whole numbers (n,) are class labels, others (n,) or (n, k) what a regression is to give.
    """

    tokens: bool = False
    """Whole numbers are tokens: inputs (n, length), and targets of that shape the next token of each."""

    @abstractmethod
    def found(self, folder: Path) -> dict[str, Found]:
        """The arrays by role."""

    def facts(self, folder: Path) -> Facts:
        found = self.found(folder)
        slots, task = _forms(found, self.tokens)
        width = slots["targets"].shape[1] if task == "regression" else None
        tests = slots["test_inputs"].shape[0] if "test_inputs" in slots else 0
        return Facts(slots["inputs"].shape[0], tests, slots["inputs"].shape[1:], task, width, self.tokens)

    def load(self, folder: Path, allocate: Allocate, training: Training) -> Dataset:
        return _load(self.found(folder), self.tokens, allocate)


class _Named(ArraySection):
    """Arrays of one file, by name."""

    path: File
    """The file, relative to the job."""
    inputs: str = "inputs"
    targets: str = "targets"
    test_inputs: str = "test_inputs"
    """Of test items; they may be missing under these names."""
    test_targets: str = "test_targets"

    @abstractmethod
    def within(self, path: Path) -> dict[str, Found]:
        """What the file holds."""

    def found(self, folder: Path) -> dict[str, Found]:
        path = place(self.path, folder)
        held = self.within(path)
        default = not {"test_inputs", "test_targets"} & self.model_fields_set
        roles = ROLES[:2] if default and not {self.test_inputs, self.test_targets} & held.keys() else ROLES
        return {role: chosen(held, getattr(self, role), path, role) for role in roles}


class Npz(_Named):
    """Arrays of a .npz file, by name; those of `np.savez` are mapped, if they begin at a multiple of their numbers' width."""

    kind: Literal["npz"]

    def within(self, path: Path) -> dict[str, Found]:
        return npz(path)


class Hdf5(_Named):
    """Datasets of an HDF5 file, by path; contiguous ones are mapped, so they may be larger than the memory."""

    kind: Literal["hdf5"]

    def within(self, path: Path) -> dict[str, Found]:
        return hdf5(path)


class Npy(ArraySection):
    """Arrays in .npy files of their own, which are mapped, so they may be larger than the memory."""

    kind: Literal["npy"]
    inputs: File
    """File of the inputs, relative to the job."""
    targets: File
    test_inputs: File | None = None
    test_targets: File | None = None

    @model_validator(mode="after")
    def _test_pair(self) -> Npy:
        if (self.test_inputs is None) != (self.test_targets is None):
            raise ValueError("test_inputs and test_targets go together")
        return self

    def found(self, folder: Path) -> dict[str, Found]:
        return {role: npy(place(path, folder)) for role in ROLES if (path := getattr(self, role))}


def _forms(found: Mapping[str, Found], tokens: bool) -> tuple[dict[str, Slot], Kind]:
    """What each array becomes, its place left open, and what the items are made for."""
    slots = {}
    for role, array in found.items():
        if not array.shape or not prod(array.shape):
            raise InputMissing(f"{array.where}: holds no numbers: its shape is {array.shape}")
        if role.endswith("inputs"):
            slots[role] = _inputs(array, tokens)
            continue
        slots[role] = _targets(array, tokens)
        items = found[role.removesuffix("targets") + "inputs"].shape[0]
        if array.shape[0] != items:
            raise InputMissing(f"{array.where}: holds {array.shape[0]} targets for {items} inputs")
    for role, slot in slots.items():
        first = slots[role.removeprefix("test_")]
        if (slot.dtype == "uint8") != (first.dtype == "uint8") or slot.shape[1:] != first.shape[1:]:
            now, before = f"{slot.dtype} {slot.shape[1:]}", f"{first.dtype} {first.shape[1:]}"
            raise InputMissing(f"{found[role].where}: its items are {now}, those for training {before}")
    targets = slots["targets"]
    if targets.dtype != "int64":
        return slots, "regression"
    if len(targets.shape) == 1:
        return slots, "classification"
    if targets.shape != slots["inputs"].shape:
        raise InputMissing(f"{found['targets'].where}: tokens {targets.shape} for inputs {slots['inputs'].shape}: one for each")
    return slots, "language"


def _inputs(array: Found, tokens: bool) -> Slot:
    items, *axes = array.shape
    if tokens:
        if array.kind not in "iu" or len(axes) != 1:
            raise InputMissing(f"{array.where}: is {array.dtype} {array.shape}; tokens are whole numbers (n, length)")
        return Slot("", "int64", array.shape, 0)
    if array.dtype == "|u1":
        return Slot("", "uint8", (items, *([1] if len(axes) in (0, 2) else []), *axes), 0)
    wide = array.dtype == "<f8" and array.offset is not None
    return Slot("", "float64" if wide else "float32", (items, *(axes or [1])), 0)


def _targets(array: Found, tokens: bool) -> Slot:
    items, *axes = array.shape
    if array.kind in "iu":
        if axes not in ([], [1]) and not (tokens and len(axes) == 1):
            raise InputMissing(f"{array.where}: whole numbers of shape {array.shape}; class labels have one axis")
        return Slot("", "int64", array.shape if tokens and axes not in ([], [1]) else (items,), 0)
    if len(axes) > 1 or array.kind == "b":
        raise InputMissing(f"{array.where}: targets are {array.dtype} {array.shape}; expected labels (n,) or numbers (n, k)")
    return Slot("", "float32", (items, *(axes or [1])), 0)


def _load(found: Mapping[str, Found], tokens: bool, allocate: Allocate) -> Dataset:
    forms, task = _forms(found, tokens)
    mapped = {role: array for role, array in found.items() if _as_it_lies(array, forms[role])}
    files = list(dict.fromkeys(array.path for array in mapped.values()))
    own = lay_out({role: (form.dtype, form.shape) for role, form in forms.items() if role not in mapped})
    lying = [
        replace(forms[role], name=role, offset=array.offset or 0, file=1 + files.index(array.path))
        for role, array in mapped.items()
    ]
    slots = (*own, *lying)
    buffer = allocate(own[-1].end if own else 0)
    known = tuple(map(MappedFile.of, files))
    arrays = views(slots, buffer, *(file.mapped() for file in known))
    for slot in own:
        found[slot.name].read(arrays[slot.name])
    _check(found, arrays, mapped.keys() - _summed(mapped, dict(zip(files, known, strict=True))))
    vocabulary = max(int(array.max()) for array in arrays.values() if array.ndim > 1) + 1 if tokens else None
    numbers = arrays["targets"].shape[-1] if task == "regression" else vocabulary or 0
    outputs = _classes(arrays, found) if task == "classification" else numbers
    scale = 1 / 255 if forms["inputs"].dtype == "uint8" else 1.0
    prints = [digest(own, buffer, {"slots": repr(lying)}), *map(_sampled, known)]
    fingerprint = hashlib.sha256("\n".join(prints).encode()).hexdigest()
    return Card(slots, task, outputs, scale, fingerprint, vocabulary, files=known).attach(buffer)


def _as_it_lies(array: Found, form: Slot) -> bool:
    """Whether the numbers in the file are what is wanted, where a processor reads them gladly."""
    same = {"|u1": "uint8", "<f4": "float32", "<f8": "float64", "<i8": "int64"}.get(array.dtype)
    return same == form.dtype and array.offset is not None and array.offset % int(array.dtype[2:]) == 0


def _summed(mapped: Mapping[str, Found], files: Mapping[Path, MappedFile]) -> set[str]:
    """The mapped arrays with a checksum, in files that are read as a whole anyway; InputMissing where it is another."""
    summed = {role for role, array in mapped.items() if array.checksum and files[array.path].size <= _SAMPLES * _SAMPLE}
    for role in summed:
        first, end, expected = mapped[role].checksum or (0, 0, 0)
        if zlib.crc32(files[mapped[role].path].mapped()[first:end]) != expected:
            raise InputMissing(f"{mapped[role].where}: damaged: its CRC-32 is not what the file says")
    return summed


def _check(found: Mapping[str, Found], arrays: Mapping[str, NDArray[Any]], unread: Set[str]) -> None:
    """InputMissing for labels and tokens below 0, and for numbers that are none: in all targets, and in inputs that were read."""
    import numpy as np

    for role, array in arrays.items():
        if array.dtype == np.int64 and int(array.min()) < 0:
            item = int(np.argwhere(array < 0)[0][0])
            raise InputMissing(f"{found[role].where}: item {item} has the label {int(array[item].min())}; labels are 0 or more")
        if role not in unread or role.endswith("targets"):
            check_finite(array, found[role].where)


def _classes(arrays: Mapping[str, NDArray[Any]], found: Mapping[str, Found]) -> int:
    """Classes: the largest label of training and test items, plus one."""
    return classes([array for role, array in arrays.items() if role.endswith("targets")], found["targets"].where)


def _sampled(file: MappedFile) -> str:
    """SHA-256 (hex) over a file's size and blocks spread evenly over it: over all of it, if it is small."""
    content, total = file.mapped(), hashlib.sha256(str(file.size).encode())
    if file.size <= _SAMPLES * _SAMPLE:
        total.update(content)
    else:
        for index in range(_SAMPLES):
            start = index * (file.size - _SAMPLE) // (_SAMPLES - 1)
            total.update(content[start : start + _SAMPLE])
    return total.hexdigest()
