"""Time stamps of a series: parsed, checked for order and equal steps, and continued beyond the last one. Nothing here imports numpy.

A stamp is a number, or a date in a form of ISO 8601 (`1949-01`, `1949-01-31`, `1949-01-31 06:00`). If no two dates are in the
same month, dates are counted in months, otherwise in seconds.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from statistics import median_low
from typing import Any, Literal

from partrain.data.base import WrongContent
from partrain.preprocess.column import RowBlock

Unit = Literal["months", "seconds", "numbers"]
Stamp = datetime | float

TOLERANCE = 0.2
"""Largest deviation from a whole number of steps, in steps: decimal years of months vary by this much."""
MOST_FALLS = 0.9
"""If a larger share of the rows is older than the row before, the file has the newest row first."""
SEVERAL = "; if the file is of several stations or persons, `group` names their column"
"""Advice on a repeated stamp if a key of `[dataset]` can help."""
SINGLE = "; if the file is of several stations or persons, keep the rows of one"
"""The same advice if no key can help."""
_MONTH = re.compile(r"(\d{4})[-/](\d{1,2})")
_SLASHES = re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})(.*)")
_SECONDS = {"day": 86400, "hour": 3600, "minute": 60, "second": 1}
_DIGITS = re.compile(r"\d{8}")
_EPOCH, _MICROSECOND = datetime(1970, 1, 1), timedelta(microseconds=1)


class IrregularTime(ValueError):
    """A fault of the stamps: the index of the row, and the fault in words."""

    def __init__(self, row: int, fault: str) -> None:
        super().__init__(fault)
        self.row, self.fault = row, fault


@dataclass(frozen=True)
class TimeStep:
    """The time between two moments of a series."""

    unit: Unit
    size: float

    def __str__(self) -> str:
        if self.unit == "numbers":
            return f"{self.size:g}"
        word, size = self.unit.removesuffix("s"), self.size
        if word == "second":
            word, size = next((name, size / unit) for name, unit in _SECONDS.items() if size % unit == 0 or unit == 1)
        return f"{size:g} {word}{'s' * (size != 1)}"

    def agrees_with(self, other: TimeStep) -> bool:
        """Return whether two series have the same step."""
        return self.unit == other.unit and abs(self.size - other.size) <= TOLERANCE * self.size


def parse_stamp(cell: Any) -> Stamp:
    """Parse a cell of the time column; ValueError if it is neither a number nor a date."""
    if isinstance(cell, datetime):
        return cell
    if isinstance(cell, date):
        return datetime(cell.year, cell.month, cell.day)
    text = str(cell).strip()
    if match := _MONTH.fullmatch(text):
        return datetime(int(match[1]), int(match[2]), 1)
    if match := _SLASHES.fullmatch(text):
        text = f"{match[1]}-{int(match[2]):02}-{int(match[3]):02}{match[4]}"
    if not _DIGITS.fullmatch(text):
        try:
            number = float(text)
            if number - number == 0 and "_" not in text:
                return number
        except ValueError:
            pass
    return datetime.fromisoformat(text)


def stamps_of(block: RowBlock, time: str) -> list[Stamp]:
    """Parse the time stamps of some rows. Raises WrongContent for a cell that is not a time stamp."""
    stamps = []
    for index, cell in enumerate(block.columns[time]):
        try:
            stamps.append(parse_stamp(cell))
        except (TypeError, ValueError):
            wrong = (
                "no value"
                if block.source.is_missing(cell)
                else f"`{str(cell)[:60]}` is neither a number nor a date such as 1949-01-31"
            )
            raise WrongContent((["time"], f"{block.where(time, index)}: {wrong}")) from None
    return stamps


def moments_of(block: RowBlock, time: str) -> Sequence[float | int]:
    """Return numbers by which some rows can be sorted in time: whole microseconds for dates, or the numeric time stamps.

    Raises WrongContent for a cell that is not a time stamp.
    """
    try:
        return block.columns[time].mapped(lambda cell: moment_of(parse_stamp(cell)))
    except (TypeError, ValueError):
        stamps_of(block, time)
        raise


def newest_first(stamps: Sequence[Stamp]) -> bool:
    """Return whether nearly all rows are older than the row before."""
    falls = sum(after < before for before, after in pairwise(map(moment_of, stamps)))
    return falls > MOST_FALLS * (len(stamps) - 1)


def is_date(cell: Any) -> bool:
    """Return whether a time stamp is a date, not a number."""
    return not isinstance(parse_stamp(cell), float)


def moment_of(stamp: Stamp) -> float | int:
    """Return the number by which a time stamp is sorted; see `moments_of`."""
    return stamp if isinstance(stamp, float) else (_utc(stamp) - _EPOCH) // _MICROSECOND


def _utc(stamp: datetime) -> datetime:
    return stamp.astimezone(UTC).replace(tzinfo=None) if stamp.tzinfo else stamp


def check_order(stamps: Sequence[Stamp], cells: Sequence[Any], several: str = SEVERAL) -> None:
    """Raise IrregularTime if stamps are of two kinds, or unsorted. `several`: advice for a file of several series."""
    for row in range(1, len(stamps)):
        earlier, later = stamps[row - 1], stamps[row]
        check_kind(row, later, earlier, cells[row], cells[row - 1])
        if earlier == later:
            raise IrregularTime(row, f"`{cells[row]}` is in two rows: a series has one row for each moment{several}")
        if earlier > later:  # type: ignore[operator]
            raise IrregularTime(row, f"`{cells[row]}` comes after `{cells[row - 1]}`: sort the rows by time")


def check_kind(row: int, stamp: Stamp, other: Stamp, cell: Any, other_cell: Any) -> None:
    """Raise IrregularTime if two stamps differ in kind (number, date, date with an offset)."""
    if isinstance(other, float) != isinstance(stamp, float) or _aware(other) != _aware(stamp):
        raise IrregularTime(row, f"`{cell}` is another kind of time stamp than `{other_cell}`")


def step_of(series: Sequence[Sequence[Stamp]]) -> TimeStep | None:
    """Return the most frequent step between rows of some series; None if no series has two rows."""
    unit = _unit(series)
    apart = [later - earlier for stamps in series if stamps for earlier, later in pairwise(positions(stamps, unit, stamps[0]))]
    return TimeStep(unit, median_low(apart)) if apart else None


def missing_before(stamps: Sequence[Stamp], cells: Sequence[Any], step: TimeStep | None) -> list[int]:
    """Return by row the number of moments missing before it. IrregularTime for rows that are not whole steps apart."""
    if step is None or not stamps:
        return [0] * len(stamps)
    missing = [0]
    for row, (earlier, later) in enumerate(pairwise(positions(stamps, step.unit, stamps[0])), 1):
        distance = later - earlier
        steps = round(distance / step.size)
        if not steps or abs(distance / step.size - steps) > TOLERANCE:
            fault = f"`{cells[row - 1]}` and `{cells[row]}` are not whole steps apart (most rows are {step} apart)"
            raise IrregularTime(row, f"{fault}: a series has equal steps: resample it, or leave `time` out")
        missing.append(steps - 1)
    return missing


def continue_stamps(last: Any, step: TimeStep, count: int, *, ends: bool = False) -> list[str]:
    """Return the `count` stamps after the cell `last`, in its spelling. `ends`: the stamps are last days of months."""
    stamp, text = parse_stamp(last), str(last).strip()
    if isinstance(stamp, float):
        whole = step.size == int(step.size) and stamp == int(stamp)
        numbers = [stamp + step.size * number for number in range(1, count + 1)]
        return [str(int(number)) if whole else f"{number:.10g}" for number in numbers]
    moments = [_later(stamp, step, number, ends=ends) for number in range(1, count + 1)]
    if _MONTH.fullmatch(text):
        return [f"{moment.year:04}{text[4]}{moment.month:02}" for moment in moments]
    if isinstance(last, date) and not isinstance(last, datetime):
        return [moment.date().isoformat() for moment in moments]
    dates = [
        f"{moment:%Y/%m/%d}" if "/" in text else f"{moment:%Y%m%d}" if _DIGITS.fullmatch(text) else f"{moment:%Y-%m-%d}"
        for moment in moments
    ]
    if (
        not any(moment.hour or moment.minute or moment.second or moment.microsecond for moment in [stamp, *moments])
        and ":" not in text
    ):
        return dates
    separator = "T" if "T" in text else " "
    return [f"{day}{separator}{moment.timetz().isoformat()}" for day, moment in zip(dates, moments, strict=True)]


def are_month_ends(stamps: Sequence[Stamp]) -> bool:
    """Return whether all stamps are the last days of their months."""
    return all(isinstance(stamp, datetime) and stamp.day == calendar.monthrange(stamp.year, stamp.month)[1] for stamp in stamps)


def _unit(series: Sequence[Sequence[Stamp]]) -> Unit:
    """Return the unit in which the steps of some series are counted."""
    if not any(series) or isinstance(next(stamps[0] for stamps in series if stamps), float):
        return "numbers"
    months = [[(stamp.year, stamp.month) for stamp in stamps if isinstance(stamp, datetime)] for stamps in series]
    apart = all(len(set(some)) == len(some) for some in months) and max(map(len, months)) > 1
    return "months" if apart else "seconds"


def positions(stamps: Sequence[Stamp], unit: Unit, origin: Stamp) -> list[float]:
    """Return the position of each stamp on a time axis in this unit. Seconds are counted from the stamp `origin`."""
    if unit == "numbers":
        return [stamp for stamp in stamps if isinstance(stamp, float)]
    dates = [stamp for stamp in stamps if isinstance(stamp, datetime)]
    if unit == "months":
        return [float(day.year * 12 + day.month) for day in dates]
    assert isinstance(origin, datetime)
    return [(day - origin).total_seconds() for day in dates]


def _later(stamp: datetime, step: TimeStep, number: int, *, ends: bool) -> datetime:
    if step.unit != "months":
        return stamp + timedelta(seconds=step.size * number)
    months = stamp.year * 12 + stamp.month - 1 + round(step.size * number)
    year, month = months // 12, months % 12 + 1
    days = calendar.monthrange(year, month)[1]
    return stamp.replace(year=year, month=month, day=days if ends else min(stamp.day, days))


def _aware(stamp: Stamp) -> bool:
    return isinstance(stamp, datetime) and stamp.tzinfo is not None
