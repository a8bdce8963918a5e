"""Columns of sentences. Each feature says whether a cell has one of their frequent words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from partrain.preprocess.column import RowBlock, double
from partrain.preprocess.words import ListedWords

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Letters of languages that put no spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""
_UNSPACED_LETTER = re.compile(f"[{_UNSPACED}]")
_LETTERS = rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+"
WORD = re.compile(rf"{_LETTERS}|[^\w\s]")
"""A run of letters and digits, a single letter of a language without spaces, or a single mark."""
_WORDS = re.compile(_LETTERS)
MOST, FEWEST = 200, 3
"""Maximum number of words per column, the most frequent ones; and minimum number of different texts that contain a word."""


def words_of(text: str) -> list[str]:
    """Split a text into words, in lower case, without marks: a mean over all words would be one over commas."""
    return _WORDS.findall(text.lower())


def count_words(text: str) -> int:
    """Count what spaces separate; in a language without spaces, letters."""
    return sum(max(1, len(_UNSPACED_LETTER.findall(part))) for part in text.split())


@dataclass(frozen=True)
class TextColumn(ListedWords):
    """One feature for each frequent word: 1 if a text has it, else 0. Raw values are a row for each cell; the last number of the
    row is 1 if the cell has no value."""

    key: ClassVar[str] = "texts"

    def learned(self, cells: Collection[Any]) -> Self:
        texts = Counter(word for cell in cells for word in dict.fromkeys(words_of(str(cell))) if word.isalnum())
        return self.of([word for word, count in texts.most_common(MOST) if count >= FEWEST])

    @cached_property
    def _places(self) -> dict[str, int]:
        return {word: place for place, word in enumerate(self.words)}

    def features(self, column: str) -> list[str]:
        return [f"{column} has {word}" for word in self.words]

    def raw(self, block: RowBlock, name: str, *, holes: bool) -> Any:
        """Return the raw values (n, words + 1)."""
        import numpy as np

        cells, rows, places = block.columns[name], list[int](), list[int]()
        for row, cell in enumerate(cells):
            held = [len(self.words)]
            if not block.source.is_missing(cell):
                held = [place for word in words_of(str(cell)) if (place := self._places.get(word)) is not None]
            elif not holes:
                self._refuse(block, name, holes=holes)
            rows += [row] * len(held)
            places += held
        raw = np.zeros((len(cells), len(self.words) + 1), np.uint8)
        raw[rows, places] = 1
        return raw

    def parse(self, cell: Any) -> float:
        return 0.0  # any text can be read

    def compute(self, xp: Any, raw: Any) -> Any:
        return double(raw[:, :-1])

    def missing(self, xp: Any, raw: Any) -> Any:
        return raw[:, -1] == 1

    def readable(self, xp: Any, raw: Any, *, holes: bool) -> Any:
        return None
