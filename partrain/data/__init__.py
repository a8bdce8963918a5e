"""Data sets: the `[dataset]` table and what it loads.

Two steps keep big data in one place. `load` asks its caller for one buffer (shared memory, say) and reads everything straight into
it; the `Card` it comes with is small, and `card.attach(buffer)` is the same data set in any process that has the buffer mapped.
`facts` and `training_items` read headers only. Nothing here imports torch; numpy only once numbers are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from partrain.section import Section

if TYPE_CHECKING:
    from numpy.typing import NDArray

DataTask = Literal["classification", "regression"]
Allocate = Callable[[int], memoryview]
"""Gives a writable, contiguous buffer of so many bytes."""


class _Held(Section):
    """What every data set has: items held out of training."""

    validation: int = Field(0, ge=0)
    """Items kept out of training to judge the mixed network."""


class Mnist(_Held):
    """The embedded MNIST digits: 60,000 training and 10,000 test images, float32 (1, 28, 28) in [0, 1], labels 0-9."""

    name: Literal["mnist"]


class Idx(_Held):
    """IDX files, plain or gzipped: inputs and targets, and optionally a test set."""

    kind: Literal["idx"]
    inputs: str
    """File of the inputs, relative to the job; bytes are scaled to [0, 1]. Items of two axes are grey images (1, height, width)."""
    targets: str
    """File of the targets; integers are class labels, other numbers are what a regression is to give."""
    test_inputs: str | None = None
    test_targets: str | None = None

    @model_validator(mode="after")
    def _test_pair(self) -> Idx:
        if (self.test_inputs is None) != (self.test_targets is None):
            raise ValueError("test_inputs and test_targets go together")
        return self


class Synthetic(_Held):
    """Generated items, for demonstrations and tests."""

    kind: Literal["synthetic"]
    function: Literal["sine", "seeds", "blobs", "xor"]
    """`sine`: y = sin(x) on [-pi, pi]; `seeds`: the function the older trainers were measured on; `blobs`: Gaussian classes; `xor`: noisy XOR of two bits."""
    items: int = Field(5000, ge=2, le=10**8)
    test_items: int = Field(0, ge=0, le=10**8)
    features: int = Field(2, ge=1, le=10**5)
    """Inputs of each item (`blobs` only)."""
    classes: int = Field(3, ge=2, le=10**4)
    """Classes (`blobs` only)."""
    noise: float = Field(0.1, ge=0)
    """Standard deviation of the noise (`blobs`, `xor` and `sine`)."""

    @model_validator(mode="after")
    def _only_what_counts(self) -> Synthetic:
        idle = {"blobs": [], "seeds": ["features", "classes", "noise"]}.get(self.function, ["features", "classes"])
        if given := [key for key in idle if key in self.model_fields_set]:
            raise ValueError(f'{" and ".join(given)} would have no effect: function = "{self.function}" has no such setting')
        return self


def _which(table: Any) -> str | None:
    """The tag of a `[dataset]` table, given as a table or as a section."""
    for key in ("kind", "name"):
        value = table.get(key) if isinstance(table, dict) else getattr(table, key, None)
        if value is not None:
            return str(value)
    return None


DatasetSection = Mnist | Idx | Synthetic
AnyDataset = Annotated[
    Annotated[Mnist, Tag("mnist")] | Annotated[Idx, Tag("idx")] | Annotated[Synthetic, Tag("synthetic")],
    Discriminator(_which),
]


@dataclass(frozen=True)
class Facts:
    """What is known of a data set before it is loaded."""

    items: int
    """Training items, those still to be held out included."""
    test_items: int
    shape: tuple[int, ...]
    """Shape of one input."""
    task: DataTask
    outputs: int | None
    """Classes, or numbers per regression target; None where only reading all labels tells."""


@dataclass(frozen=True)
class Slot:
    """Where one array lies in the buffer."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    """Bytes from the buffer's beginning; a multiple of 64."""

    @property
    def end(self) -> int:
        """Bytes from the buffer's beginning to the array's end."""
        width = {"uint8": 1, "float32": 4, "int64": 8}[self.dtype]
        return self.offset + math.prod(self.shape) * width


@dataclass(frozen=True)
class Card:
    """A data set without its numbers: small, can be pickled; with the buffer it is the data set again."""

    slots: tuple[Slot, ...]
    task: DataTask
    outputs: int
    """Classes, or numbers per regression target."""
    scale: float
    """What inputs are to be multiplied by, as float32: 1/255 for bytes (a quarter of the memory and of the traffic), else 1."""
    fingerprint: str
    """SHA-256 (hex) over the content."""

    def attach(self, buffer: memoryview) -> Dataset:
        """The data set whose numbers lie in `buffer`; nothing is copied."""
        arrays = views(self.slots, buffer)
        return Dataset(
            **vars(self),
            inputs=arrays["inputs"],
            targets=arrays["targets"],
            test_inputs=arrays.get("test_inputs"),
            test_targets=arrays.get("test_targets"),
        )


@dataclass(frozen=True, eq=False)
class Dataset(Card):
    """A data set in memory: its card, and arrays that are views of one buffer."""

    inputs: NDArray[Any]
    """(n, *shape) uint8 or float32; times `scale` they are what the network sees."""
    targets: NDArray[Any]
    """(n,) int64 class labels, or (n, outputs) float32."""
    test_inputs: NDArray[Any] | None
    test_targets: NDArray[Any] | None

    @property
    def card(self) -> Card:
        """What another process needs besides the buffer."""
        return Card(self.slots, self.task, self.outputs, self.scale, self.fingerprint)


def lay_out(arrays: Mapping[str, tuple[str, tuple[int, ...]]]) -> tuple[Slot, ...]:
    """Places for arrays, given as (dtype, shape) by name, one after the other in one buffer, each at a cache line's beginning."""
    slots: list[Slot] = []
    for name, (dtype, shape) in arrays.items():
        slots.append(Slot(name, dtype, shape, -(-slots[-1].end // 64) * 64 if slots else 0))
    return tuple(slots)


def views(slots: tuple[Slot, ...], buffer: memoryview) -> dict[str, NDArray[Any]]:
    """The arrays that lie in `buffer`, by name."""
    import numpy as np

    return {slot.name: np.frombuffer(buffer[slot.offset : slot.end], slot.dtype).reshape(slot.shape) for slot in slots}


def facts(section: DatasetSection, folder: Path) -> Facts:
    """What headers and settings tell about a data set; fast, without numpy.

    Args:
        section: The `[dataset]` table.
        folder: Where its relative paths start from: the job's folder.

    Raises:
        InputMissing: a file is missing, or its header is damaged or does not fit the others.
    """
    if isinstance(section, Synthetic):
        return _generated(section)
    from partrain.data import idx

    known = idx.facts(idx.files_of(section, folder))
    return Facts(known.items, known.test_items, known.shape, known.task, 10) if isinstance(section, Mnist) else known


def _generated(section: Synthetic) -> Facts:
    items, tests = section.items, section.test_items
    match section.function:
        case "blobs":
            return Facts(items, tests, (section.features,), "classification", section.classes)
        case "xor":
            return Facts(items, tests, (2,), "classification", 2)
    return Facts(items, tests, (1,), "regression", 1)


def training_items(section: DatasetSection, folder: Path) -> int:
    """Training items before validation items are split off; as fast as `facts`, and raises the same."""
    return facts(section, folder).items


def load(section: DatasetSection, folder: Path, allocate: Allocate | None = None) -> Dataset:
    """Read or generate a data set, all its arrays in one buffer.

    The same for every job seed, synthetic data included: runs that differ in their seed are to differ in initial weights and order
    of items, and to be judged on the same problem.

    Args:
        section: The `[dataset]` table.
        folder: Where its relative paths start from: the job's folder.
        allocate: Called once, for a writable buffer that will hold everything; default: ordinary memory of this process.

    Raises:
        InputMissing: a file is missing, damaged, or does not fit the others.
    """
    allocate = allocate or (lambda size: memoryview(bytearray(size)))
    if isinstance(section, Synthetic):
        from partrain.data import synthetic

        return synthetic.load(section, allocate)
    from partrain.data import idx

    return idx.load(idx.files_of(section, folder), idx.known_sums(section), allocate)
