"""The first rows of a table, from which `partrain init --from` recognises units and codes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any

from partrain.data.tables.files import TableFile
from partrain.preprocess.cell_columns import Cells
from partrain.templates.column_facts import ColumnFacts

LOOKED_AT = 40_000
"""Number of rows to examine."""

Values = Sequence[Any]
"""A column of numbers, or of texts."""


class FirstRows:
    """The first rows of a table, read on demand."""

    def __init__(self, file: TableFile, columns: Mapping[str, ColumnFacts], targets: Sequence[str]) -> None:
        self.targets = targets
        self._file, self._columns = file, columns
        self.values = cache(self._values)
        """Returns a column's cells in rows with targets: as numbers, with their mean for a missing one, or as texts."""

    @cached_property
    def cells(self) -> Mapping[str, Sequence[Any]]:
        """The cells of each column."""
        return self._file.head(LOOKED_AT)

    @cached_property
    def _with_targets(self) -> list[int]:
        rows = zip(*(self.cells[name] for name in self.targets), strict=True)
        return [row for row, texts in enumerate(rows) if not any(map(self._file.is_missing, texts))]

    def used(self, name: str) -> list[Any]:
        """Return a column's cells in rows with targets."""
        return [self.cells[name][row] for row in self._with_targets]

    def _values(self, name: str) -> Values:
        facts, cells = self._columns[name], self.used(name)
        if not facts.numbers or len(facts.different) <= 2:
            return [str(cell).strip() for cell in cells]
        numbers = Cells(cells).numbers(lambda cell: math.nan)
        if facts.holes:
            numbers = [math.nan if self._file.is_missing(cell) else number for cell, number in zip(cells, numbers, strict=True)]
        present = [number for number in numbers if not math.isnan(number)]
        mean = sum(present) / max(len(present), 1)
        return [mean if math.isnan(number) else number for number in numbers]
