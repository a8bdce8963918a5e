"""The cells of one column in some rows. A function of a cell is called once for each distinct cell."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import compress, islice
from typing import Any

from partrain.preprocess.cells import finite, is_finite


class Cells(Sequence[Any]):
    """Cells in a list."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __getitem__(self, index: Any) -> Any:
        return self._values[index]

    def counts(self, most: int | None = None) -> Counter[Any]:
        """Count the rows of each distinct cell, in order of first occurrence.

        Of more than `most`, count only the first, in some of their rows.
        """
        return Counter(dict(islice(Counter(self._values).items(), most)))

    def mapped(self, function: Callable[[Any], Any]) -> Sequence[Any]:
        """Return the value of a function for each cell: a number or a truth value."""
        if len({*map(type, self._values)} - {type(None)}) > 1:  # 1, 1.0 and True are equal, but differ in type
            return list(map(function, self._values))
        values = {cell: function(cell) for cell in dict.fromkeys(self._values)}
        return [values[cell] for cell in self._values]

    def numbers(self, function: Callable[[Any], float]) -> Sequence[float]:
        """Return the finite number that each cell spells; `function` is called for the other cells."""
        cells = self._values
        try:
            numbers = list(map(float, cells))
            if math.isfinite(sum(numbers)) and not _underscored(cells):
                return numbers
        except (TypeError, ValueError):
            pass
        return self.mapped(lambda cell: finite_or(function, cell))

    def odd(self) -> Counter[Any]:
        """Count the rows of each distinct cell that does not spell a finite number."""
        return Counter({cell: count for cell, count in self.counts().items() if not is_finite(cell)})

    def kept(self, kept: Sequence[bool]) -> Cells:
        """Return the cells of the rows to keep."""
        return Cells(list(compress(self._values, kept)))


def finite_or(function: Callable[[Any], float], cell: Any) -> float:
    try:
        return finite(cell)
    except (TypeError, ValueError):
        return function(cell)


def _underscored(cells: Sequence[Any]) -> bool:
    """Return whether a text has an underscore, which Python reads as part of a number."""
    return bool(cells) and isinstance(cells[0], str) and "_" in "".join(cells)
