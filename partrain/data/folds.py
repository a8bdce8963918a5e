"""Folds of k-fold cross-validation: k parts of the items. One run holds out each part.

Fold i of k, counted from 1, has floor(n / k) items, and one more if i <= n mod k. The folds are disjoint and cover all n items.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Self

_FORM = re.compile(r"([1-9][0-9]{0,8})/([1-9][0-9]{0,8})")


class Fold(NamedTuple):
    """One of k folds."""

    number: int
    """From 1 to `folds`."""
    folds: int

    def __str__(self) -> str:
        return f"{self.number}/{self.folds}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "2/5". Raises ValueError."""
        match = _FORM.fullmatch(text)
        if not match:
            raise ValueError(f'`fold`: expected "i/k", such as "2/5" for the second of five folds, got "{text}"')
        number, folds = map(int, match.groups())
        if folds < 2 or number > folds:
            raise ValueError(f"`fold`: there is no fold {number} of {folds}" + (": k must be 2 or more" if folds < 2 else ""))
        return cls(number, folds)

    def count(self, items: int) -> int:
        """Return the number of items of this fold."""
        return items // self.folds + (self.number <= items % self.folds)

    def block(self, items: int) -> range:
        """Return the positions of this fold if each fold is a block of the order.

        >>> [list(Fold(number, 3).block(7)) for number in (1, 2, 3)]
        [[0, 1, 2], [3, 4], [5, 6]]
        """
        first = (self.number - 1) * (items // self.folds) + min(self.number - 1, items % self.folds)
        return range(first, first + self.count(items))


HeldOut = int | Fold
"""The held-out items of a job: their number, or a fold. Both are false if there are none."""


def held_out_count(held_out: HeldOut, items: int) -> int:
    """Return the number of held-out items among `items`."""
    return held_out.count(items) if isinstance(held_out, Fold) else held_out
