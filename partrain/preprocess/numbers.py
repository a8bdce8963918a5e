"""Columns of numbers and of truth values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from partrain.preprocess.cells import finite, is_number, parse_bool, parse_date
from partrain.preprocess.column import ColumnKind, RowBlock


@dataclass(frozen=True)
class NumberColumn(ColumnKind):
    """Numbers; `true` and `false` are 1 and 0."""

    def raw(self, block: RowBlock, name: str, *, holes: bool) -> list[Any]:
        cells = block.columns[name]
        with suppress(TypeError, ValueError):
            numbers = list(map(float, cells))
            if math.isfinite(sum(numbers)) and not _underscored(cells):
                return numbers
        return super().raw(block, name, holes=holes)

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


def _underscored(cells: Sequence[Any]) -> bool:
    """Return whether a text has an underscore, which Python reads as part of a number."""
    return bool(cells) and isinstance(cells[0], str) and "_" in "".join(cells)
