"""The rows of a series: numbers without holes, and time stamps. Nothing here imports numpy."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from partrain.data.base import WrongContent
from partrain.data.tables.files import TableFile
from partrain.data.tables.time_stamps import IrregularTime, Stamp, TimeStep, check_stamps, parse_stamp
from partrain.errors import InputMissing
from partrain.preprocess.cells import is_missing

Missing = Literal["error", "interpolate", "forward"]


@dataclass(frozen=True)
class SeriesRows:
    """Numbers by moment, and the stamps of the rows in the file."""

    names: list[str]
    """The columns."""
    numbers: array[float]
    """Numbers, row after row, with those of filled holes."""
    step: TimeStep | None = None
    """Distance between two moments; None without a time column, or for a single row."""
    cells: Sequence[Any] = ()
    """Cells of the time column, by row of the file; empty without one."""
    stamps: Sequence[Stamp] = ()

    @property
    def count(self) -> int:
        """Number of moments."""
        return len(self.numbers) // len(self.names)


def read_rows(table: TableFile, names: Sequence[str], time: str | None, missing: Missing) -> SeriesRows:
    """Read columns of numbers, one row for each moment; each hole is an error, or is filled.

    Args:
        table: The file.
        names: The columns.
        time: The column of time stamps, if any. A moment without a row is a hole in every column.
        missing: Treatment of holes.
    """
    rows: list[list[float]] = []
    places: list[int] = []
    cells: list[Any] = []
    stamps: list[Stamp] = []
    wanted = list(dict.fromkeys([*names, *([time] if time else [])]))
    for block in table.blocks(wanted, dense=True):  # a moment that is left out would shift all behind it
        for place, *values in zip(block.positions, *(block.columns[name] for name in names), strict=True):
            try:
                rows.append(list(map(_number, values)))
            except (TypeError, ValueError):
                rows.append(_with_holes(table, place, names, values, missing))
        places += block.positions
        if time:
            cells += block.columns[time]
            stamps += _stamps(table, block.positions, block.columns[time], time)
    step = None
    if time:
        step, rows, places = _at_each_moment(table, rows, places, stamps, cells, time, missing)
    if missing != "error":
        for column in range(len(names)):
            _fill(table, rows, places, column, names[column], missing)
    numbers = array("d")
    for row in rows:
        numbers.extend(row)
    return SeriesRows(list(names), numbers, step, cells, stamps)


def _stamps(table: TableFile, places: Sequence[int], cells: Sequence[Any], time: str) -> list[Stamp]:
    found = []
    for place, cell in zip(places, cells, strict=True):
        try:
            found.append(parse_stamp(cell))
        except (TypeError, ValueError):
            wrong = "no value" if is_missing(cell) else f"`{str(cell)[:60]}` is neither a number nor a date such as 1949-01-31"
            raise WrongContent((["time"], f"{table.locate(place)}: column `{time}`: {wrong}")) from None
    return found


def _at_each_moment(
    table: TableFile,
    rows: list[list[float]],
    places: list[int],
    stamps: Sequence[Stamp],
    cells: Sequence[Any],
    time: str,
    missing: Missing,
) -> tuple[TimeStep | None, list[list[float]], list[int]]:
    """Return the step, and rows and places with a row of holes for each moment that the file leaves out."""
    try:
        step, lacking = check_stamps(stamps, cells)
    except IrregularTime as irregular:
        raise WrongContent((["time"], f"{table.locate(places[irregular.row])}: column `{time}`: {irregular.fault}")) from None
    if not any(lacking):
        return step, rows, places
    if missing == "error":
        row = next(row for row, count in enumerate(lacking) if count)
        gap = f"{lacking[row]:,} moment{' is' if lacking[row] == 1 else 's are'} missing (rows are {step} apart)"
        what = f"between `{cells[row - 1]}` and `{cells[row]}` {gap}"
        raise WrongContent((["time"], f"{table.locate(places[row])}: column `{time}`: {what}: {_advice(table, 'add the rows')}"))
    whole: list[list[float]] = []
    where: list[int] = []
    for numbers, place, before in zip(rows, places, lacking, strict=True):
        whole += [*([math.nan] * len(numbers) for _ in range(before)), numbers]
        where += [place] * (before + 1)
    return step, whole, where


def _with_holes(table: TableFile, place: int, names: Sequence[str], cells: Sequence[Any], missing: Missing) -> list[float]:
    """Parse a row that has a cell without a finite number: NaN for a hole, if holes are filled."""
    found = []
    for name, cell in zip(names, cells, strict=True):
        if is_missing(cell):
            if missing == "error":
                what = "no value; a series needs every value"
                raise InputMissing(f"{table.locate(place)}: column `{name}`: {what}: {_advice(table, 'fill it in')}")
            found.append(math.nan)
            continue
        try:
            found.append(_number(cell))
        except (TypeError, ValueError):
            raise InputMissing(f"{table.locate(place)}: column `{name}`: `{str(cell)[:60]}` is no finite number") from None
    return found


def _advice(table: TableFile, todo: str) -> str:
    return todo + f', or {table.way} missing = "interpolate" or "forward"' * bool(table.way)


def _fill(table: TableFile, rows: list[list[float]], places: Sequence[int], column: int, name: str, missing: Missing) -> None:
    """Fill the holes of a column in place; InputMissing for a hole at an end that no value lies beside."""
    last = -1
    """Row of the newest value."""
    ends: list[list[float] | None] = [*rows, None]
    for at, row in enumerate(ends):
        if row is not None and math.isnan(row[column]):
            continue
        holes = range(last + 1, at)
        if holes and last < 0:
            raise InputMissing(f"{table.locate(places[0])}: column `{name}`: no value, and none before it: delete the first rows")
        if holes and row is None and missing == "interpolate":
            what = 'no value, and none after it to interpolate to: fill it in, delete the last rows, or take missing = "forward"'
            raise InputMissing(f"{table.locate(places[holes[0]])}: column `{name}`: {what}")
        for hole in holes:
            before = rows[last][column]
            rows[hole][column] = (
                before if missing == "forward" or row is None else before + (hole - last) / (at - last) * (row[column] - before)
            )
        last = at


def _number(cell: Any) -> float:
    """Parse a cell; ValueError or TypeError unless it holds a finite number."""
    number = float(cell)
    if not math.isfinite(number) or "_" in str(cell):
        raise ValueError
    return number
