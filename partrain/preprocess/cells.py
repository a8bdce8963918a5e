"""Cells of tables: whole numbers, numbers, dates, and the classes of a target."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from datetime import UTC, date, datetime, time
from typing import Any

Class = int | str
"""A class as it appears in files: its label, or its name."""
MISSING = frozenset(("", "na", "n/a", "nan", "null", "?"))
"""Texts of missing values, in lower case, unless `null_values` gives others."""
MAX_DIGITS = 18
"""Maximum number of digits of an integer class: all such integers fit into 64 bits."""
MOST_CLASSES = 20
"""Number of different whole numbers up to which a target is classes, even if some are rare."""
OFTEN = 20
"""Rows that each whole number must have if there are more different ones."""
FEW_ROWS = 30
"""Number of rows up to which distinct values in all rows do not suggest a name or a row number."""
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_DIGITS = re.compile(r"[+-]?[0-9]+")
"""Unlike `_WHOLE`, matches texts such as `007` and `+1`: they are names, because the number has another spelling."""
_ROW_NUMBER = re.compile(r"(?i:(.*[_ -])?(id|index|row|nr|no|number|uuid)|unnamed: 0)|.*[a-z](Id|ID)")


def parse_class(cell: Any, *, whole: bool) -> Class:
    """Parse the class in a target cell. `whole`: the classes are integers, and an integer in usual spelling is one."""
    if whole and is_whole(cell) and not is_large(cell):
        return int(cell)
    return str(cell).lower() if isinstance(cell, bool) else str(cell).strip()


def ordered_classes(cells: Collection[Any]) -> tuple[Class, ...]:
    """Return the distinct classes of target cells in the order of their labels: numbers by size, then words."""
    whole = all(map(is_whole, cells))
    return tuple(sorted({parse_class(cell, whole=whole) for cell in cells}, key=lambda name: (isinstance(name, str), name)))


def are_classes(different: int, rarest: int) -> bool:
    """Return whether whole numbers of a target are classes: few `different` ones, or many rows for each.

    `rarest`: rows of the rarest.
    """
    return different <= MOST_CLASSES or rarest >= OFTEN


def is_whole(cell: Any) -> bool:
    """Return whether a cell holds an integer in its usual spelling."""
    if isinstance(cell, str):
        return _WHOLE.fullmatch(cell.strip()) is not None
    return isinstance(cell, int) and not isinstance(cell, bool)


def is_digits(cell: Any) -> bool:
    """Return whether a cell holds an integer in any spelling."""
    return is_whole(cell) or (isinstance(cell, str) and _DIGITS.fullmatch(cell.strip()) is not None)


def is_large(cell: Any) -> bool:
    """Return whether an integer has more digits than a class may have."""
    return len(str(cell).strip().lstrip("+-0")) > MAX_DIGITS


def is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return not isinstance(cell, bool) and "_" not in str(cell)


def finite(cell: Any) -> float:
    """Return the finite number in a cell; ValueError or TypeError if there is none."""
    number = float(cell)
    if not math.isfinite(number) or "_" in str(cell):
        raise ValueError
    return number


def is_finite(cell: Any) -> bool:
    """Return whether a cell holds a finite number."""
    try:
        finite(cell)
    except (TypeError, ValueError):
        return False
    return True


def numbers_rows(name: str) -> bool:
    """Return whether a column of this name may number the rows, such as `id`, `PassengerId` or `row`."""
    return _ROW_NUMBER.fullmatch(name) is not None


def parse_date(cell: Any) -> datetime | None:
    """Return the moment of an ISO 8601 date or time, in UTC if it has an offset; None if the cell is neither."""
    if isinstance(cell, date):
        moment = cell if isinstance(cell, datetime) else datetime.combine(cell, time())
    else:
        try:
            moment = datetime.fromisoformat(str(cell).strip())
        except ValueError:
            return None
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


def parse_bool(cell: Any) -> bool | None:
    """Return the truth value of a cell, `true` or `false` in any case; None if it is neither."""
    return {"true": True, "false": False}.get(str(cell).strip().lower())


def is_missing(cell: Any, texts: Collection[str] = MISSING) -> bool:
    """Return whether a cell holds no value. `texts`: texts of missing values, in lower case."""
    return cell is None or cell != cell or str(cell).strip().lower() in texts
