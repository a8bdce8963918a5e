"""Arrays in files: .npy, .npz and HDF5. Headers give type, shape and offset; numbers are read on request.

Arrays of texts (labels) are read as integer codes. Objects are never read: their pickle could run any code.
"""

from __future__ import annotations

import ast
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from partrain.byte_layout import InputPart
from partrain.config.problems import did_you_mean
from partrain.data.arrays.described import DescribedDataset, unwritten
from partrain.data.arrays.elsewhere import missing_data, outside
from partrain.data.base import first_bad, require_memory
from partrain.errors import InputMissing

if TYPE_CHECKING:
    from numpy.typing import NDArray

ARRAYS = {".npz": "npz", ".npy": "npy"} | dict.fromkeys((".h5", ".hdf5", ".mat", ".nc", ".nc4", ".h5ad"), "hdf5")
"""Kinds of array files by suffix, in lower case. MATLAB has written HDF5 since version 7.3, netCDF since version 4."""
MAX_AXES = 64
"""Largest number of axes that numpy allows."""
_HEADER_BYTES = 10_000
"""Longest header that numpy itself reads."""
_BLOCK_BYTES = 1 << 24
"""Bytes converted at a time."""


@dataclass(frozen=True)
class ArraySource:
    """An array in a file, or in memory."""

    where: str
    """File and name of the array, for messages."""
    path: Path
    dtype: str
    """Type in numpy's notation: `<f4`, `|u1`."""
    shape: tuple[int, ...]
    offset: int | None
    """Bytes from the file's beginning to the numbers. None: they are compressed, chunked, in another order, or misaligned."""
    read: Callable[[NDArray[Any]], None]
    """Fill an array of the same shape with the numbers, converted; texts become int64 codes."""
    checksum: tuple[int, int, int] | None = None
    """CRC-32 of a range of bytes, if the file stores one: (start, end, CRC)."""
    unsupported: str = ""
    """Content that is neither numbers nor texts, in words: it cannot be read. Empty otherwise."""
    texts: dict[str, int] | None = None
    """Codes of the texts read so far; None: the array holds no texts."""
    digests: list[str] | None = None
    """SHA-256 (hex) of the file, added by each `read`; None: reading does not compute it."""
    parts: tuple[InputPart, ...] = ()
    """The inputs of an item, if there are several or their lengths differ: the array then has a row of bytes for each item."""
    tokens: frozenset[str] = frozenset()
    """Names of the parts that are tokens."""
    read_items: Callable[[int, NDArray[Any]], None] | None = None
    """Fill an array (k, ...) with the numbers of k items, starting at this index; None: only all items can be read."""
    from_memory: bool = False
    """The numbers are already in memory, so a copy of them fits."""

    @property
    def kind(self) -> str:
        """Kind of type: `u` and `i` integers, `f` floating point, `b` booleans, `U` and `S` texts."""
        return self.dtype[1]

    def why_unusable(self, role: str) -> str:
        """Return why the array cannot be used in this role, in words; texts can be targets."""
        return self.unsupported or "text" * (self.texts is not None and not role.endswith("targets"))

    def whole(self, dtype: Any) -> NDArray[Any]:
        """Read all numbers into a new array of this type. InputMissing if they do not fit into free memory."""
        import numpy as np

        if not self.from_memory:
            require_memory(prod(self.shape) * np.dtype(dtype).itemsize, self.where)
        numbers = np.empty(self.shape, dtype)
        self.read(numbers)
        return numbers

    def values(self) -> NDArray[Any]:
        """Read all values into a new array, as `whole` does; texts stay texts."""
        import numpy as np

        if self.unsupported:
            raise InputMissing(f"{self.where}: holds {self.unsupported}; arrays of numbers can be used")
        if self.texts is None:
            return self.whole(np.dtype(self.dtype).newbyteorder("="))
        codes = self.whole(np.int64)  # which fills `texts`
        words: NDArray[Any] = np.array(list(self.texts))[codes]
        return words


def in_memory(array: NDArray[Any], where: str, path: Path) -> ArraySource:
    """Describe an array in memory as if it were in a file. `where` and `path` are for messages."""
    texts = _texts(array.dtype.str)

    def read(target: NDArray[Any]) -> None:
        _convert_array(array, target, where, texts)

    unsupported = "" if array.dtype.kind in "iufUS" else f"objects ({array.dtype})"
    form = array.dtype.str, array.shape
    return ArraySource(where, path, *form, None, read, unsupported=unsupported, texts=texts, from_memory=True)


def npy(path: Path) -> ArraySource:
    """Find the array of a .npy file."""
    with _reading_arrays(path), path.open("rb") as file:
        dtype, shape, by_columns = _header(file, str(path))
        offset, size = file.tell(), file.seek(0, 2)
    if unsupported := _unusable(dtype):
        return _without_numbers(str(path), path, unsupported, shape)
    _check_size(str(path), shape, offset + prod(shape) * _width(dtype), size)
    texts = _texts(dtype)

    def read(target: NDArray[Any]) -> None:
        import numpy as np

        with _reading_arrays(path):
            _convert_array(np.load(path, mmap_mode="r", allow_pickle=False), target, str(path), texts)

    return ArraySource(str(path), path, dtype, shape, None if by_columns else offset, read, texts=texts)


def npz(path: Path) -> dict[str, ArraySource]:
    """Find the arrays of a .npz file, by name."""
    arrays = {}
    with _reading_arrays(path), path.open("rb") as whole, zipfile.ZipFile(whole) as archive:
        size = whole.seek(0, 2)
        for member in archive.infolist():
            if member.filename.endswith(".npy"):
                name = member.filename.removesuffix(".npy")
                where = f"{path}: array `{name}`"
                with archive.open(member) as file:
                    dtype, shape, by_columns = _header(file, where)
                    skipped = file.tell()
                if unsupported := _unusable(dtype):
                    arrays[name] = _without_numbers(where, path, unsupported, shape)
                    continue
                width, texts = _width(dtype), _texts(dtype)
                _check_size(where, shape, skipped + prod(shape) * width, member.file_size)
                offset = checksum = None
                if (start := _uncompressed_offset(member, whole)) is not None and not by_columns:
                    end = start + member.file_size
                    fits = end <= size
                    offset = start + skipped if fits and (start + skipped) % max(width, 1) == 0 else None
                    checksum = start, end, member.CRC
                read = _npz_reader(path, name, texts)
                arrays[name] = ArraySource(where, path, dtype, shape, offset, read, checksum, texts=texts)
    return arrays


def arrays_of(path: Path, kind: str) -> dict[str, ArraySource]:
    """Find the arrays of a file, by name; "" names the single array of a .npy file."""
    return npz(path) if kind == "npz" else {"": npy(path)} if kind == "npy" else hdf5(path)


def _unusable(dtype: Any) -> str:
    """Describe a type from a header that is neither numbers nor texts; empty otherwise."""
    if isinstance(dtype, str) and len(dtype) > 2 and dtype[1] in "biufUS" and dtype[2:].isdigit():
        return ""
    return "objects, which are code to run" if isinstance(dtype, str) and dtype[1:2] == "O" else f"{dtype}"


def _without_numbers(where: str, path: Path, unsupported: str, shape: tuple[int, ...]) -> ArraySource:
    """Describe an array of a type that cannot be read."""

    def read(target: NDArray[Any]) -> None:
        raise InputMissing(f"{where}: holds {unsupported}; arrays of numbers can be used")

    return ArraySource(where, path, unsupported, shape, None, read, unsupported=unsupported)


def _width(dtype: str) -> int:
    """Return the size of a number or text in bytes."""
    return int(dtype[2:]) * (4 if dtype[1] == "U" else 1)


def _texts(dtype: str) -> dict[str, int] | None:
    """Return an empty table of codes for an array of texts, else None."""
    return {} if dtype[1] in "US" else None


def _check_size(where: str, shape: tuple[int, ...], wanted: int, actual: int) -> None:
    if actual != wanted:
        raise InputMissing(f"{where}: expected {wanted} bytes for shape {shape}, found {actual}")


def _uncompressed_offset(member: zipfile.ZipInfo, whole: IO[bytes]) -> int | None:
    """Return the offset of an uncompressed member in its archive; None if it is compressed."""
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        return None
    whole.seek(member.header_offset)
    name, extra = struct.unpack("<26x2H", whole.read(30))  # lengths in the local header
    return int(member.header_offset + 30 + name + extra)


def _npz_reader(path: Path, name: str, texts: dict[str, int] | None) -> Callable[[NDArray[Any]], None]:
    def read(target: NDArray[Any]) -> None:
        where = f"{path}: array `{name}`"
        with _reading_arrays(path), zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
            dtype, shape, by_columns = _header(file, where)
            target = target.reshape(shape or 1)
            blocks = _row_blocks(file, dtype, shape[::-1] if by_columns else shape)
            _convert_blocks(blocks, target.T if by_columns else target, where, texts)

    return read


def _row_blocks(file: IO[bytes], dtype: str, shape: tuple[int, ...]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the numbers of an array in blocks of rows, each with the index of its first row."""
    import numpy as np

    rows, *axes = shape or (1,)
    width = prod(axes) * _width(dtype)
    step = max(1, _BLOCK_BYTES // max(width, 1))
    for first in range(0, rows, step):
        count = min(step, rows - first)
        yield first, np.frombuffer(file.read(count * width), dtype).reshape(count, *axes)
    file.read(1)  # reading to the end verifies the checksum


def hdf5(path: Path) -> dict[str, ArraySource]:
    """Find the datasets of an HDF5 file, by path. Those without numbers or texts are described only: objects are never read."""
    import h5py

    arrays: dict[str, ArraySource] = {}

    def note(name: str, link: Any) -> None:
        item = file.get(name) if not isinstance(link, h5py.ExternalLink) else None
        if not isinstance(item, h5py.Dataset) or Path(item.file.filename) != path:
            return
        where = f"{path}: dataset `{name}`"
        useless, text = _unsupported(item)
        texts: dict[str, int] | None = {} if text else None
        read = _hdf5_reader(path, name, texts)
        if useless:
            arrays[name] = ArraySource(where, path, useless, item.shape or (), None, read, unsupported=useless)
            return
        if nowhere := outside(item, path, set()) or unwritten(item):
            arrays[name] = ArraySource(where, path, nowhere, item.shape, None, read, unsupported=nowhere)
            return
        if text:
            arrays[name] = ArraySource(where, path, "|S", item.shape, None, read, texts=texts)
            return
        numbers = DescribedDataset(item, where)
        dtype = numbers.unsupported or numbers.dtype.str
        form = dtype, numbers.shape, numbers.offset
        some = _hdf5_items_reader(path, name)
        arrays[name] = ArraySource(where, path, *form, read, unsupported=numbers.unsupported, read_items=some)

    with _reading_arrays(path), h5py.File(path, "r") as file:
        file.visititems_links(note)
    return arrays


def _unsupported(dataset: Any) -> tuple[str, bool]:
    """Describe a dataset that holds neither numbers nor texts (else empty), and return whether it holds texts."""
    import h5py

    try:
        kind, text = dataset.dtype.kind, h5py.check_string_dtype(dataset.dtype) is not None
    except TypeError:
        return "a type that numpy does not have", False
    if kind not in "biuf" and not text:
        return "records" if dataset.dtype.names else "objects" if kind == "O" else str(dataset.dtype), False
    single = "a single text" if text else "a single number"
    return "" if dataset.shape else "nothing" if dataset.shape is None else single, text


def _hdf5_reader(path: Path, name: str, texts: dict[str, int] | None) -> Callable[[NDArray[Any]], None]:
    def read(target: NDArray[Any]) -> None:
        import h5py

        with _reading_arrays(path), h5py.File(path, "r") as file:
            dataset, where = file[name], f"{path}: dataset `{name}`"
            if lost := missing_data(dataset, path):
                raise InputMissing(f"{where}: {lost}")
            _convert_array(DescribedDataset(dataset, where) if texts is None else dataset, target, where, texts)

    return read


def _hdf5_items_reader(path: Path, name: str) -> Callable[[int, NDArray[Any]], None]:
    def read(first: int, target: NDArray[Any]) -> None:
        import h5py

        with _reading_arrays(path), h5py.File(path, "r") as file:
            where = f"{path}: dataset `{name}`"
            dataset = DescribedDataset(file[name], where)
            _convert_blocks(iter([(0, dataset[first : first + len(target)])]), target, where, None)

    return read


def choose_array(arrays: dict[str, ArraySource], name: str, path: Path, key: str) -> ArraySource:
    """Return one array of a file by name; InputMissing if the file lacks it. `key` is the table's key that asks for it."""
    if name not in arrays:
        usable = [usable for usable in arrays if not arrays[usable].why_unusable(key)]
        near = did_you_mean(name, usable)
        advice = f"did you mean `{near}`?" if near else f"there are {', '.join(usable)}" if usable else "there are none"
        raise InputMissing(f"{path}: no array `{name}`, which `{key}` asks for: {advice}")
    if unfit := arrays[name].why_unusable(key):
        raise InputMissing(f"{arrays[name].where}: holds {unfit}; arrays of numbers can be used")
    return arrays[name]


def _header(file: IO[bytes], where: str) -> tuple[Any, tuple[int, ...], bool]:
    """Read type (not a text for records), shape, and whether the order is by columns. Leave the file at the first number."""
    start = file.read(8)
    if start[:6] != b"\x93NUMPY" or len(start) < 8:
        raise InputMissing(f"{where}: not a numpy file: it begins with {start[:6].hex(' ') or 'nothing'}")
    width = 2 if start[6] == 1 else 4
    size = int.from_bytes(file.read(width), "little")
    text = file.read(min(size, _HEADER_BYTES))
    try:
        if size > _HEADER_BYTES:
            raise ValueError
        header = text.decode("utf-8" if start[6] == 3 else "latin-1").strip()
        header = ast.literal_eval(re.sub(r"(?<=[0-9])L(?=[,)])", "", header))  # Python 2 wrote long numbers so
        dtype, shape, by_columns = header["descr"], header["shape"], bool(header["fortran_order"])
        if not isinstance(shape, tuple) or len(shape) > MAX_AXES or not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError
    except (ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError):
        raise InputMissing(f"{where}: its header is damaged") from None
    return dtype, shape, by_columns


def _convert_array(source: Any, target: NDArray[Any], where: str, texts: dict[str, int] | None) -> None:
    """Convert an array block by block, without a second copy of the whole array."""
    if not source.shape:
        target[...] = source
        return
    items = len(source)
    step = max(1, _BLOCK_BYTES * items // max(source.nbytes, 1))
    _convert_blocks(((first, source[first : first + step]) for first in range(0, items, step)), target, where, texts)


def _convert_blocks(
    blocks: Iterator[tuple[int, NDArray[Any]]], target: NDArray[Any], where: str, texts: dict[str, int] | None
) -> None:
    """Convert blocks of rows, each given with the index of its first row."""
    import numpy as np

    for first, part in blocks:
        if texts is not None:
            from partrain.data.tables.labels import encode_labels

            part = encode_labels(part, texts, where, first)
        rows = target[first : first + len(part)]
        if part.dtype == np.uint64 and target.dtype == np.int64 and (part > np.iinfo(np.int64).max).any():
            raise InputMissing(f"{where}: holds a whole number of more than 63 bits")
        try:
            with np.errstate(over="raise"):
                rows[...] = part.reshape(rows.shape)
        except FloatingPointError:
            item, at = first_bad(np.abs(part) > np.finfo(target.dtype).max)
            raise InputMissing(f"{where}: item {first + item} holds a number that {target.dtype} cannot{at}") from None


@contextmanager
def _reading_arrays(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InputMissing(f"{path}: No such file or directory") from None
    except MemoryError as error:
        raise InputMissing(f"{path}: does not fit into memory: {error or 'too many numbers'}") from None
    except (OSError, EOFError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        if "unable to lock file" in str(error):  # HDF5's
            raise InputMissing(f"{path}: another process has it open and locked: wait until that has closed it") from None
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise InputMissing(f"{path}: damaged, or of another kind: {reason.splitlines()[0]}") from None
