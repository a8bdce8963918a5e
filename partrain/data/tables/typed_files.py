"""Tables whose cells have types: files that polars reads, and DataFrames in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from partrain.data.base import reading
from partrain.data.tables.files import ROWS, SET, TableFile
from partrain.preprocess.column import RowBlock


class ParquetFile(TableFile):
    """A Parquet file."""

    @property
    def header_location(self) -> str:
        return str(self.path)

    def locate(self, number: int) -> str:
        return f"{self.path}: row {number}"

    def _blocks(self, names: Sequence[str], *, dense: bool) -> Iterator[RowBlock]:
        from partrain.data.tables.polars_cells import cells_of_column

        first = 1
        for part in self._frame(names).iter_slices(ROWS << 4):
            yield RowBlock(
                self, range(first, first + part.height), {name: cells_of_column(part.get_column(name)) for name in names}
            )
            first += part.height

    def _header(self) -> list[str]:
        with self._named() as polars:
            return list(polars.read_parquet_schema(self.path))

    def _frame(self, names: Sequence[str]) -> Any:
        with self._named() as polars:
            return polars.read_parquet(self.path, columns=list(names), use_statistics=False)

    @contextmanager
    def _named(self) -> Iterator[Any]:
        import polars

        with reading(self.path, "damaged, or no Parquet file", polars.exceptions.PolarsError):
            yield polars


class FrameTable(ParquetFile):
    """A DataFrame of polars in memory, with a name for messages. Its rows are those of the Parquet file that would hold it."""

    def __init__(self, frame: Any, name: str, advice: str = SET, null_values: Sequence[str] | None = None) -> None:
        self._whole = frame
        super().__init__(Path(name), advice, null_values)

    def _header(self) -> list[str]:
        return list(self._whole.columns)

    def _frame(self, names: Sequence[str]) -> Any:
        return self._whole.select(names)
