"""Data sets written by `save_to_disk` of Hugging Face datasets. `datasets` loads them; this module makes arrays of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib import import_module
from io import BytesIO
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from partrain.config.problems import did_you_mean
from partrain.data.arrays.files import ArraySource
from partrain.data.images import decode
from partrain.errors import InputMissing

if TYPE_CHECKING:
    from numpy.typing import NDArray

_IMAGES = 1024
"""Number of images whose files are held in memory at a time."""
NOT_INSTALLED = "Hugging Face sets are read by `datasets`, which is not installed: pip install 'partrain[huggingface]'"


@dataclass(frozen=True)
class SavedDataset:
    """One data set, or one split of several."""

    path: Path
    data: Any
    """The `datasets.Dataset`, memory-mapped."""

    def where(self, name: str) -> str:
        """Describe a column for messages."""
        return f"{self.path}: column `{name}`"

    def is_images(self, name: str) -> bool:
        return type(self.data.features.get(name)).__name__ == "Image"

    def classes(self, name: str) -> list[str] | None:
        """Return the names of the classes of a column, by label."""
        return getattr(self.data.features.get(name), "names", None) or None

    def column(self, name: str, key: str) -> Any:
        """Return the rows of a column. `key` is the table's key that asks for it."""
        require_name(name, self.data.column_names, f"{self.path}: no column `{name}`, which `{key}` asks for")
        if not len(self.data):
            raise InputMissing(f"{self.path}: holds no rows")
        return self.data.with_format("arrow")[:].column(name)

    def arrays(self, names: Sequence[str], key: str) -> ArraySource:
        """Find columns of numbers, or of lists of numbers of one shape. Several columns are concatenated."""
        columns = [self._array(name, key) for name in names]
        if len(columns) == 1:
            return columns[0]
        widths = [prod(column.shape[1:]) for column in columns]
        dtypes = {column.dtype for column in columns}

        def read(target: NDArray[Any]) -> None:
            for at, width, column in zip(accumulate(widths, initial=0), widths, columns, strict=False):
                target[:, at : at + width] = column.whole(target.dtype).reshape(-1, width)

        shape, dtype = (len(self.data), sum(widths)), dtypes.pop() if len(dtypes) == 1 else "<f4"
        return replace(columns[0], dtype=dtype, shape=shape, read=read)

    def _array(self, name: str, key: str) -> ArraySource:
        """Find a column. InputMissing if it is not numeric, or an item has no value or a shape unlike the first."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        from partrain.data.tables.labels import encode_labels

        values, where = self.column(name, key), self.where(name)
        axes: list[int] = []
        texts: dict[str, int] | None = None
        while True:
            if values.null_count:
                item = pc.index(pc.is_null(values), True).as_py() // prod(axes)
                raise InputMissing(f"{where}: item {item} has no value")
            if isinstance(values.type, pa.BaseExtensionType):  # `Array2D` and similar types
                values = values.cast(values.type.storage_type)
            if not isinstance(values.type, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
                break
            lengths = pc.list_value_length(values)
            if (odd := pc.index(pc.equal(lengths, lengths[0]), False).as_py()) >= 0:
                what = f"a list of {lengths[odd]} where others have {lengths[0]}"
                raise InputMissing(f"{where}: item {odd // prod(axes)} has {what}")
            axes.append(lengths[0].as_py())
            values = pc.list_flatten(values)
        kind = values.type
        if key == "target" and not axes and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            dtype, texts = "|S", {}
        elif pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
            dtype = np.dtype(kind.to_pandas_dtype()).str
        else:
            advice = "inputs are numbers, lists of numbers, or images; a target may be text"
            raise InputMissing(f"{where}: is {self.data.features[name]!r}; {advice}")

        def read(target: NDArray[Any]) -> None:
            flat, first = target.reshape(-1), 0
            for chunk in values.chunks:
                numbers = chunk.to_numpy(zero_copy_only=False)
                with np.errstate(over="ignore"):  # the caller reports numbers beyond float32
                    flat[first : first + len(chunk)] = numbers if texts is None else encode_labels(numbers, texts, where, first)
                first += len(chunk)

        return ArraySource(where, self.path, dtype, (len(self.data), *axes), None, read, texts=texts)

    def images(self, name: str) -> Iterator[Path | IO[bytes]]:
        """Yield the input images: their bytes, or the path of the file they name."""
        for number, row in enumerate(self.column(name, "inputs")):
            image = row.as_py() or {}
            if image.get("bytes") is not None:
                yield _EmbeddedImage(image["bytes"], f"{self.where(name)}: item {number}")
            elif image.get("path"):
                yield Path(image["path"])
            else:
                raise InputMissing(f"{self.where(name)}: item {number} has no image")

    def decode(self, name: str, pixels: NDArray[Any], *, resize: bool) -> None:
        """Decode images into `pixels` (n, channels, height, width). InputMissing if one cannot be decoded or has another size."""
        images = self.images(name)
        for first in range(0, len(pixels), _IMAGES):
            block = pixels[first : first + _IMAGES]
            if faults := decode([next(images) for _ in block], block, resize=resize):
                raise InputMissing(faults[0])


class _EmbeddedImage(BytesIO):
    """An image stored in a column; its text is its location."""

    def __init__(self, content: bytes, where: str) -> None:
        super().__init__(content)
        self._where = where

    def __str__(self) -> str:
        return self._where

    def __repr__(self) -> str:
        return repr(self._where)


def is_saved(path: Path) -> bool:
    """Return whether a folder looks like the output of `save_to_disk`."""
    return any((path / name).is_file() for name in ("state.json", "dataset_dict.json"))


def load_saved(path: Path) -> SavedDataset | dict[str, SavedDataset]:
    """Load a data set, or several by split. InputMissing if `datasets` is not installed, or cannot load the folder."""
    try:
        datasets = import_module("datasets")
        load_from_disk = datasets.load_from_disk
    except (ImportError, AttributeError):  # an empty folder `datasets` on Python's path is also a package
        raise InputMissing(NOT_INSTALLED) from None
    with ExitStack() as stack:
        if not datasets.are_progress_bars_disabled():
            datasets.disable_progress_bars()
            stack.callback(datasets.enable_progress_bars)
        try:
            loaded = load_from_disk(str(path), keep_in_memory=False)
        except Exception as error:  # of any kind, for a damaged folder
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise InputMissing(f"{path}: datasets cannot load it: {reason}") from None
    if isinstance(loaded, dict):
        return {name: SavedDataset(path / name, data) for name, data in loaded.items()}
    return SavedDataset(path, loaded)


def require_name(name: str, names: Sequence[str], fault: str) -> None:
    """Raise InputMissing, beginning with `fault`, unless the name is known."""
    if name not in names:
        near = did_you_mean(name, names)
        raise InputMissing(f"{fault}: did you mean `{near}`?" if near else f"{fault}: there are {', '.join(names)}")
