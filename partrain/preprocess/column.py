"""Kinds of raw columns: each converts cells to raw values, and raw values to features.

Symbols: n items; xp is numpy, or torch when an exporter traces the steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

from partrain.errors import InputMissing
from partrain.preprocess.cell_columns import Cells

if TYPE_CHECKING:
    from numpy.typing import NDArray


class CellSource(Protocol):
    """A table that provides cells."""

    advice: str
    """Beginning of advice on a key of `[dataset]`; empty if no key can help."""

    def locate(self, number: int) -> str:
        """Return the location of a row, for messages."""

    numbers_missing: bool
    """True if a number marks a missing value: then a number may be missing."""

    def is_missing(self, cell: Any) -> bool:
        """Return whether a cell holds no value."""


class RowBlock(NamedTuple):
    """Some rows of a table."""

    source: CellSource
    positions: Sequence[int]
    """Number of each row, for `CellSource.locate`."""
    columns: Mapping[str, Cells]
    """Cells by column: text, or the values of a typed file."""

    def where(self, name: str, index: int) -> str:
        """Return the location of a cell, for messages."""
        return f"{self.source.locate(self.positions[index])}: column `{name}`"

    def kept(self, kept: Sequence[bool]) -> RowBlock:
        """Return the rows to keep."""
        if all(kept):
            return self
        columns = {name: cells.kept(kept) for name, cells in self.columns.items()}
        return RowBlock(self.source, list(compress(self.positions, kept)), columns)


class CellFault(InputMissing):
    """A cell that cannot be read."""

    def __init__(self, block: RowBlock, name: str, index: int, keys: Sequence[str], wrong: str) -> None:
        super().__init__(f"{block.where(name, index)}: {wrong}")
        self.index = index
        """Index of the row in its block."""
        self.wrong = wrong
        """The fault in words, without the location."""
        self.keys = keys
        """Keys of `[dataset]` that the cell concerns, the likeliest first."""


@dataclass(frozen=True)
class ColumnKind:
    """Kind of an input column."""

    key: ClassVar[str] = ""
    """Key of `[dataset]` that names such columns, and of the stored recipe."""
    stored_type: ClassVar[Any] = None
    """Type of `stored`."""
    source: ClassVar[str] = "numbers"
    """Input of a graph that holds the raw values of all such columns."""
    learns: ClassVar[bool] = False
    """`learned` needs the distinct cells."""
    amounts: ClassVar[bool] = True
    """Its features have a mean and a deviation."""
    holds_words: ClassVar[bool] = False
    """A missing word may be a separate category."""
    hole: ClassVar[float] = math.nan
    """Raw value of a cell without a value."""
    fault_keys: ClassVar[tuple[str, ...]] = ("one_hot", "inputs", "drop")
    """Keys of `[dataset]` that a faulty cell concerns, the likeliest first."""

    @property
    def stored(self) -> Any:
        """Value in the stored recipe, from which `of` rebuilds the kind."""
        return None

    @property
    def codes(self) -> int:
        """Number of codes if the feature is a code; else 0."""
        return 0

    @classmethod
    def of(cls, stored: Any) -> Self:
        """Rebuild the kind from the value in a stored recipe."""
        return cls()

    def learned(self, cells: Collection[Any]) -> ColumnKind:
        """Return the kind, adapted to these distinct cells with values."""
        return self

    def features(self, column: str) -> list[str]:
        """Return the names of the features of a column."""
        return [column]

    def raw(self, block: RowBlock, name: str, *, holes: bool) -> Sequence[Any]:
        """Return the raw value of each cell. CellFault for a cell that cannot be read, or lacks a value without `holes`."""
        wrong = False

        def value(cell: Any) -> float:
            nonlocal wrong
            try:
                if not block.source.is_missing(cell):
                    return self.parse(cell)
                wrong = wrong or not holes
            except (TypeError, ValueError):
                wrong = True
            return self.hole

        values = self.convert(block, name, value)
        if wrong:
            self._refuse(block, name, holes=holes)
        return values

    def convert(self, block: RowBlock, name: str, value: Callable[[Any], float]) -> Sequence[Any]:
        """Return the `value` of each cell of a column."""
        return block.columns[name].mapped(value)

    def _refuse(self, block: RowBlock, name: str, *, holes: bool) -> None:
        """Raise CellFault for the first cell that cannot be read, or lacks a value without `holes`."""
        advises = bool(block.source.advice)
        for index, cell in enumerate(block.columns[name]):
            if block.source.is_missing(cell):
                if not holes:
                    raise CellFault(block, name, index, ["missing"], self.lacks(advises=advises))
                continue
            try:
                self.parse(cell)
            except (TypeError, ValueError):
                raise CellFault(block, name, index, self.fault_keys, self.fault(cell, advises=advises)) from None

    def parse(self, cell: Any) -> float:
        """Return the raw value of a cell that has a value. TypeError or ValueError: it cannot be read."""
        raise NotImplementedError

    def fault(self, cell: Any, *, advises: bool) -> str:
        """Describe the fault of a cell that cannot be read. `advises`: a key of `[dataset]` can help."""
        raise NotImplementedError

    def lacks(self, *, advises: bool) -> str:
        """Return the message for a cell without a value."""
        return "no value; fill it in" + ', or set missing = "drop", "mean" or "median"' * advises

    def compute(self, xp: Any, raw: Any) -> Any:
        """Return the features (n, k) of raw values (n,), in double precision; NaN for a missing number."""
        return double(raw)[:, None]

    def missing(self, xp: Any, raw: Any) -> Any:
        """Return a mask of the raw values (n,) that are missing."""
        return xp.isnan(raw)

    def readable(self, xp: Any, raw: Any, *, holes: bool) -> Any:
        """Return a mask of the raw values (n,) that `read` can give; None: all. Numbers may still become infinite features."""
        return None if holes else ~xp.isnan(raw)

    def draw(self, draw: Any, mean: float, std: float, count: int) -> NDArray[Any]:
        """Draw raw values (n,) similar to a column whose first feature has this mean and deviation."""
        numbers: NDArray[Any] = mean + std * draw.standard_normal(count)
        return numbers


def double(values: Any) -> Any:
    """Return numbers of numpy or torch in double precision."""
    return values.double() if hasattr(values, "double") else values.astype("float64")
