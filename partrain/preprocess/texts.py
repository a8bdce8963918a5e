"""Columns of sentences: which of their frequent words a cell has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from partrain.preprocess.column import ColumnKind, RowBlock, double

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORD = re.compile(r"\w+|[^\w\s]")
"""A run of letters and digits, or a single mark."""
MOST, FEWEST = 200, 3
"""Words of a column at most, the most frequent ones; and different texts in which each is at least."""


def words_of(text: str) -> list[str]:
    """Split a text into words in small letters, and marks."""
    return WORD.findall(text.lower())


@dataclass(frozen=True)
class TextColumn(ColumnKind):
    """One feature for each frequent word: 1 where a text has it, else 0. A cell without a value has none."""

    key: ClassVar[str] = "texts"
    stored_type: ClassVar[Any] = list[str]
    source: ClassVar[str] = "texts"
    learns: ClassVar[bool] = True
    amounts: ClassVar[bool] = False
    words: tuple[str, ...] = ()

    @property
    def stored(self) -> list[str]:
        return list(self.words)

    @classmethod
    def of(cls, stored: Sequence[str]) -> Self:
        return cls(tuple(stored))

    def learned(self, cells: Collection[Any]) -> Self:
        texts = Counter(word for cell in cells for word in dict.fromkeys(words_of(str(cell))) if word.isalnum())
        return self.of([word for word, count in texts.most_common(MOST) if count >= FEWEST])

    @cached_property
    def _places(self) -> dict[str, int]:
        return {word: place for place, word in enumerate(self.words)}

    def features(self, column: str) -> list[str]:
        return [f"{column} has {word}" for word in self.words]

    def raw(self, block: RowBlock, name: str, *, holes: bool) -> Any:
        """Return a row (n, words) for each cell: 1 where it has the word."""
        import numpy as np

        cells, rows, places = block.columns[name], list[int](), list[int]()
        for row, cell in enumerate(cells):
            if not block.source.is_missing(cell):
                held = [place for word in words_of(str(cell)) if (place := self._places.get(word)) is not None]
                rows += [row] * len(held)
                places += held
            elif not holes:
                self._refuse(block, name, holes=holes)
        raw = np.zeros((len(cells), len(self.words)), np.uint8)
        raw[rows, places] = 1
        return raw

    def parse(self, cell: Any) -> float:
        return 0.0  # any text can be read

    def compute(self, xp: Any, raw: Any) -> Any:
        return double(raw)

    def missing(self, xp: Any, raw: Any) -> Any:
        return raw.max(1) == 0

    def readable(self, xp: Any, raw: Any, *, holes: bool) -> Any:
        return None

    def draw(self, draw: Any, mean: float, std: float, count: int) -> NDArray[Any]:
        words: NDArray[Any] = draw.integers(0, 2, (count, len(self.words)))
        return words
