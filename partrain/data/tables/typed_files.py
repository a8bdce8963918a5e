"""Tables with typed cells: files that polars reads, and DataFrames in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

from partrain.data.base import reading
from partrain.data.tables.files import ROWS, SET, TableFile
from partrain.errors import InputMissing
from partrain.preprocess.column import RowBlock

PART = ROWS << 4
"""Number of rows held in memory at a time."""
DIGITS = 38
"""Maximum number of digits of a decimal number that polars reads."""


class ParquetFile(TableFile):
    """A Parquet file."""

    form: ClassVar = "Parquet"

    @property
    def header_location(self) -> str:
        return str(self.path)

    def locate(self, number: int) -> str:
        return f"{self.path}: row {number}"

    def _blocks(self, names: Sequence[str], *, dense: bool) -> Iterator[RowBlock]:
        from partrain.data.tables.polars_cells import cells_of_column

        first = 1
        for part in self._parts(names):
            yield RowBlock(
                self, range(first, first + part.height), {name: cells_of_column(part.get_column(name)) for name in names}
            )
            first += part.height

    def _header(self) -> list[str]:
        with self._named() as polars:
            self._types = self._schema(polars)
        return list(self._types)

    def _parts(self, names: Sequence[str]) -> Iterator[Any]:
        """Yield the columns of all rows as DataFrames of some rows each."""
        for name in names:
            if (digits := getattr(self._types[name], "precision", None) or 0) > DIGITS:
                what = f"decimal numbers of {digits} digits, where {DIGITS} can be read; save them as float64"
                raise InputMissing(f"{self.path}: column `{name}`: {what}")
        with self._named() as polars:
            frame = self._read(polars, list(names))
        for first in count(0, PART):
            with self._named():
                part = frame.slice(first, PART).lazy().collect()
            if part.height:
                yield part
            if part.height < PART:
                break

    def _schema(self, polars: Any) -> Any:
        return polars.read_parquet_schema(self.path)

    def _metadata(self, polars: Any) -> Mapping[str, str]:
        stored: dict[str, str] = polars.read_parquet_metadata(self.path)
        return stored

    def _read(self, polars: Any, names: list[str]) -> Any:
        """Return columns of all rows, as a DataFrame or as a query that reads rows on demand."""
        return polars.scan_parquet(self.path, use_statistics=False).select(names)

    @cached_property
    def index(self) -> list[str]:
        usual = super().index
        with self._named() as polars:
            stored = json.loads(self._metadata(polars).get("pandas", "{}")).get("index_columns", ())
        return [name for name in self.names if name in stored or name in usual]

    @cached_property
    def unusable(self) -> Mapping[str, str]:
        return {name: "lists or objects" for name, kind in self._types.items() if kind.is_nested()}

    @contextmanager
    def _named(self) -> Iterator[Any]:
        import polars

        with reading(
            self.path, f"damaged, or no {self.form} file", polars.exceptions.PolarsError, polars.exceptions.PanicException
        ):
            yield polars


class ArrowFile(ParquetFile):
    """An Arrow (Feather) file, or an Arrow stream in a file."""

    form: ClassVar = "Arrow"

    def _schema(self, polars: Any) -> Any:
        with self.path.open("rb") as file:
            self._stream = file.read(4) == b"\xff\xff\xff\xff"
        return polars.Schema(polars.read_ipc_schema(self.path)) if not self._stream else self._read(polars, None, n_rows=0).schema

    def _metadata(self, polars: Any) -> Mapping[str, str]:
        return {}

    def _read(self, polars: Any, names: list[str] | None, **more: int) -> Any:
        read = polars.read_ipc_stream if self._stream else polars.read_ipc
        return read(self.path, columns=names, **more)


class FrameTable(ParquetFile):
    """A polars DataFrame in memory, with a name for messages. It behaves like the Parquet file that would hold its rows."""

    def __init__(self, frame: Any, name: str, advice: str = SET, null_values: Sequence[str] | None = None) -> None:
        self._whole = frame
        super().__init__(Path(name), advice, null_values)

    def _schema(self, polars: Any) -> Any:
        return self._whole.schema

    def _read(self, polars: Any, names: list[str]) -> Any:
        return self._whole.select(names)

    def _metadata(self, polars: Any) -> Mapping[str, str]:
        return {}
