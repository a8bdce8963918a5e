"""Excel sheets: cells as text, read by the package fastexcel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from partrain.data.base import reading
from partrain.data.tables.files import TableFile, header_names
from partrain.errors import InputMissing
from partrain.preprocess.column import RowBlock


class ExcelFile(TableFile):
    """The first sheet of an Excel file. Its first row that is not empty has the column names; empty rows are skipped."""

    @property
    def header_location(self) -> str:
        return self.locate(self._rows[0] if self._rows else 1)

    def locate(self, number: int) -> str:
        return f"{self.path}: row {number}"

    def _header(self) -> list[str]:
        names = [cell or "" for cell in self._sheet.row(0)] if self._rows else None
        return header_names(names, self.header_location)

    def _blocks(self, names: Sequence[str], *, dense: bool) -> Iterator[RowBlock]:
        from partrain.data.tables.polars_cells import cells_of_column

        if dense and self._rows[-1] - self._rows[0] >= len(self._rows):
            gap = next(row for row in self._rows if row + 1 not in self._rows) + 1
            raise InputMissing(f"{self.locate(gap)}: an empty row, and rows after it: fill it in, or delete it")
        columns = self._sheet.slice(1).get_columns()
        yield RowBlock(self, self._rows[1:], {name: cells_of_column(columns[self.places[name]]) for name in names})

    @cached_property
    def _rows(self) -> list[int]:
        """The numbers of the rows that are not empty."""
        return [int(number) for number in self._numbered.get_column("row")]

    @cached_property
    def _sheet(self) -> Any:
        """The rows that are not empty, a DataFrame of polars."""
        return self._numbered.drop("row")

    @cached_property
    def _numbered(self) -> Any:
        try:
            import fastexcel
        except ImportError:
            raise InputMissing(
                f"{self.path}: Excel files need fastexcel, which is not installed: pip install 'partrain[excel]'"
            ) from None
        import polars

        with reading(self.path, "damaged, or no Excel file", fastexcel.FastExcelError):
            self.path.open("rb").close()  # a missing file is not a damaged one
            book = fastexcel.read_excel(self.path)
            sheet = book.load_sheet(0, header_row=None, skip_rows=0, dtypes="string")
            self.remark = f"read is the first of {len(book.sheet_names)} sheets, `{sheet.name}`" * (len(book.sheet_names) > 1)
            cells = sheet.to_polars()
        return cells.with_row_index("row", 1).filter(~polars.all_horizontal(polars.exclude("row").fill_null("") == ""))
