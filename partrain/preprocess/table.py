"""The recipe from a row of a table to an item: each input column becomes features by its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from partrain.preprocess.cells import Class, parse_class
from partrain.preprocess.column import ColumnKind, RowBlock, double
from partrain.preprocess.dates import DateColumn
from partrain.preprocess.numbers import LogColumn, NumberColumn
from partrain.preprocess.texts import TextColumn
from partrain.preprocess.words import CategoryColumn, OneHotColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

Missing = str | Mapping[str, str | float]
"""Treatment of cells without a value: one for all columns; or by column, with `OTHERS` for the columns not named."""
OTHERS = "*"
KINDS: tuple[type[ColumnKind], ...] = (OneHotColumn, CategoryColumn, DateColumn, TextColumn, LogColumn)
"""Kinds of columns that a key names; all other columns are numbers."""


@dataclass(frozen=True)
class TableSchema:
    """Recipe from a row to an item."""

    kinds: Mapping[str, ColumnKind]
    """Kind of each input column, in the order of the features."""
    targets: tuple[str, ...]
    classes: tuple[Class, ...] | None
    """Classes of the target, by label; None if targets are numbers."""
    missing: Missing
    selected: tuple[Class, ...] | None = None
    """Classes whose rows are used; None: all rows."""
    time: tuple[str, ...] = ()
    """Columns by which the rows are sorted, in order of priority."""
    indicators: Mapping[str, None] = field(default_factory=dict)
    """Columns with an additional number: 1 for a cell without a value."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns of inputs."""
        return tuple(self.kinds)

    @property
    def words(self) -> dict[str, list[str]]:
        """Words of each column of words."""
        return {name: kind.stored for name, kind in self.kinds.items() if kind.holds_words}

    @property
    def features(self) -> list[str]:
        """Names of an item's numbers: a column, `column=word`, `column:part of a date` or `column missing`."""
        return self._each(lambda name, kind: kind.features(name), "{} missing".format)

    @property
    def owners(self) -> list[str]:
        """Column of each feature."""
        return self._each(lambda name, kind: [name] * len(kind.features(name)), str)

    @property
    def numeric(self) -> list[bool]:
        """Mask of the features with a mean and a deviation; the others are words, codes and indicators."""
        return self._each(lambda name, kind: [kind.amounts] * len(kind.features(name)), lambda _: False)

    @property
    def categories(self) -> tuple[int, ...]:
        """Number of codes of each feature, 0 for a number; empty if no column has codes."""
        counts = self._each(lambda name, kind: [kind.codes] * len(kind.features(name)), lambda _: 0)
        return tuple(counts) if any(counts) else ()

    @property
    def width(self) -> int:
        """Numbers of an item."""
        return len(self.features)

    @property
    def used(self) -> tuple[str, ...]:
        """All columns that are read."""
        return tuple(dict.fromkeys((*self.inputs, *self.targets, *self.time)))

    def filling(self, column: str) -> str | float:
        """Return the treatment of the column's cells without a value."""
        missing = self.missing
        return missing if isinstance(missing, str) else missing.get(column, missing.get(OTHERS, "error"))

    def may_miss(self, column: str) -> bool:
        """Return whether an input column may have cells without a value."""
        how = self.filling(column)
        return how not in ("error", "drop") and (how != "category" or self.kinds[column].holds_words)

    def kept(self, block: RowBlock) -> RowBlock:
        """Return the rows in use: rows of selected classes that have a value in every column whose treatment is `drop`."""
        is_missing, masks = block.source.is_missing, list[Sequence[bool]]()
        if self.selected is not None:
            names = set(map(str, self.selected))
            cells = block.columns[self.targets[0]]
            masks.append(cells.mapped(lambda cell: is_missing(cell) or parse_class(cell, whole=False) in names))
        dropped = [name for name in self.used if self.filling(name) == "drop"]
        masks += [block.columns[name].mapped(lambda cell: not is_missing(cell)) for name in dropped]
        return block.kept(list(map(all, zip(*masks, strict=True)))) if masks else block

    def raw(self, block: RowBlock, name: str) -> Sequence[Any]:
        """Return the raw values of an input column. CellFault for a cell that cannot be read."""
        return self.kinds[name].raw(block, name, holes=self.may_miss(name))

    def read(self, block: RowBlock) -> NDArray[Any]:
        """Convert cells of some rows to features (n, width). CellFault for a cell that cannot be read."""
        import numpy as np

        features: NDArray[Any] = self.compute(np, {name: np.array(self.raw(block, name)) for name in self.kinds})
        return features

    def compute(self, xp: Any, raw: Mapping[str, Any]) -> Any:
        """Return the features (n, width) of the raw values (n,) of each column, before they are filled in and standardized."""
        parts = []
        for name, kind in self.kinds.items():
            parts.append(kind.compute(xp, raw[name]))
            if name in self.indicators:
                parts.append(double(kind.missing(xp, raw[name]))[:, None])
        return xp.concatenate(parts, axis=1)

    def readable(self, xp: Any, raw: Mapping[str, Any]) -> Any:
        """Return a mask of the items (n,) whose raw values `read` can give; None: all."""
        fine_rows = None
        for name, kind in self.kinds.items():
            fine = kind.readable(xp, raw[name], holes=self.may_miss(name))
            fine_rows = fine if fine_rows is None else fine_rows if fine is None else fine_rows & fine
        return fine_rows

    def _each(self, of: Callable[[str, ColumnKind], list[Any]], indicator: Callable[[str], Any]) -> list[Any]:
        """Return a value for each feature: the values `of` a column, followed by its `indicator`."""
        values: list[Any] = []
        for name, kind in self.kinds.items():
            values += of(name, kind)
            if name in self.indicators:
                values.append(indicator(name))
        return values


def kinds_of(inputs: Sequence[str], named: Callable[[str], Any]) -> dict[str, ColumnKind]:
    """Return the kind of each input column. `named(key)` returns the value that a stored recipe has for each column of a kind."""
    stored_kinds = {name: kind.of(stored) for kind in KINDS for name, stored in named(kind.key).items()}
    return {name: stored_kinds.get(name, NumberColumn()) for name in inputs}
