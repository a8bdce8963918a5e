"""The memory-mapped form of a data set: `partrain data convert` writes it, `kind = "mapped"` opens it without copying.

A file holds the bytes that workers would have in memory, after a header:

    8 bytes "PTITEMS1" | length of the JSON, 8 bytes, little-endian | SHA-256 of the JSON, 32 bytes | JSON | zeros to 4096 | items

The JSON has the data set's info and the SHA-256 of the items. The digest of the JSON is checked at each opening and is the
fingerprint in checkpoints. Checking the items means reading them all: only `verify = true` and `data inspect` do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from partrain.byte_layout import InputPart, of_unequal_lengths
from partrain.data.augment import ImageChanges
from partrain.data.base import (
    WEIGHTS,
    Allocate,
    ArrayField,
    Dataset,
    DatasetInfo,
    DatasetSpec,
    MappedFile,
    Training,
    lay_out,
    reading,
)
from partrain.data.fetch import File, local_path
from partrain.data.forms import CONVERTED
from partrain.data.windows import refuse_fold
from partrain.errors import CannotCreate, InputMissing
from partrain.system.atomic_file import atomic_file
from partrain.system.regular_file import parse_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PAGE = 4096
_BLOCK = 1 << 22


@dataclass(frozen=True, eq=False)
class _RowSubset:
    """Some rows of an array, scattered over it."""

    array: NDArray[Any]
    rows: NDArray[Any]

    def blocks(self) -> Iterator[memoryview]:
        """Yield their bytes."""
        step = max(1, _BLOCK * len(self.array) // self.array.nbytes)
        for first in range(0, len(self.rows), step):
            yield self.array[self.rows[first : first + step]].data.cast("B")


_Source = memoryview | _RowSubset
"""Part of a file to write."""


class Mapped(ImageChanges):
    """A file that `partrain data convert` wrote. It is memory-mapped, so it may be larger than the memory."""

    kind: Literal["mapped"]
    path: File
    """The file, relative to the job; or a URL with its digest, `https://host/file#sha256=...`."""
    verify: bool = False
    """Compare the digest of the items before training starts. This reads the whole file."""


def read_spec(section: Mapped, folder: Path) -> DatasetSpec:
    """Read the header of the file; see `data.read_spec`."""
    info = read(local_path(section.path, folder))
    if info.gap is not None:
        refuse_fold(section)
    slots = {slot.name: slot for slot in info.slots}
    items, *shape = slots["inputs"].shape
    tests = slots["test_inputs"].shape[0] if "test_inputs" in slots else 0
    shape = list(info.parts[0].shape) if of_unequal_lengths(info.parts) else shape
    tokens = info.vocabulary is not None
    return DatasetSpec(
        items - (info.gap or 0),
        tests,
        tuple(shape),
        info.task,
        info.outputs,
        tokens,
        parts=info.parts,
        classes=tuple(info.codec.get("classes") or ()),
        standardised="target_mean" in info.codec,
        weighted=WEIGHTS in slots,
    )


def load(section: Mapped, folder: Path, allocate: Allocate, training: Training) -> Dataset:
    """Map the file; see `data.load`."""
    path = local_path(section.path, folder)
    if section.verify:
        verify(path)
    dataset, kept = read(path).open(allocate(0)), stored_training_hash(path)
    if kept and kept != training_hash(dataset, training):
        raise InputMissing(
            f"{path}: was converted for other training items (`validation`, `fold`, `stratify`, `seed` or `order` differ) "
            "and contains means or windows that depend on them; convert it again with this job"
        )
    return dataset


def stored_training_hash(path: Path) -> str:
    """Return the `training_hash` that was stored when the file was written."""
    return str(_parsed(path)[1]["trained"])


def training_hash(dataset: Dataset, training: Training) -> str:
    """Hash the indices of the training items (SHA-256, hex), if the items contain anything learnt from them; else ""."""
    learnt = {"mean", "target_mean"} & dataset.codec.keys() and dataset.codec.get("learnt", True)
    if dataset.gap is None and not learnt:
        return ""
    labels = dataset.item_targets if dataset.kind.one_class else None
    return hashlib.sha256(training(dataset.items, labels, dataset.gap).tobytes()).hexdigest()


def write(path: Path, info: DatasetInfo, buffer: memoryview, trained: str = "") -> None:
    """Write the data set in `buffer`, and in the files that its info names. On failure no partial file remains.

    Args:
        trained: Its `training_hash`.

    Raises:
        CannotCreate: the file cannot be written.
    """
    apart = any(slot.name == "rows" for slot in info.slots)
    slots, sources = _selected_rows(info.open(buffer)) if apart else _whole_arrays(info, buffer)
    end, total = max(slot.end for slot in slots), hashlib.sha256()
    for block in _blocks(sources):
        total.update(block)
    header = _header(replace(info, slots=slots, files=()), end, total.hexdigest(), trained)
    try:
        with atomic_file(path, unique=False) as descriptor, open(descriptor, "wb", closefd=False) as file:
            file.write(header)
            for block in _blocks(sources):
                file.write(block)
    except OSError as error:
        raise CannotCreate(f"{path}: {error.strerror}") from None


def _whole_arrays(info: DatasetInfo, buffer: memoryview) -> tuple[tuple[ArrayField, ...], list[_Source]]:
    """Lay out the arrays of a data set in the file to write; return slots, and the parts of the file."""
    end = max((slot.end for slot in info.slots if not slot.file), default=0)
    slots: list[ArrayField] = []
    sources: list[_Source] = [buffer[:end]]
    for slot in info.slots:
        if slot.file:
            content = info.files[slot.file - 1].mapped()[slot.offset : slot.end]
            sources += [memoryview(bytes(-end % 64)), content]
            slots.append(replace(slot, offset=end + -end % 64, file=1))
            end = slots[-1].end
        else:
            slots.append(replace(slot, file=1))
    return tuple(slots), sources


def _selected_rows(dataset: Dataset) -> tuple[tuple[ArrayField, ...], list[_Source]]:
    """Lay out only the `rows` that are items, contiguously; return slots, and the parts of the file."""
    assert dataset.rows is not None
    names = [name for slot in dataset.slots if (name := slot.name) != "rows"]
    arrays: dict[str, NDArray[Any]] = {name: getattr(dataset, name) for name in names}
    left = {name: len(array) if name.startswith("test_") else len(dataset.rows) for name, array in arrays.items()}
    slots = lay_out({name: (str(array.dtype), (left[name], *array.shape[1:])) for name, array in arrays.items()})
    sources: list[_Source] = []
    end = 0
    for slot in slots:
        array = arrays[slot.name]
        part = array.data.cast("B") if slot.name.startswith("test_") else _RowSubset(array, dataset.rows)
        sources += [memoryview(bytes(slot.offset - end)), part]
        end = slot.end
    return tuple(replace(slot, file=1) for slot in slots), sources


def read(path: Path) -> DatasetInfo:
    """Read the info of a file, and check its header.

    Raises:
        InputMissing: no such file, another kind of file, or damaged.
    """
    text, header, start, file = _parsed(path)
    if file.size != start + header["bytes"]:
        raise InputMissing(
            f"{path}: expected {start + header['bytes']} bytes, found {file.size}: it is cut short, or was added to"
        )
    card: dict[str, Any] = header["card"]
    slots = tuple(_slot(slot, start) for slot in card["slots"])
    parts = tuple(InputPart(**part | {"shape": tuple(part["shape"])}) for part in card.get("parts", ()))
    own = {"slots": slots, "files": (file,), "fingerprint": hashlib.sha256(text).hexdigest(), "parts": parts}
    return DatasetInfo(**card | own)


def verify(path: Path) -> None:
    """Check the digest of the items; InputMissing if it differs."""
    _, header, start, file = _parsed(path)
    digest = hashlib.sha256()
    for block in _blocks([file.mapped()[start:]]):
        digest.update(block)
    if digest.hexdigest() != header["sha256"]:
        raise InputMissing(f"{path}: damaged: the SHA-256 of its items is {digest.hexdigest()}, not what its header says")


def is_mapped(path: Path) -> bool:
    """Return whether a file is a mapped data set."""
    with path.open("rb") as file:
        return file.read(len(CONVERTED)) == CONVERTED


def _header(info: DatasetInfo, size: int, digest: str, trained: str) -> bytes:
    card = {key: value for key, value in asdict(info).items() if key != "parts" or value}
    text = json.dumps({"card": card, "bytes": size, "sha256": digest, "trained": trained}, sort_keys=True).encode()
    header = CONVERTED + len(text).to_bytes(8, "little") + hashlib.sha256(text).digest() + text
    return header + bytes(-len(header) % _PAGE)


def _parsed(path: Path) -> tuple[bytes, dict[str, Any], int, MappedFile]:
    """Return the header as text and parsed, the offset of the items, and the file."""
    file = MappedFile.of(path)
    with reading(path), path.open("rb") as stream:
        start = stream.read(48)
        if start[:8] != CONVERTED:
            raise InputMissing(f"{path}: not written by `partrain data convert`")
        length = int.from_bytes(start[8:16], "little")
        text = stream.read(min(length, file.size))
    try:
        header = parse_json(text) if hashlib.sha256(text).digest() == start[16:48] else None
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise InputMissing(f"{path}: its header is damaged")
    return text, header, -(-(48 + length) // _PAGE) * _PAGE, file


def _slot(slot: dict[str, Any], start: int) -> ArrayField:
    strides = slot["strides"] and tuple(slot["strides"])
    return ArrayField(**slot | {"shape": tuple(slot["shape"]), "strides": strides, "offset": start + slot["offset"]})


def _blocks(sources: list[_Source]) -> Iterator[memoryview]:
    for source in sources:
        if isinstance(source, _RowSubset):
            yield from source.blocks()
        else:
            yield from (source[first : first + _BLOCK] for first in range(0, len(source), _BLOCK))
