"""IDX files, plain or gzipped: two zero bytes, a type byte, the number of axes, their sizes as big-endian 32 bits, the numbers.

Types, sizes, gzip checksums and known SHA-256 digests are checked. Headers are read without numpy.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from partrain.data.arrays.files import MAX_AXES, ArraySource
from partrain.data.base import reading, require_memory
from partrain.errors import InputMissing

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLASSES = 10
"""Classes of the embedded digits, known without reading the labels."""
TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
"""numpy's name of each type byte."""

_GZIP = b"\x1f\x8b"
_BLOCK = 1 << 15
"""Bytes read at a time: the inflated block is still in the processor's cache when it is copied."""
_DENSEST = 1032
"""Deflate's best ratio: a header that claims more is refused before memory is allocated."""


@dataclass(frozen=True)
class IdxHeader:
    """The header of an IDX file."""

    dtype: str
    """numpy's name of the numbers' type."""
    shape: tuple[int, ...]
    """Sizes of the axes; the first is the number of items."""

    @property
    def offset(self) -> int:
        """Bytes before the first number."""
        return 4 + 4 * len(self.shape)

    @property
    def data_bytes(self) -> int:
        """Bytes of the numbers."""
        return math.prod(self.shape) * int(self.dtype[-1])


def read_header(path: Path) -> IdxHeader:
    """Read the header of an IDX file from its first bytes.

    Raises:
        InputMissing: no such file, not an IDX file, or a length that contradicts the header.
    """
    with reading(path, "damaged gzip data", zlib.error), path.open("rb") as file:
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
    """Read the numbers of an IDX file into `target`, a contiguous array of the same count. Bytes are inflated straight into it.

    Returns:
        SHA-256 (hex) of the file on the disk.

    Raises:
        InputMissing: damaged, longer or shorter than its header claims, or a number that `target`'s type cannot hold.
    """
    import numpy as np

    flat, in_place = target.reshape(-1), target.itemsize == int(header.dtype[-1])
    if not in_place:
        require_memory(header.data_bytes, str(path))
    raw = flat.view("u1") if in_place else np.empty(header.data_bytes, "u1")
    digest = _fill(path, header, raw.data)
    if flat.dtype != header.dtype:
        try:
            with np.errstate(over="raise"):
                flat[:] = raw.view(header.dtype)
        except FloatingPointError:
            raise InputMissing(f"{path}: holds a number that {flat.dtype} cannot") from None
    return digest


def idx(path: Path, *, images: bool = False, digest: str = "") -> ArraySource:
    """Find the array of an IDX file.

    Args:
        path: The file, plain or gzipped.
        images: Items of two axes are grey images (1, height, width).
        digest: SHA-256 (hex) that the file must have; empty if none is known.
    """
    header, digests = read_header(path), list[str]()
    items, *axes = header.shape

    def read(target: NDArray[Any]) -> None:
        actual = read_into(path, header, target)
        if actual != (digest or actual):
            raise InputMissing(f"{path}: damaged: its SHA-256 is {actual}, expected {digest}")
        digests.append(actual)

    shape = (items, 1, *axes) if images and len(axes) == 2 else header.shape
    dtype = header.dtype if header.dtype[0] == ">" else f"|{header.dtype}"
    return ArraySource(str(path), path, dtype, shape, None, read, digests=digests)


def embedded(name: str) -> dict[str, ArraySource]:
    """Find the arrays of an embedded data set by role.

    The files are in `datasets/` of a checkout, or of the current folder: they are too large for a wheel (MNIST: 11 MB).
    """
    folders = [base / "datasets" / name for base in (Path(__file__).parents[3], Path())]
    folder = next((root for root in folders if (root / "SHA256SUMS").is_file()), None)
    if folder is None:
        advice = f'copy datasets/{name} of a checkout into this folder, or name files by kind = "idx"'
        raise InputMissing(
            f"an installed partrain has no files of `{name}`: {advice}; `partrain init` writes a job that needs none"
        )
    with reading(folder / "SHA256SUMS"):
        lines = (folder / "SHA256SUMS").read_text().splitlines()
    digests = {file: digest for digest, file in map(str.split, lines)}
    files = {
        f"{prefix}{role}": f"{part}-{content}-ubyte.gz"
        for prefix, part in (("", "train"), ("test_", "t10k"))
        for role, content in (("inputs", "images-idx3"), ("targets", "labels-idx1"))
    }
    return {
        role: idx(folder / file, images=role.endswith("inputs"), digest=digests.get(file, "")) for role, file in files.items()
    }


def _parse(path: Path, start: bytes) -> IdxHeader:
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in TYPES or not 0 < start[3] <= MAX_AXES:
        raise InputMissing(f"{path}: not an IDX file: it begins with {start[:4].hex(' ') or 'nothing'}")
    axes = start[4 : 4 + 4 * start[3]]
    if len(axes) < 4 * start[3]:
        raise InputMissing(f"{path}: is cut short within its header: expected {4 + 4 * start[3]} bytes, found {len(start)}")
    return IdxHeader(TYPES[start[2]], tuple(int.from_bytes(axes[i : i + 4], "big") for i in range(0, len(axes), 4)))


def _fill(path: Path, header: IdxHeader, target: memoryview) -> str:
    """Copy the file's numbers, as bytes, into `target`, and return the file's SHA-256."""
    digest, position = hashlib.sha256(), -header.offset
    with reading(path, "damaged gzip data", zlib.error), path.open("rb") as file:
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
    """Yield the blocks of a file, inflated if it is gzipped. `digest` hashes the file as it is."""
    blocks = iter(lambda: file.read(_BLOCK), b"")
    inflate = None
    for number, block in enumerate(blocks):
        digest.update(block)
        if number == 0 and block.startswith(_GZIP):
            inflate = zlib.decompressobj(31)
        yield inflate.decompress(block) if inflate else block
        while inflate and inflate.unused_data:  # a gzip file may have several members
            rest, inflate = inflate.unused_data, zlib.decompressobj(31)
            yield inflate.decompress(rest)
    if inflate and not inflate.eof:
        raise zlib.error("it ends within the compressed data")
