"""The rows of a series: numbers without holes, and time stamps. Nothing here imports numpy."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from partrain.data.base import WrongContent
from partrain.data.tables.files import TableFile
from partrain.data.tables.time_stamps import IrregularTime, Stamp, TimeStep, check_stamps, newest_first, stamps_of
from partrain.errors import InputMissing
from partrain.number_format import counted
from partrain.preprocess.cells import finite
from partrain.preprocess.column import CellFault
from partrain.preprocess.numbers import NumberColumn

Missing = Literal["error", "interpolate", "forward"]
TREATED = ', or set missing = "interpolate" or "forward"'
"""Advice where a key of `[dataset]` can help."""


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
    """Cells of the time column, the oldest first; empty without one."""
    stamps: Sequence[Stamp] = ()
    left_out: str = ""
    """Sentence on the first moments, if they are left out because a column has no value yet."""

    @property
    def count(self) -> int:
        """Number of moments."""
        return len(self.numbers) // len(self.names)


def read_rows(table: TableFile, names: Sequence[str], time: str | None, missing: Missing) -> SeriesRows:
    """Read columns of numbers, one row for each moment; each hole is an error, or is filled.

    Args:
        table: The file.
        names: The columns.
        time: The column of time stamps, if any; the newest row may be the first. A moment without a row is a hole in every column.
        missing: Treatment of holes.
    """
    columns: dict[str, list[float]] = {name: [] for name in names}
    places: list[int] = []
    cells: list[Any] = []
    stamps: list[Stamp] = []
    wanted = list(dict.fromkeys([*names, *([time] if time else [])]))
    for block in table.blocks(wanted, dense=True):  # a moment that is left out would shift all after it
        faults = []
        for name, column in columns.items():
            try:
                column.extend(map(float, _Number().raw(block, name, holes=missing != "error")))
            except CellFault as fault:
                faults.append(fault)
        if faults:
            raise InputMissing(min(faults, key=lambda fault: fault.index).message)
        places += block.positions
        if time:
            cells += block.columns[time]
            stamps += stamps_of(block, time)
    step = None
    if time:
        if newest_first(stamps):
            lists: list[list[Any]] = [*columns.values(), places, cells, stamps]
            for rows in lists:
                rows.reverse()
        step, order = _moments(table, places, stamps, cells, time, missing)
        places = [places[row] for row, _ in order]
        columns = {name: [column[row] if present else math.nan for row, present in order] for name, column in columns.items()}
    left_out = ""
    if missing != "error":
        late, first = _latest_beginning(table, columns, places)
        if first:
            left_out = f"{table.locate(places[0])}: column `{late}`: no value in the first {counted(first, 'moment')}, which are left out"
            places, columns = places[first:], {name: column[first:] for name, column in columns.items()}
        for name, column in columns.items():
            _fill(table, column, places, name, missing)
    numbers = array("d", chain.from_iterable(zip(*columns.values(), strict=True)))
    return SeriesRows(list(names), numbers, step, cells, stamps, left_out)


def _latest_beginning(table: TableFile, columns: Mapping[str, Sequence[float]], places: Sequence[int]) -> tuple[str, int]:
    """Return the column whose first value comes latest, and the moment of that value; InputMissing for a column without any."""
    starts = {
        name: next((at for at, value in enumerate(column) if not math.isnan(value)), -1) for name, column in columns.items()
    }
    if empty := [name for name, start in starts.items() if start < 0]:
        raise InputMissing(f"{table.locate(places[0])}: column `{empty[0]}`: no value in any row")
    return max(starts.items(), key=lambda pair: pair[1])


class _Number(NumberColumn):
    """A column of a series."""

    def parse(self, cell: Any) -> float:
        return finite(cell)

    def fault(self, cell: Any, *, advises: bool) -> str:
        return f"`{str(cell)[:60]}` is no finite number"

    def lacks(self, *, advises: bool) -> str:
        return "no value; a series needs every value: fill it in" + TREATED * advises


def _moments(
    table: TableFile, places: Sequence[int], stamps: Sequence[Stamp], cells: Sequence[Any], time: str, missing: Missing
) -> tuple[TimeStep | None, list[tuple[int, bool]]]:
    """Return the step; and for each moment its row, or the row after it and False if the file leaves it out."""
    try:
        step, lacking = check_stamps(stamps, cells)
    except IrregularTime as irregular:
        raise WrongContent((["time"], f"{table.locate(places[irregular.row])}: column `{time}`: {irregular.fault}")) from None
    if missing == "error" and any(lacking):
        row = next(row for row, count in enumerate(lacking) if count)
        gap = f"{lacking[row]:,} moment{' is' if lacking[row] == 1 else 's are'} missing (rows are {step} apart)"
        what = f"between `{cells[row - 1]}` and `{cells[row]}` {gap}: add the rows" + TREATED * bool(table.advice)
        raise WrongContent((["time"], f"{table.locate(places[row])}: column `{time}`: {what}"))
    return step, [(row, present) for row, before in enumerate(lacking) for present in (*[False] * before, True)]


def _fill(table: TableFile, column: list[float], places: Sequence[int], name: str, missing: Missing) -> None:
    """Fill the holes of a column that begins with a value, in place; InputMissing for a hole at its end that cannot be filled."""
    last = -1
    """Row of the newest value."""
    ends: list[float | None] = [*column, None]
    for at, value in enumerate(ends):
        if value is not None and math.isnan(value):
            continue
        holes = range(last + 1, at)
        if holes and value is None and missing == "interpolate":
            what = 'no value, and none after it to interpolate to: fill it in, delete the last rows, or take missing = "forward"'
            raise InputMissing(f"{table.locate(places[holes[0]])}: column `{name}`: {what}")
        for hole in holes:
            column[hole] = before = column[last]
            if value is not None and missing == "interpolate":
                column[hole] = before + (hole - last) / (at - last) * (value - before)
        last = at
