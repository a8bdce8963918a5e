"""Kinds of raw columns: each says how cells become raw values, and how these become features.

Symbols: n items; xp is numpy, or torch where an exporter traces the steps.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from partrain.errors import InputMissing
from partrain.preprocess.cells import is_missing

if TYPE_CHECKING:
    from numpy.typing import NDArray


class CellSource(Protocol):
    """A table that cells come from."""

    way: str
    """Beginning of advice on a key of `[dataset]`; empty where no key can help."""

    def locate(self, number: int) -> str:
        """Return the location of a row, for messages."""


@dataclass(frozen=True)
class RawColumn:
    """Some cells of a column."""

    source: CellSource
    name: str
    positions: Sequence[int]
    """Number of each cell's row."""
    cells: Sequence[Any]
    holes: bool
    """Cells may have no value."""

    def where(self, index: int) -> str:
        """Return the location of a cell, for messages."""
        return f"{self.source.locate(self.positions[index])}: column `{self.name}`"


@dataclass(frozen=True)
class ColumnKind:
    """Kind of an input column. A missing value is NaN among raw values."""

    key: ClassVar[str] = ""
    """Key of `[dataset]` that names such columns, and of the stored recipe."""
    stored_type: ClassVar[Any] = None
    """Type of `stored`."""
    source: ClassVar[str] = "numbers"
    """Input of a graph that holds the raw values of all such columns."""
    learns: ClassVar[bool] = False
    """`learned` needs the distinct cells."""
    holds_words: ClassVar[bool] = False
    """A missing word may be a category of its own."""
    fault_keys: ClassVar[tuple[str, ...]] = ("one_hot", "inputs", "drop")
    """Keys of `[dataset]` that a faulty cell concerns, the likeliest first."""

    @property
    def stored(self) -> Any:
        """Value in the stored recipe, from which `of` makes the kind again."""
        return None

    @property
    def codes(self) -> int:
        """Number of codes where the feature is a code; else 0."""
        return 0

    @classmethod
    def of(cls, stored: Any) -> Self:
        """Make the kind from the value in a stored recipe."""
        return cls()

    def learned(self, cells: Collection[Any]) -> ColumnKind:
        """Return the kind as these distinct cells determine it."""
        return self

    def features(self, column: str) -> list[str]:
        """Return the names of the features of a column."""
        return [column]

    def fault(self, column: RawColumn, index: int) -> str:
        """Return the message for a cell that this kind cannot read; "": no fault."""
        if is_missing(column.cells[index]):
            advice = ', or set missing = "drop", "mean" or "median"' * bool(column.source.way)
            return "" if column.holes else f"{column.where(index)}: no value; fill it in{advice}"
        return self.misread(column, index)

    def misread(self, column: RawColumn, index: int) -> str:
        """Return the message for a cell with a value that this kind cannot read; "": no fault."""
        raise NotImplementedError

    def first_fault(self, column: RawColumn) -> tuple[Sequence[str], str] | None:
        """Return the first fault of the cells with the keys that it concerns; None if there is none."""
        for index, cell in enumerate(column.cells):
            if message := self.fault(column, index):
                return (["missing"] if is_missing(cell) else self.fault_keys), message
        return None

    def read(self, column: RawColumn) -> NDArray[Any]:
        """Return the raw value (n,) of each cell. InputMissing for a cell that cannot be read."""
        import numpy as np

        for index in range(len(column.cells)):
            if message := self.fault(column, index):
                raise InputMissing(message)
        return np.array([np.nan if is_missing(cell) else self.parse(cell) for cell in column.cells], np.float64)

    def parse(self, cell: Any) -> float:
        """Return the raw value of a cell without fault."""
        raise NotImplementedError

    def compute(self, xp: Any, raw: Any) -> Any:
        """Return the features (n, k) of raw values (n,), in double precision; NaN for a missing number."""
        return double(raw)[:, None]

    def missing(self, xp: Any, raw: Any) -> Any:
        """Return which raw values (n,) are missing."""
        return xp.isnan(raw)

    def readable(self, xp: Any, raw: Any, *, holes: bool) -> Any:
        """Return which raw values (n,) `read` can give; None: all. Numbers may still become infinite features."""
        return None if holes else ~xp.isnan(raw)

    def draw(self, draw: Any, mean: float, std: float, count: int) -> NDArray[Any]:
        """Draw raw values (n,) like those of a column whose first feature has this mean and deviation."""
        numbers: NDArray[Any] = mean + std * draw.standard_normal(count)
        return numbers


def double(values: Any) -> Any:
    """Return numbers of numpy or torch in double precision."""
    return values.double() if hasattr(values, "double") else values.astype("float64")
