"""Numbers that are names (postal codes, shops, versions), and numbers that only count the rows, for `partrain init --from`."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from partrain.preprocess.cells import FEW_ROWS
from partrain.templates.column_facts import ColumnFacts
from partrain.templates.first_rows import FirstRows

ROWS = 5
"""Average number of rows per number from which numbers may be names."""
MOST_VERSIONS = 100
"""Number of different decimal numbers up to which they may be versions."""
BINS = 16
"""Bins of equal row counts, in the order of the numbers. Fewer numbers are compared with a parabola instead."""
FEWEST = 3
"""Number of different numbers from which they may be names."""
GAIN = 0.03
"""Smallest share of the target's variance, on rows set aside, that names must explain."""
BY_SIZE = 0.6
"""Largest fraction of that share that the bins, or the next numbers, may explain: otherwise the size matters."""
MORE, MORE_OF_FEW = 0.1, 0.05
"""Share of the target's variance that names explain beyond bins and next numbers, from which the size does not matter either. Few
numbers must also explain this much beyond a parabola."""
SURE = 4.0
"""Number of standard errors by which names must be better than bins and next numbers, or than a parabola."""
PRIOR = 3.0
"""Number of rows with the overall mean that enter the mean of a number."""
MOST_KINDS = 10
"""Maximum number of target classes to examine, the most frequent ones."""
_POINT = re.compile(r"\d+\.\d+")


def find_codes(
    columns: Mapping[str, ColumnFacts], rows: FirstRows, beside: Collection[str | None], *, by_target: bool
) -> list[str]:
    """Mark the columns whose numbers are names, except some, and return notes on them. `by_target`: the target may decide."""
    notes = []
    for name, facts in columns.items():
        if name in (*rows.targets, *beside) or not facts.numbers:
            continue
        if reason := _spelling(facts) or (_structure(name, facts, rows) if by_target else ""):
            facts.coded = True
            if not facts.reason_to_drop():
                notes.append(f"column `{name}`: {reason}: names, not amounts (`categories`)")
    return notes


def count_rows(columns: Mapping[str, ColumnFacts], rows: FirstRows) -> dict[str, str]:
    """Return the columns of whole numbers that grow from row to row, with the reason to leave them out."""
    grown = {}
    for name, facts in columns.items():
        if name not in rows.targets and facts.whole and not (facts.missing or facts.repeats) and facts.rows > FEW_ROWS:
            numbers = [int(cell) for cell in rows.used(name)]
            if all(before < after for before, after in pairwise(numbers)):
                grown[name] = "a number that grows from row to row, like a number of the row"
    return grown


def _spelling(facts: ColumnFacts) -> str:
    """Return the spelling that shows that numbers are names; "" if none does."""
    if facts.zeros:
        return "numbers with leading zeros"
    if len(facts.different) <= min(MOST_VERSIONS, facts.rows // ROWS) and all(map(_POINT.fullmatch, facts.different)):
        spelled = defaultdict[float, list[str]](list)
        for text in facts.different:
            spelled[float(text)].append(text)
        if twice := next((texts for texts in spelled.values() if len(texts) > 1), None):
            return f"`{twice[0]}` and `{twice[1]}` are one number in two spellings"
    return ""


def _structure(name: str, facts: ColumnFacts, rows: FirstRows) -> str:
    """Return a sentence if the target depends on each whole number, and not on the size of the numbers; "" otherwise.

    Every other row makes the predictions, and the rows in between judge them.
    """
    count = len(facts.different)
    if facts.missing or facts.unread or not facts.whole or not FEWEST <= count <= facts.rows // ROWS:
        return ""
    few, numbers = count <= BINS, [int(cell) for cell in rows.used(name)]
    if few and any(numbers.count(number) < ROWS for number in set(numbers)):
        return ""
    errors: dict[str, list[float]] = defaultdict(list)
    gains, total = defaultdict[str, float](float), 0.0
    for values in _kinds(rows.values(rows.targets[0])):
        mean, predictions = (_predictions_of_few if few else _predictions)(numbers[::2], values[::2])
        for number, value in zip(numbers[1::2], values[1::2], strict=True):
            error = (value - mean) ** 2
            total += error
            for kind, by_number in predictions.items():
                errors[kind].append((value - by_number.get(number, mean)) ** 2)
                gains[kind] += error - errors[kind][-1]
    rival = max((kind for kind in errors if kind != "own"), key=gains.__getitem__)
    part, rest = BY_SIZE * gains["own"], gains["own"] - (MORE_OF_FEW if few else MORE) * total
    bound = min(part, rest) if few else max(part, rest)
    if gains["own"] < GAIN * total or gains[rival] > bound:
        return ""
    advantages = [other - own for other, own in zip(errors[rival], errors["own"], strict=True)]
    middle = sum(advantages) / len(advantages)
    deviation = math.sqrt(sum((advantage - middle) ** 2 for advantage in advantages) / len(advantages))
    if middle * math.sqrt(len(advantages)) < SURE * deviation:
        return ""
    return f"the target follows each of {count:,} different numbers, and not their size"


def _kinds(values: Sequence[Any]) -> list[Sequence[float]]:
    """Return the numbers of a target, or an indicator of each frequent class."""
    if not isinstance(values[0], str):
        return [values]
    return [[float(value == kind) for value in values] for kind, _ in Counter(values).most_common(MOST_KINDS)]


def _predictions_of_few(numbers: Sequence[int], values: Sequence[float]) -> tuple[float, dict[str, dict[int, float]]]:
    """Predict a target by the mean of all rows; and for each number by its own rows, and by a parabola through all rows."""
    import numpy as np

    mean, different = sum(values) / len(values), sorted(set(numbers))
    center, scale = (different[0] + different[-1]) / 2, max((different[-1] - different[0]) / 2, 1)
    curve = np.polynomial.Polynomial.fit([(number - center) / scale for number in numbers], values, min(2, len(different) - 1))
    own = {
        number: (sum(value for other, value in zip(numbers, values, strict=True) if other == number) + PRIOR * mean)
        / (numbers.count(number) + PRIOR)
        for number in different
    }
    return mean, {"own": own, "curve": {number: float(curve((number - center) / scale)) for number in different}}


def _predictions(numbers: Sequence[int], values: Sequence[float]) -> tuple[float, dict[str, dict[int, float]]]:
    """Predict a target by the mean of all rows; and for each number by its own rows, by its bin, and by the two numbers above and below."""
    mean = sum(values) / len(values)
    sums, counts = defaultdict[int, float](float), Counter[int]()
    for number, value in zip(numbers, values, strict=True):
        sums[number] += value - mean
        counts[number] += 1
    ordered, before = sorted(counts), 0
    bins = defaultdict[int, list[int]](list)
    for number in ordered:
        bins[before * BINS // len(numbers)].append(number)
        before += counts[number]

    def of(some: Sequence[int]) -> float:
        return mean + sum(sums[number] for number in some) / (sum(counts[number] for number in some) + PRIOR)

    return mean, {
        "own": {number: of([number]) for number in ordered},
        "bins": {number: of(some) for some in bins.values() for number in some},
        "near": {number: of([*ordered[max(at - 2, 0) : at], *ordered[at + 1 : at + 3]]) for at, number in enumerate(ordered)},
    }
