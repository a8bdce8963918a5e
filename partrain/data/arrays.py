"""The `[dataset]` tables of arrays: `npz`, `npy` and `hdf5`. What has the right form on the disk is mapped there, not read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import model_validator

from partrain.data.base import Allocate, Dataset, Facts, Slot, Training, WrongSetting
from partrain.data.fetch import File, place
from partrain.data.npy import Found, chosen, hdf5, npy, npz
from partrain.data.tested import Tested
from partrain.errors import InputMissing
from partrain.tasks import Kind

ROLES = ("inputs", "targets", "test_inputs", "test_targets")


@dataclass(frozen=True)
class Forms:
    """What the arrays of files become."""

    slots: dict[str, Slot]
    """Each array by role, its place left open."""
    task: Kind
    """What the items are made for."""
    tests: int
    """How many items are split off as test items."""


class ArraySection(Tested):
    """What data sets of arrays have.

    Inputs (n, ...): bytes are scaled to [0, 1], those of two axes being grey images (1, height, width); other numbers stay as they
    are. Targets: whole numbers (n,) are class labels, texts (n,) names of classes, other numbers (n,) or (n, k) what a regression is
    to give. Test items that are drawn are copied into memory, the others stay where they are; the last ones are not copied either.
    """

    tests_by: ClassVar[tuple[str, ...]] = ("test_inputs", "test_targets")

    tokens: bool = False
    """Whole numbers are tokens: inputs (n, length), and targets of that shape the next token of each."""
    standardise: bool = False
    """Inputs less their mean, divided by their standard deviation, both of the items trained on: each number of items (k), each of the
    k of items (steps, k), each channel of items (channels, ...). They are read into memory."""
    standardise_target: bool = False
    """Likewise each number of the targets of a regression; losses are in these units then."""

    @model_validator(mode="after")
    def _numbers_to_standardise(self) -> ArraySection:
        if self.tokens and self.standardise:
            raise ValueError("`standardise` is for numbers, and `tokens` have no mean: keep one")
        return self

    @abstractmethod
    def found(self, folder: Path) -> dict[str, Found]:
        """The arrays by role."""

    def facts(self, folder: Path) -> Facts:
        forms = self.forms(self.found(folder))
        slots, tests = forms.slots, forms.tests
        width = slots["targets"].shape[1] if forms.task == "regression" else None
        known = slots["test_inputs"].shape[0] if "test_inputs" in slots else tests
        return Facts(slots["inputs"].shape[0] - tests, known, slots["inputs"].shape[1:], forms.task, width, self.tokens)

    def load(self, folder: Path, allocate: Allocate, training: Training) -> Dataset:
        from partrain.data import loading

        return loading.load(self, self.found(folder), allocate, training)

    def forms(self, found: Mapping[str, Found]) -> Forms:
        """What the arrays become; InputMissing where they do not go together, WrongSetting where these settings do not go with them."""
        slots, task = _forms(found, self.tokens)
        inputs = found["inputs"]
        if self.splitting and "test_inputs" in found:
            problem = f"`{self.splitting}` splits test items off, but there are some already: {found['test_inputs'].where}"
            raise WrongSetting(self.splitting, problem, "remove it")
        if self.standardise and slots["inputs"].dtype == "uint8":
            problem = f"`standardise` is for other numbers than bytes, which are scaled to [0, 1]: {inputs.where}"
            raise WrongSetting("standardise", problem, "remove it, or write them as float32")
        if self.standardise_target and task != "regression":
            problem = f"`standardise_target` is for numbers, but these targets are for {task}: {found['targets'].where}"
            raise WrongSetting("standardise_target", problem, "remove it")
        items = slots["inputs"].shape[0]
        return Forms(slots, task, self.tests_among(items, inputs.where, "items") if self.splitting else 0)


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
        if unfit := array.unfit(role):
            raise InputMissing(f"{array.where}: holds {unfit}; arrays of numbers can be used")
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
        if (found[role].texts is None) != (found[role.removeprefix("test_")].texts is None):
            raise InputMissing(f"{found[role].where}: of texts and numbers, its labels are one and those for training the other")
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
    if array.texts is not None:
        if axes not in ([], [1]) or tokens:
            what = "tokens are whole numbers (n, length)" if tokens else "names of classes have one axis"
            raise InputMissing(f"{array.where}: texts of shape {array.shape}; {what}")
        return Slot("", "int64", (items,), 0)
    if array.kind in "iu":
        if axes not in ([], [1]) and not (tokens and len(axes) == 1):
            raise InputMissing(f"{array.where}: whole numbers of shape {array.shape}; class labels have one axis")
        return Slot("", "int64", array.shape if tokens and axes not in ([], [1]) else (items,), 0)
    if len(axes) > 1 or array.kind == "b":
        raise InputMissing(f"{array.where}: targets are {array.dtype} {array.shape}; expected labels (n,) or numbers (n, k)")
    return Slot("", "float32", (items, *(axes or [1])), 0)
