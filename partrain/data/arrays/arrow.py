"""A data set written by `save_to_disk` of Hugging Face datasets: a folder of memory-mapped Arrow streams and two JSON files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from partrain.config.problems import did_you_mean
from partrain.data.arrays.files import ArraySource
from partrain.data.base import reading
from partrain.errors import InputMissing
from partrain.system.regular_file import parse_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NUMBERS = {"bool": "|b1", "halffloat": "<f2", "float": "<f4", "double": "<f8", "uint8": "|u1", "int8": "|i1"} | {
    f"{sign}int{8 * width}": f"<{sign or 'i'}{width}" for sign in ("", "u") for width in (2, 4, 8)
}
"""numpy's name of each Arrow type of numbers."""
TEXT = "|S"
"""Type of texts, as in other files."""
_END = b"\xff\xff\xff\xff\0\0\0\0"
"""Marker at the end of a complete Arrow stream."""


@dataclass(frozen=True)
class SavedDataset:
    """One data set: a folder of Arrow files, and the JSON files that describe it."""

    path: Path

    @cached_property
    def state(self) -> dict[str, Any]:
        return read_json(self.path / "state.json")

    @cached_property
    def features(self) -> dict[str, Any]:
        return read_json(self.path / "dataset_info.json").get("features") or {}

    @cached_property
    def table(self) -> Any:
        """All rows, memory-mapped."""
        if self.state.get("_indices_data_files"):
            raise InputMissing(
                f"{self.path}: saved by an old version of datasets, with an index of rows: save it again with a newer one"
            )
        files = [self.path / Path(one["filename"]).name for one in self.state.get("_data_files") or []]
        if not files:
            raise InputMissing(f"{self.path}: holds no rows: its state.json names no files")
        tables = [_table(file) for file in files]
        for file, table in zip(files, tables, strict=True):
            if not table.schema.equals(tables[0].schema):
                raise InputMissing(f"{file}: has other columns than {files[0].name}")
        return _pyarrow().concat_tables(tables)

    def where(self, name: str) -> str:
        """Describe a column for messages."""
        return f"{self.path}: column `{name}`"

    def feature(self, name: str) -> str:
        """Return the feature type of a column: `Value`, `ClassLabel`, `Image`; empty for older kinds of lists."""
        said = self.features.get(name)
        return str(said.get("_type", "")) if isinstance(said, dict) else ""

    def classes(self, name: str) -> list[str] | None:
        """Return the names of the classes of a column, by label."""
        return list(map(str, self.features[name].get("names") or [])) or None if self.feature(name) == "ClassLabel" else None

    def column(self, name: str, key: str) -> Any:
        """Return the rows of a column. `key` of the table asks for it."""
        names = self.table.column_names
        require_name(name, names, f"{self.path}: no column `{name}`, which `{key}` asks for")
        if not len(self.table):
            raise InputMissing(f"{self.path}: holds no rows")
        return self.table.column(name)

    def numbers(self, names: Sequence[str], key: str) -> ArraySource:
        """Find columns of numbers, or of lists of numbers of one shape. Several columns are concatenated."""
        columns = {name: self.column(name, key) for name in names}
        forms = {name: self._form(name, key) for name in names}
        types = {dtype for dtype, _ in forms.values()}
        axes = [axes for _, axes in forms.values()]
        widths = [prod(each) for each in axes]
        rows = len(self.table)

        def read(target: NDArray[Any]) -> None:
            import numpy as np

            flat, at = target.reshape(rows, -1), 0
            for (name, column), shape, width in zip(columns.items(), axes, widths, strict=True):
                for first, chunk in chunks(column):
                    with np.errstate(over="ignore"):  # the caller reports numbers beyond float32
                        flat[first : first + len(chunk), at : at + width] = _dense(chunk, shape, self.where(name), first)
                at += width

        if types == {TEXT}:
            texts: dict[str, int] = {}
            return ArraySource(
                self.where(names[0]), self.path, TEXT, (rows,), None, self._reader_of_texts(names[0], texts), texts=texts
            )
        shape = axes[0] if len(axes) == 1 else (sum(widths),)
        return ArraySource(self.where(names[0]), self.path, types.pop() if len(types) == 1 else "<f4", (rows, *shape), None, read)

    def _reader_of_texts(self, name: str, texts: dict[str, int]) -> Callable[[NDArray[Any]], None]:
        def read(target: NDArray[Any]) -> None:
            from partrain.data.tables.labels import encode_labels

            for first, chunk in chunks(self.table.column(name)):
                found = _dense(chunk, (), self.where(name), first)
                target[first : first + len(chunk)] = encode_labels(found, texts, self.where(name), first)[:, 0]

        return read

    def _form(self, name: str, key: str) -> tuple[str, tuple[int, ...]]:
        """Return the type of a column's numbers, and the shape of its first item."""
        first, axes = _storage(self.column(name, key).slice(0, 1).combine_chunks()), []
        while "list" in str(first.type).partition("<")[0]:
            if first.null_count:
                raise InputMissing(f"{self.where(name)}: item 0 has no value")
            inner = first.flatten()
            axes.append(len(inner) // max(len(first), 1))
            first = inner
        kind = str(first.type)
        if kind in ("string", "large_string"):
            if key == "target" and not axes:
                return TEXT, ()
            advice = 'write it to a file for kind = "text", or save token numbers in lists of one length, and set tokens = true'
            if key == "target":
                advice = "a target is one text, the name of a class, or numbers"
            raise InputMissing(f"{self.where(name)}: holds {'lists of ' * bool(axes)}text; {advice}")
        if kind not in _NUMBERS:
            what = f"{self.feature(name).lower()}s" if self.feature(name) in ("Image", "Audio", "Video") else kind
            images = ", and images as `inputs`" if key == "inputs" else ""
            raise InputMissing(f"{self.where(name)}: holds {what}; numbers and lists of numbers can be used{images}")
        return "|i1" if kind == "bool" and key == "target" else _NUMBERS[kind], tuple(axes)


class _EmbeddedImage(BytesIO):
    """An image stored in a column; its text is its location."""

    def __init__(self, content: bytes, where: str) -> None:
        super().__init__(content)
        self._where = where

    def __str__(self) -> str:
        return self._where

    def __repr__(self) -> str:
        return repr(self._where)


def images(rows: Any, where: str, first: int = 0) -> Iterator[Path | IO[bytes]]:
    """Yield the images of a column: their bytes, or the path of the file they name."""
    for number, row in enumerate(rows, first):
        image = row.as_py() or {}
        if image.get("bytes") is not None:
            yield _EmbeddedImage(image["bytes"], f"{where}: item {number}")
        elif image.get("path"):
            yield Path(image["path"])
        else:
            raise InputMissing(f"{where}: item {number} has no image")


def _dense(chunk: Any, axes: tuple[int, ...], where: str, first: int) -> NDArray[Any]:
    """Convert rows to (n, numbers of an item). `first` is the index of the first row.

    Raises:
        InputMissing: an item has no value, or another shape.
    """
    inner, each = _storage(chunk), 1
    for size in (*axes, None):
        if inner.null_count:
            raise InputMissing(f"{where}: item {first + inner.is_null().index(True).as_py() // each} has no value")
        if size is None:
            break
        if hasattr(inner, "value_lengths"):  # lists of variable length
            lengths = inner.value_lengths().to_numpy()
            if (odd := lengths != size).any():
                at = int(odd.argmax())
                raise InputMissing(f"{where}: item {first + at // each} has a list of {lengths[at]} where others have {size}")
        inner, each = inner.flatten(), each * size
    numbers: NDArray[Any] = inner.to_numpy(zero_copy_only=False).reshape(len(chunk), -1)
    return numbers


def chunks(column: Any) -> Iterator[tuple[int, Any]]:
    """Yield the chunks of a column, each with the index of its first row."""
    first = 0
    for chunk in column.chunks:
        if len(chunk):
            yield first, chunk
        first += len(chunk)


def _storage(array: Any) -> Any:
    """Return the storage array of an extension type. Where datasets is imported, pyarrow knows its types, which are lists too."""
    return getattr(array, "storage", array)


def _table(file: Path) -> Any:
    """Memory-map the rows of an Arrow stream."""
    pa = _pyarrow()
    with reading(file, "", ValueError):
        with file.open("rb") as whole:
            whole.seek(-min(len(_END), file.stat().st_size), 2)
            if whole.read() != _END:
                raise ValueError("its end is missing: it was not written or copied to the end")
        return pa.ipc.open_stream(pa.memory_map(str(file))).read_all()


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise InputMissing(
            "Hugging Face sets are read by pyarrow, which is not installed: pip install 'partrain[huggingface]'"
        ) from None
    return pyarrow


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; InputMissing if the file is missing or damaged."""
    with reading(path):
        content = path.read_bytes()
    try:
        found = parse_json(content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InputMissing(f"{path}: damaged: no JSON object")
    return found


def require_name(name: str, known: Sequence[str], fault: str) -> None:
    """Raise InputMissing, beginning with `fault`, unless the name is known."""
    if name not in known:
        near = did_you_mean(name, known)
        raise InputMissing(f"{fault}: did you mean `{near}`?" if near else f"{fault}: there are {', '.join(known)}")
