"""Columns of numbers and of truth values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from partrain.preprocess.cells import parse_bool, parse_date
from partrain.preprocess.column import ColumnKind, RawColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class NumberColumn(ColumnKind):
    """Numbers; `true` and `false` are 1 and 0."""

    def misread(self, column: RawColumn, index: int) -> str:
        cell, where, advises = column.cells[index], column.where(index), bool(column.source.way)
        text = str(cell)
        if parse_bool(cell) is not None:
            return ""
        try:
            number = float("_" if "_" in text else cell)
        except (TypeError, ValueError):
            if advises and parse_date(cell):
                return f"{where}: `{text[:60]}` is a date, no number; list the column in `dates`, or in `drop`"
            advice = "; list the column in `one_hot` or `categories` if it holds words, or in `drop`" * advises
            return f"{where}: `{text[:60]}` is no number{advice}"
        return "" if math.isfinite(number) else f"{where}: `{text}` is no finite number"

    def first_fault(self, column: RawColumn) -> tuple[Sequence[str], str] | None:
        try:
            if not _underscored(column.cells) and math.isfinite(sum(map(float, column.cells))):
                return None
        except (TypeError, ValueError):
            pass
        return super().first_fault(column)

    def read(self, column: RawColumn) -> NDArray[Any]:
        import numpy as np

        try:
            numbers = np.fromiter(map(float, column.cells), np.float64, len(column.cells))
            if np.isfinite(numbers).all() and not _underscored(column.cells):
                return numbers
        except (TypeError, ValueError):
            pass
        return super().read(column)

    def parse(self, cell: Any) -> float:
        truth = parse_bool(cell)
        return float(cell if truth is None else truth)


def _underscored(cells: Sequence[Any]) -> bool:
    """Tell if a text has an underscore, which Python reads as part of a number."""
    return isinstance(cells[0], str) and "_" in "".join(cells)
