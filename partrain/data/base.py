"""Parts of every data set: the spec derived from headers, a small info, and arrays that are views of one buffer.

Nothing here imports torch; numpy is imported only once numbers are read.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol, Self

from pydantic import Field, PlainValidator, field_validator, model_validator

from partrain.byte_layout import InputPart, of_unequal_lengths, offsets, view
from partrain.config.problems import Finding, WrongValue
from partrain.config.section import Section
from partrain.data.folds import Fold, HeldOut, held_out_count
from partrain.errors import InputMissing
from partrain.preprocess.cells import Class
from partrain.system.memory import memory_limits
from partrain.tasks import KINDS, Kind
from partrain.tasks.kinds import TaskKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

WIDTHS = {"uint8": 1, "int32": 4, "int64": 8, "float32": 4, "float64": 8}
"""Bytes of a number of each type."""
WEIGHTS = "sample_weight"
"""Key and array of the weights of items."""
HELD_OUT = "held_out"
"""Array of the items that the data set itself holds out."""
GROUP = "group"
"""Key and array of the groups of items."""
Allocate = Callable[[int], memoryview]
"""Function that returns a writable, contiguous buffer of the given size in bytes. A second call replaces the first buffer."""
RENUMBER = "`np.unique(targets, return_inverse=True)[1]`"
"""The expression that numbers labels from 0."""
MAX_LABELS = 10
"""Maximum number of labels in a message."""
_BLOCK = 1 << 20
"""Numbers processed at a time."""


class WrongSetting(WrongValue):
    """A key of the `[dataset]` table contradicts the content of its files."""

    def __init__(self, key: str, problem: str, advice: str) -> None:
        super().__init__(Finding(("dataset", key), problem, advice, at="key"), prefix="[dataset]")


class WrongContent(InputMissing):
    """Faults in the content of a data file, each with the `[dataset]` keys that it concerns, the likeliest first."""

    def __init__(self, *faults: tuple[Sequence[str], str]) -> None:
        super().__init__("; ".join(message for _, message in faults))
        self.faults = faults


@contextmanager
def reading(path: Path, damage: str = "", *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of reading a file into InputMissing: one line that names the file.

    Args:
        path: The file.
        damage: Words before the message of an exception of `kinds`.
        kinds: Exceptions specific to the file's format: its content is damaged.
    """
    try:
        yield
    except OSError as error:
        raise InputMissing(f"{path}: {os.strerror(error.errno) if error.errno else error}") from None
    except kinds as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputMissing(f"{path}: {damage}: {reason}" if damage else f"{path}: {reason}") from None


class Training(Protocol):
    """Selection of the training items. Everything learnt from data (means, say) is learnt from these items alone."""

    def __call__(
        self, items: int, labels: NDArray[Any] | None = None, gap: int | None = None, groups: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Return the indices of the training items among `items`.

        They may depend on the `labels` and `groups` (n,) of all items, or on a `gap`.
        """


class DataSection(Section):
    """Keys of every `[dataset]` table."""

    validation: int = Field(0, ge=0)
    """Number of items to hold out of training. partrain judges the mixed network on them."""
    stratify: bool = False
    """Take each class in proportion, to within one item, for held-out items and for test items that are split off."""
    fold: str | None = None
    """Fold to hold out, instead of `validation`: "2/5" is the second of five parts of the items. `[sweep] k_folds`
    trains all folds."""

    @field_validator("fold")
    @classmethod
    def _fold_exists(cls, value: str | None) -> str | None:
        if value is not None:
            Fold.parse(value)
        return value

    @model_validator(mode="after")
    def _one_way_to_hold_out(self) -> Self:
        if self.fold and self.validation:
            raise ValueError("`fold` and `validation` both choose the held-out items: remove one of them")
        return self

    @property
    def held_out(self) -> HeldOut:
        """The choice of held-out items."""
        return Fold.parse(self.fold) if self.fold else self.validation

    @property
    def holds_out(self) -> bool:
        """True if items are held out."""
        return bool(self.held_out)


class HasValidationPath(DataSection):
    """The key of data sets whose held-out items may come from a separate file or folder."""

    validation_path: str | None = None

    @model_validator(mode="after")
    def _one_choice_of_held_out_items(self) -> Self:
        in_time = getattr(self, "in_time", False) and ("time" if getattr(self, "time", None) else "test_from")
        if self.validation_path is not None and (key := (self.validation and "validation") or (self.fold and "fold") or in_time):
            raise ValueError(f"`validation_path` and `{key}` both choose the held-out items: remove one of them")
        return self

    @property
    def holds_out(self) -> bool:
        return super().holds_out or self.validation_path is not None


def _check_classes(value: Any) -> Any:
    if not isinstance(value, list) or any(type(name) not in (int, str) for name in value):
        raise ValueError('`classes`: expected a list of labels or names of classes, such as [0, 1] or ["cat", "dog"]')
    if twice := [name for name in value if list(map(str, value)).count(str(name)) > 1]:
        raise ValueError(f"`classes` names {twice[0]} twice")
    if len(value) < 2:
        raise ValueError("`classes`: expected at least two classes to tell apart")
    return value


class SelectsClasses(DataSection):
    """The key of data sets that can leave classes out."""

    classes: Annotated[list[Class] | None, PlainValidator(_check_classes)] = None
    """Classes to keep, by label or name; items of other classes are left out. The labels are 0, 1, ... in this order.
    Default: all."""


class Remark(NamedTuple):
    """A remark on the content of a data file: not an error, but perhaps not intended."""

    key: str
    """The key of `[dataset]` that it concerns."""
    message: str
    advice: str


class TargetNumbers(NamedTuple):
    """Facts about numeric targets, for tasks that take labels or counts."""

    smallest: float
    other: float | None
    """A number that is neither 0 nor 1; None if all numbers are 0 or 1."""


@dataclass(frozen=True)
class StreamForm:
    """A stream: training items that user code yields while workers train, so that they are never all in memory."""

    counted: bool
    """The user's class gives the length of each worker's shard."""
    names: tuple[str, ...] = ()
    """Names of the inputs, as in `data.user.packed.Item`."""
    inputs: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Name and shape of each input's `ItemForm`; all items share them."""
    target: tuple[str, tuple[int, ...]] = ("", ())
    """Name and shape of the targets' `ItemForm`."""
    classes: int | None = None
    """Number of classes, if targets are labels."""
    vocabulary: tuple[int | None, ...] = ()
    """Number of tokens of each input; None: numbers."""
    unsharded: bool = False
    """Two workers get the same first items: the stream ignores their rank."""


@dataclass(frozen=True)
class DatasetSpec:
    """Facts of a data set that are known before it is loaded."""

    items: int
    """Training items, including those that will be held out."""
    test_items: int
    shape: tuple[int, ...]
    """Shape of one input."""
    task: Kind
    outputs: int | None
    """Number of classes, numbers per target, or tokens of the vocabulary; None if only reading everything can determine it."""
    tokens: bool = False
    """Items are tokens, not numbers."""
    categories: tuple[int, ...] = ()
    """Number of codes of each feature of an item, 0 for a number; empty: all are numbers."""
    remarks: tuple[Remark, ...] = ()
    parts: tuple[InputPart, ...] = ()
    """The inputs of an item, if there are several."""
    stream: StreamForm | None = None
    """The training items, if they are a stream; `items` then counts held-out items alone."""
    classes: tuple[Class, ...] = ()
    """Names of the classes by label, as far as known."""
    standardised: bool = False
    """Targets are standardised numbers."""
    numbers: TargetNumbers | None = None
    """Facts about numeric targets; None if only reading everything can determine them."""
    weighted: bool = False
    """Items have weights (`Dataset.sample_weight`)."""
    held_out: int | None = None
    """Number of items to hold out, if the data set itself determines it (`Dataset.held_out`)."""

    def held_out_of(self, section: DataSection) -> int:
        """Return the number of items to hold out; an estimate until groups are drawn."""
        return held_out_count(section.held_out, self.items) if self.held_out is None else self.held_out

    @property
    def kind(self) -> TaskKind:
        """The kind of task that the items are for."""
        return KINDS[self.task]


@dataclass(frozen=True)
class ArrayField:
    """Position of one array in the buffer."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    """Bytes from the buffer's beginning: a multiple of the type's width, and of 64 if `lay_out` chose it."""
    strides: tuple[int, ...] | None = None
    """Bytes from one number to the next along each axis; None: contiguous. Windows over a series overlap."""
    file: int = 0
    """Index of the buffer that holds the array: 0 is the main buffer, i the i-th file of the info. `offset` counts in it."""

    @property
    def end(self) -> int:
        """Bytes from the buffer's beginning to the array's end."""
        width = WIDTHS[self.dtype]
        if self.strides is None or not all(self.shape):
            return self.offset + math.prod(self.shape) * width
        return self.offset + width + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))


@dataclass(frozen=True)
class MappedFile:
    """A file that each process memory-maps separately: only the pages it reads take memory."""

    path: str
    size: int
    changed: int
    """Time of the last change, nanoseconds since 1970. A file modified later no longer equals its record."""

    @classmethod
    def of(cls, path: Path) -> MappedFile:
        """Record a file as it is now; InputMissing if there is none."""
        with reading(path):
            status = path.stat()
        return cls(str(path.absolute()), status.st_size, status.st_mtime_ns)

    def mapped(self) -> memoryview:
        """Map the file privately: writes stay in this process. InputMissing if the file has changed."""
        if MappedFile.of(Path(self.path)) != self:
            raise InputMissing(f"{self.path}: was changed while it was in use")
        if not self.size:
            return memoryview(b"")
        # MAP_NORESERVE: the kernel would refuse a private map of a file larger than the memory.
        flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0x4000)
        try:
            with open(self.path, "rb") as file:
                return memoryview(mmap.mmap(file.fileno(), self.size, flags, mmap.PROT_READ | mmap.PROT_WRITE))
        except OSError as error:
            raise InputMissing(f"{self.path}: cannot be mapped: {error.strerror}") from None


@dataclass(frozen=True)
class DatasetInfo:
    """A data set without its numbers: small and picklable. Together with the buffer it is the data set again."""

    slots: tuple[ArrayField, ...]
    task: Kind
    outputs: int
    """Classes, numbers per target, or tokens of the vocabulary."""
    scale: float
    """Factor for inputs, as float32: 1/255 for bytes (a quarter of the memory and of the traffic), else 1."""
    fingerprint: str
    """SHA-256 (hex) over the content."""
    vocabulary: int | None = None
    """Number of tokens, if items are tokens (numbers below it); None: items are other numbers."""
    gap: int | None = None
    """Number of items between training and held-out items, overlapping with both, if items follow one another in time. The last
    items are then held out. None: items are independent."""
    codec: Mapping[str, Any] = field(default_factory=dict)
    """Recipe from file content to items (columns, names of classes, means and deviations): JSON, kept in checkpoints."""
    files: tuple[MappedFile, ...] = ()
    """Files that are mapped in addition to the buffer."""
    parts: tuple[InputPart, ...] = ()
    """The inputs of an item, if there are several or their lengths differ: `inputs` are then rows (n, bytes) that hold
    all of them."""
    stream: StreamForm | None = None
    """The training items, if they are a stream: `inputs` and `targets` then hold only held-out items."""

    @property
    def kind(self) -> TaskKind:
        """The kind of task that the items are for."""
        return KINDS[self.task]

    @property
    def channel_scale(self) -> tuple[list[float], list[float]] | None:
        """Mean and deviation of each channel, in scaled numbers, to standardize batches of images; None: no standardization."""
        return (self.codec["mean"], self.codec["std"]) if self.codec.get("by_batch") else None

    @property
    def categories(self) -> tuple[int, ...]:
        """Number of codes of each feature of an item, 0 for a number; empty: all are numbers."""
        return tuple(self.codec.get("cardinalities", ()))

    def open(self, buffer: memoryview) -> Dataset:
        """Return the data set whose numbers are in `buffer`, without a copy."""
        arrays = views(self.slots, buffer, *(file.mapped() for file in self.files))
        return Dataset(
            **vars(self),
            inputs=arrays["inputs"],
            targets=arrays["targets"],
            test_inputs=arrays.get("test_inputs"),
            test_targets=arrays.get("test_targets"),
            rows=arrays.get("rows"),
            newest=arrays.get("newest"),
            test_newest=arrays.get("test_newest"),
            group=arrays.get(GROUP),
            test_group=arrays.get(f"test_{GROUP}"),
            sample_weight=arrays.get(WEIGHTS),
            held_out=arrays.get(HELD_OUT),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Dataset(DatasetInfo):
    """A data set in memory: its info, and arrays that are views of one buffer."""

    inputs: NDArray[Any]
    """(n, *shape) uint8 or floating point, multiplied by `scale` for the network; or int64 tokens."""
    targets: NDArray[Any]
    """(n,) int64 class labels, (n, outputs) float32, or (n, length) int64 tokens."""
    test_inputs: NDArray[Any] | None
    test_targets: NDArray[Any] | None
    rows: NDArray[Any] | None = None
    """(items,) int64, increasing: rows of `inputs` and `targets` that are items to train on or to hold out. Used if test items
    were drawn from a mapped file, where the other items stay in place. None: all rows."""
    newest: NDArray[Any] | None = None
    """(n, number, targets) float64: newest values of forecast columns in the file's units, from which differences are
    restored."""
    test_newest: NDArray[Any] | None = None
    group: NDArray[Any] | None = None
    """(n,) int64: number of each item's group, such as the rows of one person. None: items are independent."""
    test_group: NDArray[Any] | None = None
    sample_weight: NDArray[Any] | None = None
    """(n,) float32, 0 or more: how often to train on each row of `inputs`, relative to the others. None: equally often."""
    held_out: NDArray[Any] | None = None
    """(h,) int64, increasing: items to hold out: whole groups, or the items of a separate file. None: a draw among all items."""

    @property
    def items(self) -> int:
        """Number of items to train on or to hold out; with a stream, the number of held-out items."""
        return len(self.inputs if self.rows is None else self.rows) - (self.gap or 0)

    @property
    def item_shape(self) -> tuple[int, ...]:
        """Shape of an item; for sequences, the shape of the longest."""
        return self.parts[0].shape if of_unequal_lengths(self.parts) else tuple(self.inputs.shape[1:])

    def remark(self, workers: int = 2) -> str:
        """Return a remark on inputs that are all equal, or on a stream that is the same for all workers; "" if there is none."""
        if self.stream and self.stream.unsharded and workers > 1:
            return "each worker gets the same items: `stream` gives items by their numbers only, not by `rank` and `size`"
        inputs, step = self.inputs, items_of_block(self.inputs)
        blocks = (inputs[first : first + step] for first in range(0, len(inputs), step))
        alike = len(inputs) > 1 and all(bool((block == inputs[:1]).all()) for block in blocks)
        return f"the inputs of all {len(inputs):,} items are equal: a network cannot learn from them" if alike else ""

    def label_remark(self) -> str:
        """Return a remark on classes without an item, where labels alone name the classes; "" if there is none."""
        if self.stream or not self.kind.one_class or self.codec.get("classes"):
            return ""
        import numpy as np

        parts = [self.targets] if self.test_targets is None else [self.targets, self.test_targets]
        items = [np.bincount(labels, minlength=self.outputs) for labels in parts]
        return remark_on_gaps(np.flatnonzero(np.sum(items, axis=0)).tolist(), self.outputs)

    @property
    def item_targets(self) -> NDArray[Any]:
        """Targets (items, ...) of these items and of the items in a `gap`; a copy if there are `rows`."""
        return self.targets if self.rows is None else self.targets[self.rows]

    @property
    def item_groups(self) -> NDArray[Any] | None:
        """Groups (items,) of these items and of the items in a `gap`; a copy if there are `rows`."""
        return self.group if self.group is None or self.rows is None else self.group[self.rows]

    @property
    def spec(self) -> DatasetSpec:
        """Facts about the loaded data set."""
        tests = 0 if self.test_inputs is None else len(self.test_inputs)
        return DatasetSpec(
            self.items,
            tests,
            self.item_shape,
            self.task,
            self.outputs,
            self.vocabulary is not None,
            self.categories,
            parts=self.parts,
            classes=tuple(self.codec.get("classes") or ()),
            standardised="target_mean" in self.codec,
            stream=self.stream,
            weighted=self.sample_weight is not None,
            held_out=None if self.held_out is None else len(self.held_out),
        )

    @property
    def target_numbers(self) -> TargetNumbers:
        """Facts about all targets, test items included. The targets are numbers."""
        import numpy as np

        targets = [array for array in (self.targets, self.test_targets) if array is not None and array.size]
        others = (array[~np.isin(array, (0, 1))] for array in targets)
        return TargetNumbers(
            min((float(array.min()) for array in targets), default=0.0),
            next((float(other[0]) for other in others if len(other)), None),
        )

    @property
    def info(self) -> DatasetInfo:
        """The part that another process needs in addition to the buffer."""
        return DatasetInfo(**{field.name: getattr(self, field.name) for field in fields(DatasetInfo)})


def lay_out(arrays: Mapping[str, tuple[str, tuple[int, ...]]]) -> tuple[ArrayField, ...]:
    """Lay out arrays, given as (dtype, shape) by name, in one buffer."""
    starts = offsets(math.prod(shape) * WIDTHS[dtype] for dtype, shape in arrays.values())
    return tuple(ArrayField(name, *form, start) for (name, form), start in zip(arrays.items(), starts, strict=True))


def views(slots: tuple[ArrayField, ...], *buffers: memoryview) -> dict[str, NDArray[Any]]:
    """Return by name the arrays in the buffer and in the mapped files after it, without a copy."""
    return {slot.name: view(buffers[slot.file][slot.offset : slot.end], slot.dtype, slot.shape, slot.strides) for slot in slots}


def require_memory(size: int, where: str) -> None:
    """Raise InputMissing if `size` bytes do not fit into free memory."""
    free = memory_limits().free
    if size > free:
        wanted, available = size / 2**30, free / 2**30
        message = f"{where}: its numbers need {wanted:,.1f} GiB of memory, and {available:,.1f} GiB are free"
        raise InputMissing(f'{message}; `partrain data convert` writes a file that kind = "mapped" leaves on the disk')


def repeated(names: Iterable[str]) -> str | None:
    """Return the first name that occurs twice; None if all names differ."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


class Numbers(Protocol):
    """Numbers (n, ...) indexed by slices and by increasing indices: an array, or numbers that stay in their file."""

    @property
    def size(self) -> int: ...

    @property
    def ndim(self) -> int: ...

    def __len__(self) -> int: ...

    def __getitem__(self, items: Any, /) -> NDArray[Any]: ...


def items_of_block(numbers: Numbers) -> int:
    """Return the number of items (first axis) to process at a time, so that a block stays small whatever the size of an item."""
    return max(1, _BLOCK * len(numbers) // max(numbers.size, 1))


def first_bad(bad: NDArray[Any]) -> tuple[int, str]:
    """Return the first bad item (first axis), and the position within it in words if it holds more than one number."""
    import numpy as np

    item, *inner = map(int, np.unravel_index(int(bad.argmax()), bad.shape))
    return item, f", at {inner}" if math.prod(bad.shape[1:]) > 1 else ""


def check_finite(numbers: NDArray[Any], where: str) -> None:
    """Raise InputMissing for the first item (first axis) with a number that is not finite."""
    import numpy as np

    if numbers.dtype.kind != "f":
        return
    step = items_of_block(numbers)
    for first in range(0, len(numbers), step):
        if not (fine := np.isfinite(numbers[first : first + step])).all():
            item, at = first_bad(~fine)
            raise InputMissing(f"{where}: item {first + item} holds a number that is not finite{at}")


def check_weights(weights: NDArray[Any], locate: Callable[[int], str]) -> None:
    """Raise InputMissing for a weight (n,) below 0, whose place `locate` returns, or if all weights are 0."""
    if (weights < 0).any():
        item = int((weights < 0).argmax())
        raise InputMissing(f"{locate(item)}: the weight {weights[item]:g}: weights are 0 or more")
    if not weights.any():
        raise InputMissing(f"{locate(0)}: all weights are 0: there is nothing to train on")


def count_classes(targets: Sequence[NDArray[Any]], where: str) -> int:
    """Return the number of classes in label arrays (n,): the largest label plus one. InputMissing if implausible."""
    count, items = 1 + max(int(array.max()) for array in targets), sum(map(len, targets))
    if count < 2:
        raise InputMissing(f"{where}: all {items:,} items have the label 0: there is nothing to tell apart")
    if count > max(1000, items):
        raise InputMissing(
            f"{where}: the largest label is {count - 1:,}, of {items:,} items; labels must run from 0: renumber them, as {RENUMBER}"
        )
    return count


def remark_on_gaps(labels: Sequence[int], classes: int) -> str:
    """Return a remark on classes without an item; "" if each has one. `labels`: those that items have, in their order."""
    lacking = classes - len(labels)
    if not lacking:
        return ""
    which = f"{lacking:,} of {classes:,} classes {'has' if lacking == 1 else 'have'} no item"
    shown = ", ".join(map(str, labels[:MAX_LABELS])) + ", ..." * (len(labels) > MAX_LABELS)
    return f"{which}: the labels are {shown}; renumber them from 0: {RENUMBER}"


def named_fields(value: Any) -> bytes:
    """Return a value as text to hash: JSON, with the fields of dataclasses by name, independent of class names and `repr`."""
    return json.dumps(value, sort_keys=True, default=vars).encode()


def fingerprint_of(slots: tuple[ArrayField, ...], buffer: memoryview, codec: Mapping[str, Any] | None = None) -> str:
    """Hash the content of a buffer, its layout and its codec (SHA-256, hex)."""
    total = hashlib.sha256(named_fields(codec or {}))
    for slot in slots:
        total.update(named_fields(slot))
        total.update(buffer[slot.offset : slot.end])
    return total.hexdigest()
