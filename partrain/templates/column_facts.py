"""The facts about a table's column on which `partrain init --from` bases its decisions."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection
from functools import cached_property
from itertools import accumulate, chain

from partrain.preprocess.cell_columns import Cells
from partrain.preprocess.cells import FEW_ROWS, is_finite, is_number, numbers_rows, parse_bool, parse_date
from partrain.preprocess.column import CellSource
from partrain.preprocess.texts import TextColumn, count_words

WORDS_OF_TEXTS = 4
"""Average number of words in a cell from which a column holds texts."""
FEWEST_WORDS = 5
"""Number of frequent words from which sentences are an input."""
MOST_VALUES = 20_000
"""Maximum number of different numbers of a column that are remembered."""
FEWEST_NUMBERS = 20
"""Fewest different numbers of a column that can be skewed."""
TAIL = 0.01
"""Share of the rows that are the largest numbers, or the smallest."""
FAR = 4.0
"""Distance of the largest numbers from the median, divided by the distance of the smallest, from which numbers are skewed."""
_ZEROS = re.compile(r"0\d+")
_MEASURE = re.compile(r"[+-]?[\d.,' ]*\d\s*([^\W\d_]{1,10})")
"""A number and its unit, such as `12.5 kg`."""


class ColumnFacts:
    """The facts about a column of a table."""

    def __init__(self, name: str) -> None:
        self.name, self.rows = name, 0
        self.different = Counter[str]()
        """Rows of each value; for numbers, only of the first `MOST_VALUES`."""
        self.unread = set[str]()
        """The values among these that are not finite numbers."""
        self.holes = Counter[str]()
        """Rows of each text that means no value."""
        self.odd = set[str]()
        """The texts among these that occur among numbers: a note names them."""
        self.coded = False
        """The column's numbers are names, not amounts."""

    def add(self, cells: Cells, source: CellSource, *, every: bool) -> None:
        """Add the cells of some rows of a table. `every`: remember all values."""
        self.rows += len(cells)
        odd = cells.odd()
        for cell, count in odd.items():
            text = "" if cell is None else str(cell).strip()
            (self.holes if source.is_missing(cell) else self.different)[text] += count
            if not (source.is_missing(cell) or is_finite(text)):
                self.unread.add(text)
        most = None if every or source.numbers_missing else MOST_VALUES - len(self.different)
        if most is None or most > 0:
            for cell, count in cells.counts(most).items():
                if cell not in odd:
                    rows = self.holes if source.numbers_missing and source.is_missing(cell) else self.different
                    text = str(cell).strip()
                    rows[text] = rows.get(text, 0) + count  # for a Counter, `+=` takes twice as long

    def rewrite(self, plain: Callable[[str], str]) -> None:
        """Rewrite the numbers in another notation."""
        values, self.different = self.different, Counter()
        for text, count in values.items():
            self.different[plain(text)] += count
        self.unread = {text for text in self.different if not is_finite(text)}

    def discard(self, texts: Collection[str]) -> None:
        """Treat these texts, in lower case, as missing values."""
        for text in [text for text in self.different if text.lower() in texts]:
            self.holes[text] += self.different.pop(text)
            self.odd.add(text)
            self.unread.discard(text)

    @property
    def missing(self) -> int:
        """Rows without a value."""
        return self.holes.total()

    @property
    def repeats(self) -> bool:
        """True if a value occurs in several rows."""
        return self.different.total() > len(self.different)

    @property
    def numbers(self) -> bool:
        return not self.coded and all(is_number(text) or parse_bool(text) is not None for text in self.unread)

    @property
    def whole(self) -> bool:
        return all(text.lstrip("+-").isdigit() for text in self.different)

    @property
    def padded(self) -> bool:
        """True if all numbers are whole and of one length, some by leading zeros: then words with digits among them are names, too."""
        numbers = self.different.keys() - self.unread
        return any(map(_ZEROS.fullmatch, numbers)) and all(map(str.isdigit, numbers)) and len(set(map(len, numbers))) == 1

    @property
    def zeros(self) -> bool:
        """True if a whole number has leading zeros, as postal codes have."""
        return self.whole and any(map(_ZEROS.fullmatch, self.different))

    @cached_property
    def far_reaching(self) -> bool:
        """True if numbers from 0 on are skewed: the largest are several times as far from the median as the smallest."""
        if not self.numbers or self.unread or len(self.different) < FEWEST_NUMBERS:
            return False
        rows = sorted((float(text), count) for text, count in self.different.items())
        ends, total = list(accumulate(count for _, count in rows)), self.different.total()
        low, middle, high = (rows[bisect_left(ends, share * total)][0] for share in (TAIL, 0.5, 1 - TAIL))
        return rows[0][0] >= 0 < middle and high - middle >= FAR * (middle - low)

    @property
    def dates(self) -> bool:
        return not (self.numbers or self.coded) and all(map(parse_date, chain(self.unread, self.different)))

    @property
    def truths(self) -> bool:
        """True if all values are `true` or `false`."""
        return {text.lower() for text in self.different} <= {"true", "false"}

    @property
    def labels(self) -> bool:
        """True if all values are 0 or 1, or `true` or `false`."""
        return self.truths or (
            self.numbers and {float(text) for text in self.different if parse_bool(text) is None} <= {0.0, 1.0}
        )

    @property
    def words(self) -> bool:
        return not self.numbers and not self.dates

    @property
    def texts(self) -> bool:
        """True if the cells are sentences: different ones, of several words each."""
        if not self.words or len(self.different) <= self.rows // 2:
            return False
        return sum(map(count_words, self.different)) >= WORDS_OF_TEXTS * len(self.different)

    @cached_property
    def vocabulary(self) -> int:
        """Number of frequent words in sentences."""
        return len(TextColumn().learned(self.different).words) if self.texts else 0

    @property
    def unit(self) -> str:
        """The word after the numbers in all cells, such as `kg`; "" without one."""
        measures = map(_MEASURE.fullmatch, self.different)
        first = next(measures, None)
        return first[1] if first and all(measure and measure[1] == first[1] for measure in measures) else ""

    def reason_to_drop(self) -> str:
        """Return why a network should not see the column; "" if it should."""
        reason = self._drop()
        unit = self.unit if reason and self.words else ""
        return f"{reason}: numbers with the unit `{unit}`, to be written without it" if unit else reason

    def _drop(self) -> str:
        if len(self.different) <= 1:
            return "the same value in each row" if self.different else "no value in any row"
        if self.vocabulary >= FEWEST_WORDS:
            return ""
        present = self.rows - self.missing
        numbered = self.whole and numbers_rows(self.name)
        if not self.repeats and present > FEW_ROWS and (numbered or self.words or (self.whole and self._counts())):
            return "another value in each row, like a name or a number of the row"
        if self.words and len(self.different) > max(present // 2, FEW_ROWS):
            return f"{len(self.different):,} different words, most of them in a single row"
        return ""

    def _counts(self) -> bool:
        """Return whether whole numbers run without gaps, as row numbers do."""
        numbers = [int(text) for text in self.different]
        return max(numbers) - min(numbers) == len(numbers) - 1
