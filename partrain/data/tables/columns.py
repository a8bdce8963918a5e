"""The recipe from a row of a table to an item: each input column becomes numbers, one-hot words, a code, or parts of a date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from partrain.data.base import Class
from partrain.data.tables.cells import parse_class
from partrain.data.tables.files import RowBlock, is_missing

Missing = str | Mapping[str, str | float]
"""Treatment of cells without a value: of all columns; or by column, where `OTHERS` stands for the columns not named."""
OTHERS = "*"
MISSING_CODE, UNSEEN_CODE = 0, 1
"""Codes of a cell without a value, and of a word that is not known. The words follow."""
DAY, CYCLES, CLOCK = "day", ("year", "week"), "time"
"""Parts of a date: days since 1970; sine and cosine of the day in year and week, and of the time of day."""


@dataclass(frozen=True)
class TableSchema:
    """Recipe from a row to an item."""

    inputs: tuple[str, ...]
    """Columns of inputs."""
    words: dict[str, tuple[str, ...]]
    """Words of each one-hot column."""
    targets: tuple[str, ...]
    classes: tuple[Class, ...] | None
    """Classes of the target, by label; None where targets are numbers."""
    missing: Missing
    selected: tuple[Class, ...] | None = None
    """Classes whose rows are used; None: all rows."""
    codes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Words of each column of codes, in the order of their codes."""
    dates: dict[str, bool] = field(default_factory=dict)
    """Columns of dates; True where they have a time of day."""
    indicators: Mapping[str, None] = field(default_factory=dict)
    """Columns that get another number: 1 where a cell has no value."""

    @property
    def features(self) -> list[str]:
        """Names of an item's numbers: a column, `column=word`, `column:part of a date` or `column missing`."""
        return [name for column in self.inputs for name in self._of(column)]

    @property
    def numeric(self) -> list[bool]:
        """Features that have a mean and a deviation, the others being words, codes and indicators."""
        found: list[bool] = []
        for column in self.inputs:
            number = column not in self.words and column not in self.codes
            found += [number] * (len(self._of(column)) - (column in self.indicators)) + [False] * (column in self.indicators)
        return found

    @property
    def categories(self) -> tuple[int, ...]:
        """Number of codes of each feature, 0 for a number; empty where no column has codes."""
        if not self.codes:
            return ()
        first = {name: len(self.codes[name]) + UNSEEN_CODE + 1 for name in self.codes}
        return tuple(
            first.get(column, 0) if number == 0 else 0 for column in self.inputs for number in range(len(self._of(column)))
        )

    @property
    def width(self) -> int:
        """Numbers of an item."""
        return len(self.features)

    @property
    def used(self) -> tuple[str, ...]:
        """All columns that are read."""
        return (*self.inputs, *self.targets)

    def filling(self, column: str) -> str | float:
        """Return the treatment of the column's cells without a value."""
        return filling(self.missing, column)

    def may_miss(self, column: str) -> bool:
        """Tell if an input column may have cells without a value."""
        how = self.filling(column)
        return how not in ("error", "drop") and (how != "category" or column in self.words or column in self.codes)

    def _of(self, column: str) -> list[str]:
        names = [column]
        if column in self.words:
            names = [f"{column}={word}" for word in self.words[column]]
        elif column in self.dates:
            cycles = (*CYCLES, CLOCK) if self.dates[column] else CYCLES
            names = [f"{column}:{DAY}", *(f"{column}:{wave} of {cycle}" for cycle in cycles for wave in ("sin", "cos"))]
        return names + [f"{column} missing"] * (column in self.indicators)


def filling(missing: Missing, column: str) -> str | float:
    """Return the treatment of a column's cells without a value."""
    return missing if isinstance(missing, str) else missing.get(column, missing.get(OTHERS, "error"))


def used_rows(block: RowBlock, schema: TableSchema) -> RowBlock:
    """Remove rows of classes that are not selected, and rows with a missing value, where the schema asks for it."""
    whole = [True] * len(block.positions)
    if schema.selected is not None:
        names = set(map(str, schema.selected))
        whole = [is_missing(cell) or parse_class(cell, False) in names for cell in block.columns[schema.targets[0]]]
    if complete := [cells for name, cells in block.columns.items() if schema.filling(name) == "drop"]:
        rows = zip(whole, *complete, strict=True)
        whole = [chosen and not any(map(is_missing, cells)) for chosen, *cells in rows]
    if all(whole):
        return block

    def those(cells: Sequence[Any]) -> list[Any]:
        return [cell for cell, keep in zip(cells, whole, strict=True) if keep]

    return RowBlock(those(block.positions), {name: those(cells) for name, cells in block.columns.items()})
