"""Columns of numbers and of truth values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from partrain.preprocess.cells import finite, is_number, parse_bool, parse_date
from partrain.preprocess.column import ColumnKind, RowBlock


@dataclass(frozen=True)
class NumberColumn(ColumnKind):
    """Numbers; `true` and `false` are 1 and 0."""

    def convert(self, block: RowBlock, name: str, value: Callable[[Any], float]) -> Sequence[Any]:
        cells = block.columns[name]
        return cells.mapped(value) if block.source.numbers_missing else cells.numbers(value)

    def parse(self, cell: Any) -> float:
        truth = parse_bool(cell)
        return finite(cell) if truth is None else float(truth)

    def fault(self, cell: Any, *, advises: bool) -> str:
        text = str(cell)
        if is_number(cell):
            return f"`{text}` is no finite number"
        if advises and parse_date(cell):
            return f"`{text[:60]}` is a date, no number; list the column in `dates`, or in `drop`"
        advice = "; list the column in `one_hot` or `categories` if it holds words, or in `drop`" * advises
        return f"`{text[:60]}` is no number{advice}"
