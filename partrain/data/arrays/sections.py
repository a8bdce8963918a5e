"""The `[dataset]` tables of arrays: `npz`, `npy`, `hdf5`, `idx` and `mnist`."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from partrain.data.augment import ImageChanges
from partrain.data.base import SelectsClasses
from partrain.data.fetch import File
from partrain.data.test_split import HasTestSplit
from partrain.tasks import Kind


class ArraySection(HasTestSplit, SelectsClasses, ImageChanges):
    """Keys of all data sets of arrays.

    Inputs (n, ...): bytes are scaled to [0, 1]; bytes of two axes are grey images (1, height, width); other numbers stay.
    Targets: integers (n,) are class labels, texts (n,) names of classes, other numbers (n,) or (n, k) values of a regression.
    Test items that are drawn are copied into memory; the others are not, nor are test items from the end. Under `classes` the items
    that stay are copied.
    """

    test_keys: ClassVar[tuple[str, ...]] = ("test_inputs", "test_targets")

    tokens: bool | list[str] = False
    """Integers are tokens: inputs (n, length), and targets of that shape, the next token of each. Of several inputs: names of those."""
    standardise: bool | Literal["channel"] = False
    """`channel`: as below, of images; bytes stay bytes in memory, and each batch is standardised. true: inputs minus their mean, divided by their standard deviation, of the training items: each number of items (k), each of the
    k of items (steps, k), each channel of items (channels, ...). They are read into memory."""
    standardise_target: bool = True
    """The same for each number of the targets of a regression; losses are then in these units, answers and errors in those of the
    file."""

    def standardises(self, role: str, task: Kind) -> bool:
        """Tell if the array in a role is standardised: as test items are like training items, so are `test_inputs` like `inputs`."""
        return self.standardise_target and task == "regression" if role.endswith("targets") else self.standardise is True

    @model_validator(mode="after")
    def _numbers_to_standardise(self) -> ArraySection:
        if self.tokens and self.standardise:
            raise ValueError("`standardise` is for numbers, and `tokens` have no mean: keep one")
        if self.tokens and self.classes:
            raise ValueError("`classes` selects labels, and `tokens` are none: keep one")
        return self


class NamedArrays(ArraySection):
    """Arrays of one file, by name."""

    path: File
    """The file, relative to the job."""
    inputs: str | list[str] = "inputs"
    """A list: several inputs (n, ...), the arguments of the network's `forward` by these names."""
    targets: str = "targets"
    """Array of the targets."""
    test_inputs: str | list[str] = "test_inputs"
    """Inputs of test items; they may be missing under the default names, which of several are theirs behind `test_`."""
    test_targets: str = "test_targets"
    """Array of the targets of test items."""
    offsets: str | None = None
    """Array (n + 1,): items of unequal length lie behind one another, item i from offsets[i] to offsets[i + 1]. They are padded."""
    test_offsets: str | None = None
    """The same of test items; default: the array `test_` and the name in `offsets`."""

    @model_validator(mode="after")
    def _inputs_that_go_together(self) -> Self:
        several = isinstance(self.inputs, list)
        if several and not self.inputs:
            raise ValueError("`inputs` is an empty list: name at least one array")
        if "test_inputs" in self.model_fields_set and several != isinstance(self.test_inputs, list):
            raise ValueError("`inputs` and `test_inputs` are both one name or both a list of as many names")
        if several and isinstance(self.test_inputs, list) and len(self.test_inputs) != len(self.inputs):
            raise ValueError("`test_inputs` names another number of arrays than `inputs`")
        if several and self.offsets:
            raise ValueError("`offsets` is for one input, and `inputs` names several: keep one")
        if self.test_offsets and not self.offsets:
            raise ValueError("`test_offsets` has no effect without `offsets`")
        if several and self.tokens is True:
            raise ValueError('`tokens`: of several inputs, name those that are tokens: tokens = ["text"], say')
        if not several and isinstance(self.tokens, list):
            raise ValueError("`tokens` is true or false where there is one input")
        if self.standardise and (several or self.offsets):
            raise ValueError("`standardise` is for one input of one shape: remove it")
        return self

    @property
    def test_names(self) -> str | list[str]:
        """Names of the inputs of test items."""
        default = isinstance(self.inputs, list) and "test_inputs" not in self.model_fields_set
        return [f"test_{name}" for name in self.inputs] if default else self.test_inputs


class Npz(NamedArrays):
    """Arrays of a .npz file, by name. Those of `np.savez` are memory-mapped where they are aligned."""

    kind: Literal["npz"]


class Hdf5(NamedArrays):
    """Datasets of an HDF5 file, by path. Contiguous ones are memory-mapped, so they may be larger than the memory."""

    kind: Literal["hdf5"]


class FilePerArray(ArraySection):
    """Arrays in files of their own."""

    inputs: File
    """File of the inputs, relative to the job."""
    targets: File
    """File of the targets."""
    test_inputs: File | None = None
    """File of the inputs of test items."""
    test_targets: File | None = None
    """File of the targets of test items."""

    @model_validator(mode="after")
    def _test_pair(self) -> Self:
        if (self.test_inputs is None) != (self.test_targets is None):
            raise ValueError("test_inputs and test_targets go together")
        return self


class Npy(FilePerArray):
    """Arrays in .npy files of their own. They are memory-mapped, so they may be larger than the memory."""

    kind: Literal["npy"]


class Idx(FilePerArray):
    """IDX files, plain or gzipped, which are read into memory. Inputs of two axes are grey images (1, height, width)."""

    kind: Literal["idx"]


class Mnist(ArraySection):
    """The embedded MNIST digits: 60,000 training and 10,000 test images, float32 (1, 28, 28) in [0, 1], labels 0-9."""

    name: Literal["mnist"]
