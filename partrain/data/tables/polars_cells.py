"""Cells in a polars column: texts of a CSV file, or the values of a typed file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np
import polars
from polars import Boolean, Float64, Series, String

from partrain.preprocess.cell_columns import Cells, finite_or

_EMPTY = re.compile(r"(?:^|\n)\r?\n")


class PolarsCells(Cells):
    """The cells of a column of polars."""

    def __init__(self, column: Series) -> None:
        self.column = column

    @cached_property
    def _values(self) -> list[Any]:  # type: ignore[override]
        return self.column.to_list()

    def __len__(self) -> int:
        return len(self.column)

    def counts(self, most: int | None = None) -> Counter[Any]:
        few = self.column if most is None else self.column.head(2 * most)  # enough if most cells differ
        column = few if most is not None and few.n_unique() >= most else self.column
        counted = column.alias("cell").to_frame().group_by("cell", maintain_order=True).len()
        counted = counted if most is None else counted.head(most)
        return Counter(dict(zip(*(column.to_list() for column in counted.get_columns()), strict=True)))

    def mapped(self, function: Callable[[Any], Any]) -> Any:
        different = self.column.unique(maintain_order=True)
        values = Series([function(cell) for cell in different.to_list()], strict=False)
        return self.column.replace_strict(different, values).to_numpy() if len(values) else []

    def numbers(self, function: Callable[[Any], float]) -> Any:
        if not self._spells_numbers:
            return self.mapped(lambda cell: finite_or(function, cell))
        numbers = self.column.cast(Float64, strict=False)
        fine = numbers.is_finite().fill_null(value=False)
        result = numbers.fill_null(0.0).to_numpy(writable=True)
        if not fine.all():
            result[~fine.to_numpy()] = PolarsCells(self.column.filter(~fine)).mapped(lambda cell: finite_or(function, cell))
        return result

    def odd(self) -> Counter[Any]:
        if not self._spells_numbers:
            return super().odd()
        fine = self.column.cast(Float64, strict=False).is_finite().fill_null(value=False)
        return Cells.odd(PolarsCells(self.column.filter(~fine)))

    def kept(self, kept: Sequence[bool]) -> PolarsCells:
        return PolarsCells(self.column.filter(Series(kept, dtype=Boolean)))

    @property
    def _spells_numbers(self) -> bool:
        """True if a cast accepts only the texts that Python's `float` accepts as numbers, and gives the same numbers."""
        kind = self.column.dtype
        return kind in (String, Boolean) or kind.is_integer() or kind.is_float()


def cells_of_column(column: Series, rewrite: Callable[[str], str] | None = None) -> Cells:
    """Return the cells of a column.

    Texts are rewritten. Lists and structures become texts, which can be counted. Durations become seconds.
    """
    if rewrite:
        different = column.unique(maintain_order=True)
        return PolarsCells(column.replace_strict(different, Series(list(map(rewrite, different.to_list())), dtype=String)))
    if column.dtype.is_nested():
        return Cells([None if cell is None else str(cell) for cell in column.to_list()])
    if column.dtype == polars.Duration:
        column = column.dt.total_nanoseconds() / 1e9
    elif column.dtype == polars.Binary:
        with suppress(polars.exceptions.ComputeError):  # bytes that are not text
            column = column.cast(String)
    return PolarsCells(column.cast(String) if column.dtype in (polars.Categorical, polars.Enum) else column)


def text_columns(lines: str, width: int, separator: str) -> polars.DataFrame | None:
    """Split whole lines of text into `width` columns of texts, as the module csv does.

    Return None if the two may differ: a quoted cell with a line end, quotes elsewhere than around a cell, rows of another width,
    empty lines, a lone carriage return. Polars refuses longer rows, and fills shorter ones; the number of separators reveals the
    latter.
    """
    lines += "" if lines.endswith("\n") else "\n"
    bare = lines
    if '"' in lines:
        edge = re.escape(separator)
        bare = re.sub(rf'"(?:(?<=[{edge}\n]")|(?<=\A"))(?:[^"\n]|"")*"(?=[{edge}\r\n])', "", lines)
    if '"' in bare or ("\r" in lines and lines.count("\r") != lines.count("\r\n")) or (width == 1 and _EMPTY.search(lines)):
        return None
    schema = {str(place): String for place in range(width)}
    try:
        frame = polars.read_csv(
            lines.encode(), has_header=False, schema=schema, separator=separator, infer_schema=False, empty_string_is_null=False
        )
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException):
        return None
    count = _count(lines, "\n")
    return frame if frame.shape == (count, width) and _count(bare, separator) == count * (width - 1) else None


def _count(text: str, character: str) -> int:
    """Count a character; by numpy if it is one byte, as `str.count` is slower."""
    return (
        int(np.count_nonzero(np.frombuffer(text.encode(), np.uint8) == ord(character)))
        if character.isascii()
        else text.count(character)
    )
