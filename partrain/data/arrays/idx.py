"""IDX files, plain or gzipped: two zero bytes, a type byte, the number of axes, their sizes as big-endian 32 bits, the numbers.

Everything is checked: types, sizes against the files' lengths, gzip checksums, SHA-256 where one is known, and that inputs and
targets belong together. numpy is imported only where numbers are read, so that a job can be validated by headers alone.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from pydantic import model_validator

from partrain.data.base import (
    Allocate,
    DataSection,
    Dataset,
    DatasetInfo,
    DatasetSpec,
    Training,
    check_finite,
    classes,
    lay_out,
    views,
)
from partrain.data.fetch import File, place
from partrain.errors import InputMissing

if TYPE_CHECKING:
    from numpy.typing import NDArray

TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
"""numpy's name of each type byte."""

_AXES = 64
"""More, numpy does not take."""
_GZIP = b"\x1f\x8b"
_BLOCK = 1 << 15
"""Bytes read at a time: what they inflate to is still in the processor's cache when it is copied to its place."""
_DENSEST = 1032
"""Deflate's best ratio: a header that claims more is refused before memory is asked for."""


class Mnist(DataSection):
    """The embedded MNIST digits: 60,000 training and 10,000 test images, float32 (1, 28, 28) in [0, 1], labels 0-9."""

    name: Literal["mnist"]

    def facts(self, folder: Path) -> DatasetSpec:
        return replace(facts(files_of(self, folder)), outputs=10)

    def load(self, folder: Path, allocate: Allocate, training: Training) -> Dataset:
        return load(files_of(self, folder), _known_sums(self.name), allocate)


class Idx(DataSection):
    """IDX files, plain or gzipped: inputs and targets, and optionally a test set."""

    kind: Literal["idx"]
    inputs: File
    """File of the inputs, relative to the job; bytes are scaled to [0, 1]. Items of two axes are grey images (1, height, width)."""
    targets: File
    """File of the targets; integers are class labels, other numbers are what a regression is to give."""
    test_inputs: File | None = None
    test_targets: File | None = None

    @model_validator(mode="after")
    def _test_pair(self) -> Idx:
        if (self.test_inputs is None) != (self.test_targets is None):
            raise ValueError("test_inputs and test_targets go together")
        return self

    def facts(self, folder: Path) -> DatasetSpec:
        return facts(files_of(self, folder))

    def load(self, folder: Path, allocate: Allocate, training: Training) -> Dataset:
        return load(files_of(self, folder), {}, allocate)


@dataclass(frozen=True)
class IdxHeader:
    """What an IDX file says it holds."""

    dtype: str
    """numpy's name of the numbers' type."""
    shape: tuple[int, ...]
    """Sizes of the axes; the first one counts the items."""

    @property
    def offset(self) -> int:
        """Bytes before the first number."""
        return 4 + 4 * len(self.shape)

    @property
    def data_bytes(self) -> int:
        """Bytes of the numbers."""
        return math.prod(self.shape) * int(self.dtype[-1])

    @property
    def integer(self) -> bool:
        """Whether the numbers are integers: as targets, class labels."""
        return self.dtype[-2] != "f"

    @property
    def item(self) -> tuple[int, ...]:
        """Shape of one input: single numbers are (1,), items of two axes are grey images (1, height, width)."""
        axes = self.shape[1:]
        return axes if axes and len(axes) != 2 else (1, *axes)


def read_header(path: Path) -> IdxHeader:
    """The header of an IDX file, from its first bytes.

    Raises:
        InputMissing: no such file, not an IDX file, or one whose length cannot be what its header claims.
    """
    with _named(path), path.open("rb") as file:
        first, size = file.read(4096), file.seek(0, 2)
        packed = first.startswith(_GZIP)
        start = zlib.decompressobj(31).decompress(first, 1024) if packed else first
    header = _parse(path, start)
    claimed = header.offset + header.data_bytes
    if (claimed > size * _DENSEST) if packed else (claimed != size):
        raise InputMissing(
            f"{path}: expected {claimed} bytes for shape {header.shape}, but the file has {size}{' gzipped' * packed}"
        )
    return header


def read_into(path: Path, header: IdxHeader, target: NDArray[Any]) -> str:
    """Read the numbers of an IDX file into `target`, a contiguous array of as many numbers; bytes are inflated straight into it.

    Returns:
        SHA-256 (hex) of the file as it lies on the disk.

    Raises:
        InputMissing: damaged, longer or shorter than its header says, or a number that `target`'s type cannot hold.
    """
    import numpy as np

    flat, in_place = target.reshape(-1), target.itemsize == int(header.dtype[-1])
    raw = flat.view("u1") if in_place else np.empty(header.data_bytes, "u1")
    digest = _fill(path, header, raw.data)
    if flat.dtype != header.dtype:
        try:
            with np.errstate(over="raise"):
                flat[:] = raw.view(header.dtype)
        except FloatingPointError:
            raise InputMissing(f"{path}: holds a number that {flat.dtype} cannot") from None
    return digest


def facts(files: Mapping[str, Path]) -> DatasetSpec:
    """What the headers of a data set's files tell; `files` is keyed by "inputs", "targets" and perhaps "test_" of both.

    Raises:
        InputMissing: as `read_header`; or files that do not belong together.
    """
    headers = _headers(files)
    inputs, targets, tests = headers["inputs"], headers["targets"], headers.get("test_inputs")
    return DatasetSpec(
        items=inputs.shape[0],
        test_items=tests.shape[0] if tests else 0,
        shape=inputs.item,
        task="classification" if targets.integer else "regression",
        outputs=None if targets.integer else _width(targets),
    )


def load(files: Mapping[str, Path], sums: Mapping[str, str], allocate: Allocate) -> Dataset:
    """Read a data set's files into one buffer.

    Args:
        files: As in `facts`.
        sums: SHA-256 (hex) by file name, for the files where it is known.
        allocate: Gives the buffer.

    Raises:
        InputMissing: as `read_into`; a digest other than the known one; a negative label.
    """
    headers = _headers(files)
    slots = lay_out({role: _stored(role, header) for role, header in headers.items()})
    buffer = allocate(slots[-1].end)
    arrays = views(slots, buffer)
    digests = [read_into(path, headers[role], arrays[role]) for role, path in files.items()]
    for path, digest in zip(files.values(), digests, strict=True):
        if digest != sums.get(path.name, digest):
            raise InputMissing(f"{path}: damaged: its SHA-256 is {digest}, expected {sums[path.name]}")
    for role, path in files.items():
        check_finite(arrays[role], str(path))
    labels = headers["targets"].integer
    card = DatasetInfo(
        slots,
        task="classification" if labels else "regression",
        outputs=_classes(files, arrays) if labels else _width(headers["targets"]),
        scale=1 / 255 if headers["inputs"].dtype == "u1" else 1.0,
        fingerprint=hashlib.sha256("\n".join(digests).encode()).hexdigest(),
    )
    return card.attach(buffer)


def files_of(section: Mnist | Idx, folder: Path) -> dict[str, Path]:
    """The files of a data set, by role; the embedded set lies in the repository, or in the package where that was installed."""
    if isinstance(section, Idx):
        given = {role: getattr(section, role) for role in ("inputs", "targets", "test_inputs", "test_targets")}
        return {role: place(path, folder) for role, path in given.items() if path is not None}
    embedded = _embedded(section.name)
    names = {"": "train", "test_": "t10k"}
    return {
        f"{prefix}{role}": embedded / f"{name}-{content}-ubyte.gz"
        for prefix, name in names.items()
        for role, content in (("inputs", "images-idx3"), ("targets", "labels-idx1"))
    }


def _known_sums(name: str) -> dict[str, str]:
    """SHA-256 (hex) by file name, for an embedded data set."""
    path = _embedded(name) / "SHA256SUMS"
    with _named(path):
        return {name: digest for digest, name in (line.split() for line in path.read_text().splitlines())}


def _embedded(name: str) -> Path:
    package = Path(__file__).parents[2]
    places = [package.parent / "datasets" / name, package / "_datasets" / name]
    return next((place for place in places if (place / "SHA256SUMS").is_file()), places[0])


def _headers(files: Mapping[str, Path]) -> dict[str, IdxHeader]:
    """The header of each file, checked against the others'."""
    headers = {role: read_header(path) for role, path in files.items()}
    inputs, targets = headers["inputs"], headers["targets"]
    for role, header in headers.items():
        path = files[role]
        if not header.data_bytes:
            raise InputMissing(f"{path}: holds no numbers: its shape is {header.shape}")
        if role.endswith("targets"):
            _check_targets(path, header, targets, headers[role.removesuffix("targets") + "inputs"])
        elif header.item != inputs.item or (header.dtype == "u1") != (inputs.dtype == "u1"):
            raise InputMissing(
                f"{path}: its items are {header.item} {header.dtype}, those for training {inputs.item} {inputs.dtype}"
            )
    return headers


def _check_targets(path: Path, header: IdxHeader, first: IdxHeader, inputs: IdxHeader) -> None:
    if header.shape[0] != inputs.shape[0]:
        raise InputMissing(f"{path}: holds {header.shape[0]} targets for {inputs.shape[0]} inputs")
    if len(header.shape) > (1 if header.integer else 2):
        raise InputMissing(f"{path}: targets of shape {header.shape}: labels have one axis, other targets at most two")
    if header.integer != first.integer or _width(header) != _width(first):
        raise InputMissing(
            f"{path}: its targets are {header.dtype} {header.shape}, those for training {first.dtype} {first.shape}"
        )


def _stored(role: str, header: IdxHeader) -> tuple[str, tuple[int, ...]]:
    """(dtype, shape) in memory."""
    items = header.shape[0]
    if role.endswith("inputs"):
        return "uint8" if header.dtype == "u1" else "float32", (items, *header.item)
    return ("int64", (items,)) if header.integer else ("float32", (items, _width(header)))


def _width(targets: IdxHeader) -> int:
    """Numbers per target."""
    return math.prod(targets.shape[1:])


def _classes(files: Mapping[str, Path], arrays: Mapping[str, NDArray[Any]]) -> int:
    """Classes: the largest label of training and test items, plus one."""
    roles = [role for role in files if role.endswith("targets")]
    for role in roles:
        labels = arrays[role]
        if labels.min() < 0:
            item = int(labels.argmin())
            raise InputMissing(f"{files[role]}: item {item} has the label {labels[item]}; class labels are 0 or more")
    return classes([arrays[role] for role in roles], str(files["targets"]))


def _parse(path: Path, start: bytes) -> IdxHeader:
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in TYPES or not 0 < start[3] <= _AXES:
        raise InputMissing(f"{path}: not an IDX file: it begins with {start[:4].hex(' ') or 'nothing'}")
    axes = start[4 : 4 + 4 * start[3]]
    if len(axes) < 4 * start[3]:
        raise InputMissing(f"{path}: is cut short within its header: expected {4 + 4 * start[3]} bytes, found {len(start)}")
    return IdxHeader(TYPES[start[2]], tuple(int.from_bytes(axes[i : i + 4], "big") for i in range(0, len(axes), 4)))


def _fill(path: Path, header: IdxHeader, target: memoryview) -> str:
    """Copy the file's numbers, as bytes, into `target`; returns the file's SHA-256."""
    digest, position = hashlib.sha256(), -header.offset
    with _named(path), path.open("rb") as file:
        for block in _content(file, digest):
            skip = max(-position, 0)
            begin, end = position + skip, min(position + len(block), len(target))
            if begin < end:
                target[begin:end] = block[skip : skip + end - begin]
            position += len(block)
    if position != len(target):
        what = "is cut short" if position < len(target) else "has trailing bytes"
        raise InputMissing(
            f"{path}: {what}: expected {header.offset + len(target)} bytes of content, found {header.offset + position}"
        )
    return digest.hexdigest()


def _content(file: IO[bytes], digest: hashlib._Hash) -> Iterator[bytes]:
    """The blocks of a file, inflated if it is gzipped; `digest` sees the file as it is."""
    blocks = iter(lambda: file.read(_BLOCK), b"")
    inflate = None
    for number, block in enumerate(blocks):
        digest.update(block)
        if number == 0 and block.startswith(_GZIP):
            inflate = zlib.decompressobj(31)
        yield inflate.decompress(block) if inflate else block
        while inflate and inflate.unused_data:  # a gzip file may consist of several, one behind the other
            rest, inflate = inflate.unused_data, zlib.decompressobj(31)
            yield inflate.decompress(rest)
    if inflate and not inflate.eof:
        raise zlib.error("it ends within the compressed data")


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Report what goes wrong with a file in one line that names it."""
    try:
        yield
    except OSError as error:
        raise InputMissing(f"{path}: {error.strerror or error}") from None
    except zlib.error as error:
        raise InputMissing(f"{path}: damaged gzip data: {error}") from None
