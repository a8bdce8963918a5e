"""The `[dataset]` tables of arrays: `npz`, `npy`, `hdf5`, `idx` and `mnist`."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from partrain.data.base import SelectsClasses
from partrain.data.fetch import File
from partrain.data.test_split import HasTestSplit


class ArraySection(HasTestSplit, SelectsClasses):
    """Keys of all data sets of arrays.

    Inputs (n, ...): bytes are scaled to [0, 1]; bytes of two axes are grey images (1, height, width); other numbers stay.
    Targets: integers (n,) are class labels, texts (n,) names of classes, other numbers (n,) or (n, k) values of a regression.
    Test items that are drawn are copied into memory; the others are not, nor are test items from the end. Under `classes` the items
    that stay are copied.
    """

    test_keys: ClassVar[tuple[str, ...]] = ("test_inputs", "test_targets")

    tokens: bool = False
    """Integers are tokens: inputs (n, length), and targets of that shape, the next token of each."""
    standardise: bool = False
    """Inputs minus their mean, divided by their standard deviation, of the training items: each number of items (k), each of the
    k of items (steps, k), each channel of items (channels, ...). They are read into memory."""
    standardise_target: bool = False
    """The same for each number of the targets of a regression; losses are then in these units."""

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
    inputs: str = "inputs"
    targets: str = "targets"
    test_inputs: str = "test_inputs"
    """Inputs of test items; they may be missing under the default names."""
    test_targets: str = "test_targets"


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
    test_inputs: File | None = None
    test_targets: File | None = None

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
