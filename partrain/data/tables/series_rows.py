"""The rows of a series: numbers without gaps, and time stamps. Nothing here imports numpy."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

from partrain.data.base import WrongContent
from partrain.data.tables.files import TableFile
from partrain.data.tables.group_cells import group_codes, ordered_groups
from partrain.data.tables.time_stamps import (
    SEVERAL,
    SINGLE,
    IrregularTime,
    Stamp,
    TimeStep,
    check_kind,
    check_order,
    missing_before,
    newest_first,
    positions,
    stamps_of,
    step_of,
)
from partrain.errors import InputMissing
from partrain.number_format import counted
from partrain.preprocess.cells import Class, finite
from partrain.preprocess.column import CellFault
from partrain.preprocess.numbers import NumberColumn

Missing = Literal["error", "interpolate", "forward"]
TREATED = ', or set missing = "interpolate" or "forward"'
"""Advice if a key of `[dataset]` can help."""


@dataclass(frozen=True)
class SeriesRows:
    """Numbers by moment, and the stamps of the rows in the file."""

    names: list[str]
    """The columns."""
    numbers: array[float]
    """Numbers, row after row, including filled gaps."""
    step: TimeStep | None = None
    """Distance between two moments; None without a time column, or with a single row."""
    cells: Sequence[Any] = ()
    """Cells of the time column, the oldest first; empty without a time column."""
    stamps: Sequence[Stamp] = ()
    left_out: str = ""
    """Sentence on the first moments, if they are left out because a column has no value yet."""
    group: Class | None = None
    """Name of the group that the rows belong to."""
    moments: Sequence[float] = ()
    """For a group: the position of each moment on the time axis shared by all groups, in steps. Without a time column
    all groups end at the same moment."""
    where: str = ""
    """Location of the first row."""

    @property
    def count(self) -> int:
        """Number of moments."""
        return len(self.numbers) // len(self.names)


def read_rows(table: TableFile, names: Sequence[str], time: str | None, missing: Missing) -> SeriesRows:
    """Read columns of numbers, one row for each moment; each gap is an error, or is filled.

    Args:
        table: The file.
        names: The columns.
        time: The column of time stamps, if any; the newest row may be the first. A moment without a row is a gap in every column.
        missing: Treatment of gaps.
    """
    rows = _read(table, names, time, missing, None)[0].in_order()
    step = step_of([rows.stamps])
    return _filled(rows, step, rows.lacking(step, missing), missing)


def read_groups(table: TableFile, names: Sequence[str], time: str | None, missing: Missing, group: str) -> list[SeriesRows]:
    """Read the rows of each group as a series; the groups are in the order of their names, independent of the order in the file.

    `group`: the column that names the group of a row. Others: see `read_rows`. All groups have the same step.
    """
    whole, codes, numbers = _read(table, names, time, missing, group)
    if not numbers:
        raise InputMissing(f"{table.path}: holds no rows")
    members: list[list[int]] = [[] for _ in numbers]
    for row, code in enumerate(codes):
        members[code].append(row)
    ordered = ordered_groups(numbers)
    parts = {name: whole.part(members[numbers[name]], _named(group, name)).in_order() for name in ordered}
    first = parts[ordered[0]]
    for rows in parts.values() if time else ():
        rows.check_kind(first)
    step, result = step_of([rows.stamps for rows in parts.values()]), []
    for name, rows in parts.items():
        lacking = rows.lacking(step, missing)
        filled = _filled(rows, step, lacking, missing)
        line = rows.line(step, lacking, first)
        result.append(replace(filled, group=name, moments=line[len(line) - filled.count :], where=table.locate(min(rows.places))))
    return result


def _named(group: str, name: Class) -> str:
    return f", `{group}` {name}"


@dataclass(frozen=True)
class _Rows:
    """The rows of a series as the file has them."""

    table: TableFile
    time: str | None
    columns: dict[str, list[float]]
    """Numbers, NaN for a missing one."""
    places: list[int]
    """Number of each row, for `TableFile.locate`."""
    cells: list[Any]
    """Cells of the time column."""
    stamps: list[Stamp]
    of: str = ""
    """Name of the rows' group, for messages."""

    def where(self, row: int, name: str) -> str:
        """Return the location of a cell, for messages."""
        return f"{self.table.locate(self.places[row])}: column `{name}`{self.of}"

    def part(self, rows: Sequence[int], of: str) -> _Rows:
        """Return some rows: those of one group."""
        columns = {name: [column[row] for row in rows] for name, column in self.columns.items()}
        places = [self.places[row] for row in rows]
        timed = rows if self.time else ()
        cells, stamps = [self.cells[row] for row in timed], [self.stamps[row] for row in timed]
        return _Rows(self.table, self.time, columns, places, cells, stamps, of)

    def in_order(self) -> _Rows:
        """Return the rows with the oldest first. WrongContent for unsorted time stamps."""
        if not self.time:
            return self
        rows = self
        if newest_first(self.stamps):
            columns = {name: column[::-1] for name, column in self.columns.items()}
            rows = replace(self, columns=columns, places=self.places[::-1], cells=self.cells[::-1], stamps=self.stamps[::-1])
        with rows.located():
            check_order(rows.stamps, rows.cells, "" if self.of else SEVERAL if self.table.advice else SINGLE)
        return rows

    def check_kind(self, first: _Rows) -> None:
        """Raise WrongContent if the time stamps differ in kind from those of the first group."""
        with self.located():
            check_kind(0, self.stamps[0], first.stamps[0], self.cells[0], first.cells[0])

    @contextmanager
    def located(self) -> Iterator[None]:
        """Turn a fault of the time stamps into WrongContent with its location."""
        try:
            yield
        except IrregularTime as irregular:
            raise WrongContent((["time"], f"{self.where(irregular.row, self.time or '')}: {irregular.fault}")) from None

    def lacking(self, step: TimeStep | None, missing: Missing) -> list[int]:
        """Return by row the number of moments before it that the file leaves out. WrongContent if it must not leave any out."""
        if not self.time:
            return [0] * len(self.places)
        with self.located():
            lacking = missing_before(self.stamps, self.cells, step)
        if missing == "error" and any(lacking):
            row = next(row for row, count in enumerate(lacking) if count)
            gap = f"{lacking[row]:,} moment{' is' if lacking[row] == 1 else 's are'} missing (rows are {step} apart)"
            what = f"between `{self.cells[row - 1]}` and `{self.cells[row]}` {gap}: add the rows"
            raise WrongContent((["time"], f"{self.where(row, self.time)}: {what}{TREATED * bool(self.table.advice)}"))
        return lacking

    def line(self, step: TimeStep | None, lacking: Sequence[int], first: _Rows) -> list[float]:
        """Return the position of each moment on the time axis of all groups; see `SeriesRows.moments`.

        `first`: the first group.
        """
        if not self.time:
            return [float(at) for at in range(-len(self.places), 0)]
        if step is None:
            return [0.0]
        line: list[float] = []
        for place, before in zip(positions(self.stamps, step.unit, first.stamps[0]), lacking, strict=True):
            at = place / step.size
            start = line[-1] if line else at
            line += [*(start + (at - start) * number / (before + 1) for number in range(1, before + 1)), at]
        return line


def _read(
    table: TableFile, names: Sequence[str], time: str | None, missing: Missing, group: str | None
) -> tuple[_Rows, Sequence[int], dict[Class, int]]:
    """Read the rows of a file in order, with `group` the group number of each row, and the number of each group."""
    rows = _Rows(table, time, {name: [] for name in names}, [], [], [])
    codes: list[int] = []
    numbers: dict[Class, int] = {}
    wanted = list(dict.fromkeys([*names, *([time] if time else []), *([group] if group else [])]))
    for block in table.blocks(wanted, dense=True):  # leaving out a moment would shift all later ones
        some = group_codes(block, group, numbers) if group else []
        faults = []
        for name, column in rows.columns.items():
            try:
                column.extend(map(float, _Number().raw(block, name, holes=missing != "error")))
            except CellFault as fault:
                faults.append((name, fault))
        if faults:
            name, first = min(faults, key=lambda pair: pair[1].index)
            of = _named(group, list(numbers)[some[first.index]]) if group else ""
            raise InputMissing(f"{block.where(name, first.index)}{of}: {first.wrong}")
        codes += map(int, some)
        rows.places.extend(block.positions)
        if time:
            rows.cells.extend(block.columns[time])
            rows.stamps.extend(stamps_of(block, time))
    return rows, codes, numbers


def _filled(rows: _Rows, step: TimeStep | None, lacking: Sequence[int], missing: Missing) -> SeriesRows:
    """Return the moments of a series without gaps. InputMissing for a gap that cannot be filled."""
    order = [(row, present) for row, before in enumerate(lacking) for present in (*[False] * before, True)]
    columns = {name: [column[row] if present else math.nan for row, present in order] for name, column in rows.columns.items()}
    names = list(columns)
    rows = replace(rows, columns=columns, places=[rows.places[row] for row, _ in order])
    left_out = ""
    if missing != "error":
        late, first = _latest_beginning(rows)
        if first:
            left_out = f"{rows.where(0, late)}: no value in the first {counted(first, 'moment')}, which are left out"
            columns = {name: column[first:] for name, column in columns.items()}
            rows = replace(rows, columns=columns, places=rows.places[first:])
        for name in names:
            _fill(rows, name, missing)
    numbers = array("d", chain.from_iterable(zip(*columns.values(), strict=True)))
    return SeriesRows(names, numbers, step, rows.cells, rows.stamps, left_out)


def _latest_beginning(rows: _Rows) -> tuple[str, int]:
    """Return the column whose first value comes latest, and that value's moment; InputMissing for a column without values."""
    starts = {
        name: next((at for at, value in enumerate(column) if not math.isnan(value)), -1) for name, column in rows.columns.items()
    }
    if empty := [name for name, start in starts.items() if start < 0]:
        raise InputMissing(f"{rows.where(0, empty[0])}: no value in any row")
    return max(starts.items(), key=lambda pair: pair[1])


class _Number(NumberColumn):
    """A column of a series."""

    def parse(self, cell: Any) -> float:
        return finite(cell)

    def fault(self, cell: Any, *, advises: bool) -> str:
        return f"`{str(cell)[:60]}` is no finite number"

    def lacks(self, *, advises: bool) -> str:
        return "no value; a series needs every value: fill it in" + TREATED * advises


def _fill(rows: _Rows, name: str, missing: Missing) -> None:
    """Fill the gaps of a column that begins with a value, in place; InputMissing for a gap at its end that cannot be filled."""
    column, last = rows.columns[name], -1  # `last`: row of the newest value
    ends: list[float | None] = [*column, None]
    for at, value in enumerate(ends):
        if value is not None and math.isnan(value):
            continue
        holes = range(last + 1, at)
        if holes and value is None and missing == "interpolate":
            what = 'no value, and none after it to interpolate to: fill it in, delete the last rows, or take missing = "forward"'
            raise InputMissing(f"{rows.where(holes[0], name)}: {what}")
        for hole in holes:
            column[hole] = before = column[last]
            if value is not None and missing == "interpolate":
                column[hole] = before + (hole - last) / (at - last) * (value - before)
        last = at
