"""Columns that name units (persons, machines) of several rows, for `partrain init --from`: tests should use unseen units."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from partrain.data.tables.files import TableFile
from partrain.errors import InputMissing
from partrain.preprocess.cells import numbers_rows
from partrain.templates.column_facts import ColumnFacts
from partrain.templates.first_rows import FirstRows, Values

NONE = "none"
"""Value of `--group` if no column names units."""
ROWS = 3
"""Average number of rows per unit from which a column may name units."""
LARGEST = 0.05
"""Maximum number of rows of a unit, as a share of all."""
FEWEST_REPEATED = 0.9
"""Smallest share of the units that must have several rows."""
FIXED = 0.1
"""Variance of a target within units, as a share of the whole, below which it belongs to the unit."""
ALIKE = 0.5
"""The same share, below which rows of a unit are alike."""
CONSTANT = 0.2
"""The same share, below which a column is an attribute of the unit."""
FEWEST_CLASS_UNITS = 3
"""Number of units of each class from which rows are split by units."""
_NAMES = re.compile(
    r"(?i).*(person|patient|subject|participant|speaker|user|customer|client|member|animal|device|machine|engine|sensor|player|student).*"
)


def unit_of(
    file: TableFile, columns: Mapping[str, ColumnFacts], rows: FirstRows, asked: str | None
) -> tuple[str | None, list[str]]:
    """Return the column by which rows are split, or None, and notes on it.

    A column names units if the target belongs to the unit and rows of one unit are alike in half of the other columns; or, with a
    name such as `id`, if most other columns are attributes of the unit. A whole number that the target follows smoothly is a
    measure. If fewer conditions hold, a note may mention the column.
    """
    if asked is not None and (asked != NONE or NONE in file.places):
        require_units(file, columns[asked])
        return asked, [f"`{asked}` names the unit of a row (--group): each is in one part, and the column is no input (`group`)"]
    names = [name for name, facts in columns.items() if name not in rows.targets and _may_name_units(facts)]
    if asked == NONE or not names:
        return None, []
    best: tuple[float, bool, str] | None = None
    for name in names:
        units = [str(unit).strip() for unit in rows.used(name)]
        if len(units) - len(set(units)) < len(units) // 4:
            continue
        shares = [share for target in rows.targets if (share := variance_within(units, rows.values(target))) is not None]
        if not shares or max(shares) >= ALIKE or (columns[name].whole and _follows(name, units, rows.values(rows.targets[0]))):
            continue
        others = [variance_within(units, rows.values(other)) for other in columns if other not in (name, *rows.targets)]
        shares_of_others = [share for share in others if share is not None]
        alike = sum(share < ALIKE for share in shares_of_others) * 2 >= len(shares_of_others) > 0
        attributes = sum(share < CONSTANT for share in shares_of_others) * 4 >= len(shares_of_others) * 3 > 0
        sure = (alike and max(shares) < FIXED) or (attributes and _is_named(name))
        candidate = max(shares), not (sure and _spread(units, rows.values(rows.targets[0]))), name
        best = min(best or candidate, candidate, key=lambda units: (units[1], len(columns[units[2]].different)))
    if best is None or (best[1] and best[0] >= FIXED and not _is_named(best[2])):
        return None, []
    _, unsure, name = best
    if unsure:
        return None, [
            f"column `{name}`: its rows have similar targets; if it names units, and you want to predict others: --group {name}"
        ]
    size = columns[name].rows // len(columns[name].different)
    what = f"column `{name}` names units of about {size} rows, which are alike: each is in one part, and the column is no input"
    return name, [f"{what} (`group`); --group none takes it as an input"]


def require_units(file: TableFile, facts: ColumnFacts) -> None:
    """Raise InputMissing if a row has no value in the column that the user names as the column of units."""
    if facts.missing:
        place, _ = file.first(facts.name, file.is_missing)
        raise InputMissing(f"{place}: --group: column `{facts.name}` has no value")


def _may_name_units(facts: ColumnFacts) -> bool:
    rows = facts.different
    if facts.missing or facts.dates or not (facts.words or facts.whole) or facts.texts or len(rows) * ROWS > facts.rows:
        return False
    repeated = sum(count > 1 for count in rows.values())
    return max(rows.values(), default=facts.rows) <= LARGEST * facts.rows and repeated >= FEWEST_REPEATED * len(rows)


def _is_named(name: str) -> bool:
    """Return whether a column has a name of units."""
    return numbers_rows(name) or _NAMES.fullmatch(name) is not None


def variance_within(units: Sequence[str], values: Values) -> float | None:
    """Return the variance of values within units as a share of the whole: 0 if units have one value, about 1 if irrelevant.

    For texts, return the sum of the variances of their indicators. None if all values are equal.
    """
    if not values or isinstance(values[0], str):
        total = _scatter(Counter(values))
        kinds = defaultdict[str, Counter[Any]](Counter)
        for unit, value in zip(units, values, strict=True):
            kinds[unit][value] += 1
        within = sum(map(_scatter, kinds.values()))
    else:
        whole = defaultdict[str, list[float]](list)
        for unit, value in zip(units, values, strict=True):
            whole[unit].append(value)
        total, within = _squares(values), sum(map(_squares, whole.values()))
    count = len(set(units))
    return None if not total or len(units) == count else within / (len(units) - count) * (len(units) - 1) / total


def _scatter(counts: Counter[Any]) -> float:
    rows = counts.total()
    return rows - sum(count * count for count in counts.values()) / rows if rows else 0.0


def _squares(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values)


def _follows(name: str, units: Sequence[str], values: Values) -> bool:
    """Return whether the target follows a unit's whole number, as it does a measure: neighbours differ less than random pairs."""
    if _is_named(name):
        return False
    rows = defaultdict[int, list[Any]](list)
    for unit, value in zip(units, values, strict=True):
        rows[int(unit)].append(value)
    steps = spread = 0.0
    for kind in set(values) if isinstance(values[0], str) else [None]:
        means = [sum(value if kind is None else value == kind for value in rows[unit]) / len(rows[unit]) for unit in sorted(rows)]
        steps += sum((after - before) ** 2 for before, after in pairwise(means))
        spread += 2 * _squares(means)
    return steps < ALIKE * spread


def _spread(units: Sequence[str], values: Values) -> bool:
    """Return whether each class occurs in several units."""
    return (
        not isinstance(values[0], str)
        or min(Counter(value for _, value in set(zip(units, values, strict=True))).values()) >= FEWEST_CLASS_UNITS
    )
