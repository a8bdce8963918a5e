"""What every data set comes to: facts that headers tell, a small info, and arrays that are views of one buffer.

Nothing here imports torch; numpy only once numbers are read.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import Field

from partrain.config.section import Section
from partrain.errors import BadJob, InputMissing
from partrain.system.memory import memory_limits
from partrain.tasks import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

WIDTHS = {"uint8": 1, "int32": 4, "int64": 8, "float32": 4, "float64": 8}
"""Bytes of a number of each type."""
Allocate = Callable[[int], memoryview]
"""Gives a writable, contiguous buffer of so many bytes."""
_BLOCK = 1 << 14
"""Items looked at together."""


class WrongSetting(BadJob):
    """A key of the `[dataset]` table that does not go with what its files hold."""

    def __init__(self, key: str, problem: str, advice: str) -> None:
        super().__init__(f"[dataset] {problem}; {advice}")
        self.key, self.problem, self.advice = key, problem, advice


@contextmanager
def reading(path: Path, damage: str = "", *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of reading a file into InputMissing, one line that names the file.

    Args:
        path: The file.
        damage: Words before the message of an exception of `kinds`.
        kinds: Exceptions of the file's format: its content is damaged.
    """
    try:
        yield
    except OSError as error:
        raise InputMissing(f"{path}: {os.strerror(error.errno) if error.errno else error}") from None
    except kinds as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputMissing(f"{path}: {damage}: {reason}" if damage else f"{path}: {reason}") from None


class Training(Protocol):
    """Which items are trained on: what is learnt from data is learnt from these alone."""

    def __call__(self, items: int, labels: NDArray[Any] | None = None, gap: int | None = None) -> NDArray[Any]:
        """Their indices, of so many `items`; which are held out may depend on the `labels` (n,) of all, or on a `gap` (see `DatasetInfo`)."""


class DataSection(Section):
    """A `[dataset]` table: what every data set has."""

    validation: int = Field(0, ge=0)
    """Items kept out of training to judge the mixed network."""
    stratify: bool = False
    """Hold out each class in proportion, to within one item."""


@dataclass(frozen=True)
class DatasetSpec:
    """What is known of a data set before it is loaded."""

    items: int
    """Training items, those still to be held out included."""
    test_items: int
    shape: tuple[int, ...]
    """Shape of one input."""
    task: Kind
    outputs: int | None
    """Classes, numbers per target, or tokens of the vocabulary; None where only reading everything tells."""
    tokens: bool = False
    """Items are tokens, not numbers."""


@dataclass(frozen=True)
class ArrayField:
    """Where one array lies in the buffer."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    """Bytes from the buffer's beginning; a multiple of the type's width, and of 64 where we lay it out."""
    strides: tuple[int, ...] | None = None
    """Bytes from one number to the next along each axis; None: one behind the other. Windows over a series overlap."""
    file: int = 0
    """Where it lies: 0 is the buffer, i the i-th file of the info; `offset` counts from the beginning there."""

    def __repr__(self) -> str:
        """Return the text that fingerprints hash: it begins with the first name of this class."""
        return f"Slot({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    @property
    def end(self) -> int:
        """Bytes from the buffer's beginning to the array's end."""
        width = WIDTHS[self.dtype]
        if self.strides is None or not all(self.shape):
            return self.offset + math.prod(self.shape) * width
        return self.offset + width + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))


@dataclass(frozen=True)
class MappedFile:
    """A file that is mapped as it lies on the disk, by each process for itself: only what is read takes memory."""

    path: str
    size: int
    changed: int
    """Nanoseconds since 1970: a file that was written to is another one."""

    @classmethod
    def of(cls, path: Path) -> MappedFile:
        """The file as it is now; InputMissing if there is none."""
        with reading(path):
            found = path.stat()
        return cls(str(path.absolute()), found.st_size, found.st_mtime_ns)

    def mapped(self) -> memoryview:
        """Its bytes; what is written to them stays with this process. InputMissing if it is not what it was."""
        if MappedFile.of(Path(self.path)) != self:
            raise InputMissing(f"{self.path}: was changed while it was in use")
        if not self.size:
            return memoryview(b"")
        # Without a reservation: a private map of a file larger than the memory would be refused.
        flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0x4000)
        try:
            with open(self.path, "rb") as file:
                return memoryview(mmap.mmap(file.fileno(), self.size, flags, mmap.PROT_READ | mmap.PROT_WRITE))
        except OSError as error:
            raise InputMissing(f"{self.path}: cannot be mapped: {error.strerror}") from None


@dataclass(frozen=True)
class DatasetInfo:
    """A data set without its numbers: small, can be pickled; with the buffer it is the data set again."""

    slots: tuple[ArrayField, ...]
    task: Kind
    outputs: int
    """Classes, numbers per target, or tokens of the vocabulary."""
    scale: float
    """What inputs are to be multiplied by, as float32: 1/255 for bytes (a quarter of the memory and of the traffic), else 1."""
    fingerprint: str
    """SHA-256 (hex) over the content."""
    vocabulary: int | None = None
    """Items are tokens, whole numbers below this; None: they are numbers of any kind."""
    gap: int | None = None
    """Items follow one another in time: the last ones are held out, and so many before them overlap with both sides; None: they do not."""
    codec: Mapping[str, Any] = field(default_factory=dict)
    """How items were made of what the files say (columns, names of classes, means and deviations): JSON, kept in checkpoints."""
    files: tuple[MappedFile, ...] = ()
    """What is mapped where it lies, beside the buffer."""

    def open(self, buffer: memoryview) -> Dataset:
        """The data set whose numbers lie in `buffer`; nothing is copied."""
        arrays = views(self.slots, buffer, *(file.mapped() for file in self.files))
        return Dataset(
            **vars(self),
            inputs=arrays["inputs"],
            targets=arrays["targets"],
            test_inputs=arrays.get("test_inputs"),
            test_targets=arrays.get("test_targets"),
            rows=arrays.get("rows"),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Dataset(DatasetInfo):
    """A data set in memory: its info, and arrays that are views of one buffer."""

    inputs: NDArray[Any]
    """(n, *shape) uint8 or floating point, times `scale` what the network sees; or int64 tokens."""
    targets: NDArray[Any]
    """(n,) int64 class labels, (n, outputs) float32, or (n, length) int64 tokens."""
    test_inputs: NDArray[Any] | None
    test_targets: NDArray[Any] | None
    rows: NDArray[Any] | None = None
    """(items,) int64, increasing: which of `inputs` and `targets` are items to train on or to hold out, where test items were drawn
    from among them and those that stay lie in a file as they were; None: all are."""

    @property
    def items(self) -> int:
        """Items to train on or to hold out."""
        return len(self.inputs if self.rows is None else self.rows) - (self.gap or 0)

    @property
    def item_targets(self) -> NDArray[Any]:
        """The targets (items, ...) of these, the ones in a `gap` among them: a copy where there are `rows`."""
        return self.targets if self.rows is None else self.targets[self.rows]

    @property
    def spec(self) -> DatasetSpec:
        """What is known of it now."""
        tests = 0 if self.test_inputs is None else len(self.test_inputs)
        return DatasetSpec(self.items, tests, self.inputs.shape[1:], self.task, self.outputs, self.vocabulary is not None)

    @property
    def info(self) -> DatasetInfo:
        """What another process needs besides the buffer."""
        return DatasetInfo(**{one.name: getattr(self, one.name) for one in fields(DatasetInfo)})


def lay_out(arrays: Mapping[str, tuple[str, tuple[int, ...]]]) -> tuple[ArrayField, ...]:
    """Places for arrays, given as (dtype, shape) by name, one after the other in one buffer, each at a cache line's beginning."""
    slots: list[ArrayField] = []
    for name, (dtype, shape) in arrays.items():
        slots.append(ArrayField(name, dtype, shape, -(-slots[-1].end // 64) * 64 if slots else 0))
    return tuple(slots)


def views(slots: tuple[ArrayField, ...], *buffers: memoryview) -> dict[str, NDArray[Any]]:
    """The arrays that lie in the buffer and the files behind it, by name."""
    import numpy as np

    return {
        slot.name: np.ndarray(slot.shape, slot.dtype, buffers[slot.file][slot.offset : slot.end], strides=slot.strides)
        for slot in slots
    }


def require_memory(size: int, where: str) -> None:
    """InputMissing where so many bytes would not fit into memory."""
    free = memory_limits().free
    if size > free:
        wanted, there = size / 2**30, free / 2**30
        message = f"{where}: its numbers need {wanted:,.1f} GiB of memory, and {there:,.1f} GiB are free"
        raise InputMissing(f'{message}; `partrain data convert` writes a file that kind = "mapped" leaves on the disk')


def first_bad(bad: NDArray[Any]) -> tuple[int, str]:
    """The first item (first axis) of which something is bad; and where within it, in words, if it holds more than one number."""
    import numpy as np

    item, *inner = map(int, np.unravel_index(int(bad.argmax()), bad.shape))
    return item, f", at {inner}" if math.prod(bad.shape[1:]) > 1 else ""


def check_finite(numbers: NDArray[Any], where: str) -> None:
    """InputMissing for the first item (first axis) that holds a number that is none."""
    import numpy as np

    if numbers.dtype.kind != "f":
        return
    for first in range(0, len(numbers), _BLOCK):
        part = numbers[first : first + _BLOCK]
        if not (fine := np.isfinite(part)).all():
            item, at = first_bad(~fine)
            raise InputMissing(f"{where}: item {first + item} holds a number that is not finite{at}")


def count_classes(targets: Sequence[NDArray[Any]], where: str) -> int:
    """Classes of label arrays (n,): the largest label plus one. InputMissing where that cannot be meant."""
    count, items = 1 + max(int(array.max()) for array in targets), sum(map(len, targets))
    if count < 2:
        raise InputMissing(f"{where}: all {items:,} items have the label 0: there is nothing to tell apart")
    if count > max(1000, items):
        raise InputMissing(
            f"{where}: the largest label is {count - 1:,}, of {items:,} items; labels are to run from 0 on: number them so"
        )
    return count


def fingerprint_of(slots: tuple[ArrayField, ...], buffer: memoryview, codec: Mapping[str, Any] | None = None) -> str:
    """SHA-256 (hex) over what lies in a buffer, where, and how it was made."""
    total = hashlib.sha256(json.dumps(codec or {}, sort_keys=True).encode())
    for slot in slots:
        total.update(repr(slot).encode())
        total.update(buffer[slot.offset : slot.end])
    return total.hexdigest()
