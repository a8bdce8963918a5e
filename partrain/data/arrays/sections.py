"""The `[dataset]` tables of arrays: `npz`, `npy`, `hdf5`, `idx` and `mnist`."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from partrain.data.augment import ImageChanges
from partrain.data.base import SelectsClasses
from partrain.data.fetch import File
from partrain.data.test_split import HasTestSplit
from partrain.tasks import Kind
from partrain.tasks.kinds import KINDS


class ArraySection(HasTestSplit, SelectsClasses, ImageChanges):
    """Keys of all data sets of arrays.

    Inputs (n, ...): bytes are scaled to [0, 1]; bytes of two axes are grey images (1, height, width); other numbers stay.
    Targets: integers (n,) are class labels, texts (n,) names of classes, other numbers (n,) or (n, k) values of a regression.
    Randomly drawn test items are copied into memory. The other items, and test items from the end, are not. With `classes` the
    items that stay are copied.
    """

    test_keys: ClassVar[tuple[str, ...]] = ("test_inputs", "test_targets")

    tokens: bool | list[str] = False
    """true: whole numbers are tokens, inputs (n, length). Targets of the same shape are the next token of each token. With
    several inputs: a list of the names of the token inputs."""
    standardise: bool | Literal["channel"] = False
    """true: subtract the mean and divide by the standard deviation, both of the training items: for each number of items (k),
    each of the k columns of items (steps, k), each channel of items (channels, ...). The arrays are then read into memory.
    `channel`: the same for each channel of images, batch by batch, so that bytes stay bytes in memory."""
    target_kind: Literal["auto", "number"] = "auto"
    """`number`: whole numbers (n,) are the targets of a regression. `auto`: they are class labels."""
    standardise_target: bool = True
    """Standardise each number of the targets of a regression in the same way. Losses are then in standardised units; answers and
    errors are in the units of the file."""

    def standardises(self, role: str, task: Kind) -> bool:
        """Return whether the array in a role is standardised. `test_inputs` are treated like `inputs`."""
        return (
            self.standardise_target and KINDS[task].targets == "numbers" if role.endswith("targets") else self.standardise is True
        )

    @model_validator(mode="after")
    def _numbers_to_standardise(self) -> ArraySection:
        if self.tokens and self.standardise:
            raise ValueError("`standardise` is for numbers, and `tokens` have no mean: keep one")
        if self.tokens and self.classes:
            raise ValueError("`classes` selects labels, and `tokens` are not labels: keep one")
        if self.target_kind == "number" and (other := "tokens" if self.tokens else "classes" if self.classes else ""):
            raise ValueError(f'`target_kind = "number"` makes the targets numbers, and `{other}` is for other targets: keep one')
        return self


class NamedArrays(ArraySection):
    """Arrays of one file, by name."""

    path: File
    """The file, relative to the job; or a URL with its digest, `https://host/file#sha256=...`."""
    inputs: str | list[str] = "inputs"
    """Name of the array of inputs (n, ...). A list names several inputs, which are the arguments of the network's `forward`."""
    targets: str = "targets"
    """Name of the array of targets."""
    test_inputs: str | list[str] = "test_inputs"
    """Name of the array of inputs of test items, or a list of names; with several inputs the default is `test_` before each name.
    If no array has the default name, there are no test items."""
    test_targets: str = "test_targets"
    """Name of the array of targets of test items."""
    sample_weight: str | None = None
    """Name of an array of weights (n,), 0 or more. In a pass each item occurs as often as its weight says, relative to the other
    items of the worker. Items that are held out or tested on all count equally."""
    offsets: str | None = None
    """For sequences of unequal length: name of an array of n + 1 numbers. Item i is `inputs[offsets[i]:offsets[i + 1]]`. partrain
    pads the items."""
    test_offsets: str | None = None
    """The same for test items; default: `test_` before the name in `offsets`."""

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
    """Arrays of a .npz file, by name. Arrays of `np.savez` are memory-mapped if they are aligned; others are read into memory."""

    kind: Literal["npz"]


class Hdf5(NamedArrays):
    """Datasets of an HDF5 file, by path. Contiguous ones are memory-mapped, so they may be larger than the memory."""

    kind: Literal["hdf5"]


class FilePerArray(ArraySection):
    """Arrays in separate files."""

    inputs: File
    """File of the inputs, relative to the job; or a URL with its digest, `https://host/file#sha256=...`."""
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
    """Arrays in .npy files, one file for each. They are memory-mapped, so they may be larger than the memory."""

    kind: Literal["npy"]


class Idx(FilePerArray):
    """IDX files, the format of MNIST, plain or gzipped. They are read into memory. Inputs of two axes are grey images (1, height, width)."""

    kind: Literal["idx"]


class Mnist(ArraySection):
    """The MNIST digits of this repository: 60,000 training and 10,000 test images, float32 (1, 28, 28) in [0, 1], labels 0-9.

    The files are in `datasets/mnist` of a checkout, or of the current folder.
    """

    name: Literal["mnist"]
