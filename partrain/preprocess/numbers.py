"""Columns of numbers and of truth values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from partrain.preprocess.cells import finite, is_number, parse_bool, parse_date
from partrain.preprocess.column import ColumnKind, RowBlock

SMALLEST = 50
"""The scale of a logarithm is the number than which one in this number is smaller."""


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


@dataclass(frozen=True)
class LogColumn(NumberColumn):
    """Numbers x over several orders of magnitude, as asinh(x / scale): like a logarithm beyond the scale, straight within it."""

    key: ClassVar[str] = "logs"
    stored_type: ClassVar[Any] = Annotated[float, Field(gt=0, allow_inf_nan=False)]
    learns: ClassVar[bool] = True
    fault_keys: ClassVar[tuple[str, ...]] = ("logs",)
    scale: float = 1.0

    @property
    def stored(self) -> float:
        return self.scale

    @classmethod
    def of(cls, stored: float) -> LogColumn:
        return cls(stored)

    def learned(self, cells: Collection[Any]) -> LogColumn:
        sizes = list[float]()
        for cell in cells:
            with suppress(TypeError, ValueError):  # a cell that cannot be read is reported with its place
                sizes.append(abs(self.parse(cell)))
        sizes = sorted(size for size in sizes if size)
        return LogColumn(sizes[len(sizes) // SMALLEST] if sizes else 1.0)

    def features(self, column: str) -> list[str]:
        return [column, f"log {column}"]

    def compute(self, xp: Any, raw: Any) -> Any:
        """Return asinh(raw / scale) (n, 1), by operations that runtimes of exported graphs have in double precision."""
        numbers = super().compute(xp, raw)
        sizes = abs(numbers) / self.scale
        most = xp.clip(sizes, 1, None)  # so no square overflows
        logs = xp.log(most) + xp.log(sizes / most + xp.sqrt((sizes / most) ** 2 + (1 / most) ** 2))
        return xp.concatenate([numbers, xp.sign(numbers) * logs], axis=1)
