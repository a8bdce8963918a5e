"""The `[dataset]` tables of arrays: `npz`, `npy` and `hdf5`. What has the right form on the disk is mapped there, not read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import model_validator

from partrain.data.arrays.files import ArraySource, chosen, hdf5, npy, npz
from partrain.data.arrays.forms import ROLES, Forms, _forms
from partrain.data.base import Allocate, Dataset, DatasetSpec, Training, WrongSetting
from partrain.data.fetch import File, place
from partrain.data.test_split import HasTestSplit


class ArraySection(HasTestSplit):
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
    def found(self, folder: Path) -> dict[str, ArraySource]:
        """The arrays by role."""

    def facts(self, folder: Path) -> DatasetSpec:
        forms = self.forms(self.found(folder))
        slots, tests = forms.slots, forms.tests
        width = slots["targets"].shape[1] if forms.task == "regression" else None
        known = slots["test_inputs"].shape[0] if "test_inputs" in slots else tests
        return DatasetSpec(slots["inputs"].shape[0] - tests, known, slots["inputs"].shape[1:], forms.task, width, self.tokens)

    def load(self, folder: Path, allocate: Allocate, training: Training) -> Dataset:
        from partrain.data.arrays import load

        return load.load(self, self.found(folder), allocate, training)

    def forms(self, found: Mapping[str, ArraySource]) -> Forms:
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
    def within(self, path: Path) -> dict[str, ArraySource]:
        """What the file holds."""

    def found(self, folder: Path) -> dict[str, ArraySource]:
        path = place(self.path, folder)
        held = self.within(path)
        default = not {"test_inputs", "test_targets"} & self.model_fields_set
        roles = ROLES[:2] if default and not {self.test_inputs, self.test_targets} & held.keys() else ROLES
        return {role: chosen(held, getattr(self, role), path, role) for role in roles}


class Npz(_Named):
    """Arrays of a .npz file, by name; those of `np.savez` are mapped, if they begin at a multiple of their numbers' width."""

    kind: Literal["npz"]

    def within(self, path: Path) -> dict[str, ArraySource]:
        return npz(path)


class Hdf5(_Named):
    """Datasets of an HDF5 file, by path; contiguous ones are mapped, so they may be larger than the memory."""

    kind: Literal["hdf5"]

    def within(self, path: Path) -> dict[str, ArraySource]:
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

    def found(self, folder: Path) -> dict[str, ArraySource]:
        return {role: npy(place(path, folder)) for role in ROLES if (path := getattr(self, role))}
