"""Columns of words, one-hot or as codes. Raw values are positions in the list of words, UNSEEN or MISSING."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from partrain.preprocess.column import ColumnKind, double

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WHOLE = re.compile(r"-?[0-9]+(\.0)?")
UNSEEN, MISSING = -1, -2
"""Raw values of a word that is not in the list, and of a cell without a value."""


def places_of(words: Sequence[str]) -> dict[str, int]:
    """Return the position of each word, by each of its spellings.

    `1` and `1.0` are spellings of one word if all words are whole numbers: an empty cell turns a column of whole numbers into
    floats.
    """
    places = {word: place for place, word in enumerate(words)}
    if all(map(_WHOLE.fullmatch, words)):
        for place, word in enumerate(words):
            places.setdefault(word.removesuffix(".0") if word.endswith(".0") else f"{word}.0", place)
    return places


@dataclass(frozen=True)
class ListedWords(ColumnKind):
    """A column whose features depend on a list of words."""

    stored_type: ClassVar[Any] = list[str]
    learns: ClassVar[bool] = True
    amounts: ClassVar[bool] = False
    words: tuple[str, ...] = ()

    @property
    def stored(self) -> list[str]:
        return list(self.words)

    @classmethod
    def of(cls, stored: Sequence[str]) -> Self:
        return cls(tuple(stored))


@dataclass(frozen=True)
class WordColumn(ListedWords):
    """Cells of one word each."""

    source: ClassVar[str] = "codes"
    holds_words: ClassVar[bool] = True
    hole: ClassVar[float] = MISSING

    def learned(self, cells: Collection[Any]) -> Self:
        return self.of(sorted({str(cell).strip() for cell in cells}))

    @cached_property
    def _places(self) -> dict[str, int]:
        return places_of(self.words)

    def parse(self, cell: Any) -> int:
        return self._places.get(str(cell).strip(), UNSEEN)

    def missing(self, xp: Any, raw: Any) -> Any:
        return raw == MISSING

    def readable(self, xp: Any, raw: Any, *, holes: bool) -> Any:
        return (raw >= (MISSING if holes else UNSEEN)) & (raw < len(self.words))

    def draw(self, draw: Any, mean: float, std: float, count: int) -> NDArray[Any]:
        codes: NDArray[Any] = draw.integers(UNSEEN, len(self.words), count)
        return codes


@dataclass(frozen=True)
class OneHotColumn(WordColumn):
    """One feature for each word; a missing or unseen word is all zeros."""

    key: ClassVar[str] = "one_hot"

    def features(self, column: str) -> list[str]:
        return [f"{column}={word}" for word in self.words]

    def compute(self, xp: Any, raw: Any) -> Any:
        return double(raw[:, None] == xp.arange(len(self.words)))


@dataclass(frozen=True)
class CategoryColumn(WordColumn):
    """A code: 0 for a cell without a value, 1 for an unseen word; the words follow."""

    key: ClassVar[str] = "categories"

    @property
    def codes(self) -> int:
        return len(self.words) - MISSING

    def compute(self, xp: Any, raw: Any) -> Any:
        """Return the codes (n, 1). An unanswered item also gets a valid code: embeddings are looked up before it is masked."""
        return double(xp.where(self.readable(xp, raw, holes=True), raw - MISSING, UNSEEN - MISSING))[:, None]
