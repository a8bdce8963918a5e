"""Jobs for series: tables whose rows follow one another in time, as a column of time stamps tells.

The rule. A table is a series if a column holds time stamps in order and in equal steps (to within single holes): dates, or numbers in a
column called time, date, year, month, week, day, hour or t. The newest may be first. The season follows from the step: 4 quarters, 12
months, 7 days, 52 weeks, or the rows of a day. `difference` is that of [], [1], [season] and [1, season] which leaves the smallest
standard deviation in the first 70 % of rows; lags are added only if they lower it by a tenth. Another column of numbers is an input if
with its past a linear forecast errs less by a tenth, on the newest of these rows. The job forecasts a season, but at most 12 rows or half
a day; without a season one row.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from partrain.config.overrides import toml_value
from partrain.data.tables.files import TableFile
from partrain.data.tables.time_stamps import (
    TOLERANCE,
    IrregularTime,
    TimeStep,
    check_stamps,
    moment_of,
    newest_first,
    parse_stamp,
)
from partrain.errors import InputMissing
from partrain.number_format import counted
from partrain.templates.assemble import Draft, assemble, listed
from partrain.templates.order_in_time import FEW_FALLS, OLDER, epoch_unit

FEWEST = 40
"""Rows from which a series can be trained on."""
SEASONS = {("months", 1): 12, ("months", 3): 4, ("seconds", 86400): 7, ("seconds", 604800): 52}
"""Rows of a season, by unit and size of the step."""
DAY, MOST_OF_DAY = 86400, 288
"""Seconds of a day, the season of shorter steps, and the most rows of one."""
MOST_STEPS = 12
"""Most rows of a season that are forecast at once; of steps shorter than an hour half a day."""
MOST_HOLES = 0.1
"""Moments without a row, as a share of the rows, up to which a table is a series."""
JUMP = 50
"""Ratio of the largest step between two rows and the middle one from which a series has outages: they would decide a squared loss."""
MOST_EQUAL = 0.5
"""Share of equal steps from which unequal ones are named: fewer are those of events, not of a series."""
GAIN = 0.9
"""Largest share of the standard deviation that another difference may leave, or of the error that another column may."""

MOST_CELLS = 10_000_000
"""Most numbers in the windows over a column by which a linear forecast is tried: the newest ones, which bounds its memory."""


class Refusal(NamedTuple):
    """A reason why a table is no series."""

    reason: str
    near: bool
    """Few rows are to blame."""


def series_job(
    file: TableFile,
    columns: Mapping[str, list[Any]],
    written: Sequence[str],
    targets: Sequence[str],
    stamped: Sequence[str],
    horizon: int | None,
) -> Draft | Refusal | None:
    """Write a job that forecasts columns of a series; a refusal or None if the table is not a series, or a target not a column of numbers.

    Args:
        file: The table.
        columns: The cells of the targets, of columns that may hold time stamps, and of other columns of numbers, of which none is missing.
        written: Lines of `[dataset]` that say where the table is, and how it is written.
        targets: The columns to forecast. The first one decides on differences.
        stamped: The columns that may hold time stamps.
        horizon: The rows to forecast, if the user asks for a number.
    """
    target = targets[0]
    series = [_numbers(columns[name], file.is_missing) for name in targets]
    if len(columns[target]) < FEWEST or not all(series):
        return None
    values = series[0]
    assert values
    readings = {name: reading for name in stamped if (reading := _time(file, name, columns[name]))}
    first = next(((name, reading) for name, reading in readings.items() if not isinstance(reading, Refusal)), None)
    if first is None:
        return next((reading for reading in readings.values() if isinstance(reading, Refusal)), None)
    time, (step, holes) = first
    if turned := newest_first(list(map(parse_stamp, columns[time]))):
        columns = {name: cells[::-1] for name, cells in columns.items()}
        values = values[::-1]
    unit = epoch_unit(list(map(str, columns[time]))) if step.unit == "numbers" else None
    seconds = TimeStep("seconds", step.size / unit) if unit else step
    season = SEASONS.get((seconds.unit, round(seconds.size))) or _rows_of_day(seconds) or _season_of_numbers(step)
    if season and len(values) < 4 * season:
        season = None
    lags = _lags(values[: int(len(values) * OLDER)], season)
    window = min(2 * season if season else 12, len(values) // 5)
    tests = max(len(values) * 15 // 100, 1)
    most = season // 2 if season and _rows_of_day(seconds) else MOST_STEPS
    steps = horizon or min(season or 1, max(most, MOST_STEPS))
    items = len(values) - sum(lags) - window - 2 * tests - 3 * steps
    if horizon and items < 1:
        raise InputMissing(f"{file.path}: --horizon: {len(values):,} rows are too few to forecast {horizon:,} rows ahead")
    lines = [
        'kind = "series"',
        *written,
        f"target = {toml_value(target if len(targets) == 1 else list(targets))}",
        f"time = {toml_value(time)}              # rows are {seconds} apart",
        f"window = {window}                  # rows that the network sees",
        f"steps = {steps}                   # rows after them that it forecasts",
    ]
    if season:
        lines.append(f"season = {season}                  # `evaluate` compares with the value one season before")
    if lags:
        lines.append(f"difference = {toml_value(lags)}         # of all differences, these leave the least deviation")
    notes = [
        f"a series: `{time}` has time stamps, {seconds} apart{', the newest first' * turned}; the newest {2 * tests:,} rows are held out (--kind table for rows in any order)"
    ]
    numbers = {name: cells for name, cells in columns.items() if name not in (*targets[1:], *stamped)}
    helpful = (
        [] if holes or len(targets) > 1 or len(values) < len(columns[target]) else _helpful(numbers, target, lags, window, steps)
    )
    if helpful:
        lines.append(f"columns = {toml_value([target, *helpful])}   # what the network sees")
        notes.append(
            f"the past of {listed(f'`{name}`' for name in helpful)} is an input, too: a linear forecast errs less with it (`columns`)"
        )
    if others := [name for name in file.names if name not in (*targets, time, *helpful)]:
        alone = "" if helpful else f", `{target}` is forecast from its own past"
        notes.append(f"{counted(len(others), 'column')} not used{alone}: {listed(f'`{name}`' for name in others)} (`columns`)")
    if holes or any(file.is_missing(cell) for name in targets for cell in columns[name]):
        lines.append('missing = "interpolate"      # a line between the values beside a hole')
        notes.append(f"moments without a value of `{target}` are filled in on a line between their neighbours (`missing`)")
        beginnings = {name: next(row for row, cell in enumerate(columns[name]) if not file.is_missing(cell)) for name in targets}
        late, rows = max(beginnings.items(), key=lambda pair: pair[1])
        if rows:
            notes.append(f"the first {counted(rows, 'row')} without a value of `{late}` left out (`missing`)")
    lines += [f"test_items = {tests}", f"validation = {tests}                # the last before the test items"]
    what = f"Forecast {listed(f'`{name}`' for name in targets)} of {file.path.name} from the {window} rows before, {steps} row{'s' * (steps > 1)} ahead: {len(values):,} rows."
    task = ['metrics = ["rmse"]            # beside the mean error `mae`, which is judged anyway']
    if (jump := largest_jump(values)) >= JUMP:
        outages = f"the largest step of `{target}` from row to row is {jump:,.0f} times the middle one, as in outages"
        task.append('loss = "absolute"             # squared, few large steps would decide')
        notes.append(f'{outages}: loss = "absolute" learns what is usual (`loss`)')
    return Draft(assemble(file.path, what, ['name = "mlp"', "hidden = [32]"], lines, max(items, 1), task=task), notes)


def _numbers(cells: list[Any], is_missing: Callable[[Any], bool]) -> list[float] | None:
    """Return the numbers of a column without holes; None if a cell is no number, or if most are missing."""
    try:
        numbers = [float(cell) for cell in cells if not is_missing(cell)]
    except (TypeError, ValueError):
        return None
    return numbers if len(numbers) > len(cells) // 2 else None


def _season_of_numbers(step: TimeStep) -> int | None:
    """Return the rows of a season whose time stamps are years and fractions of them; None for other numbers."""
    rows = round(1 / step.size) if step.unit == "numbers" and 0 < step.size < 1 else 0
    return rows if rows in (4, 12, 52) and abs(rows * step.size - 1) < 0.01 else None


def _rows_of_day(step: TimeStep) -> int | None:
    """Return the rows of a day, if they are few and their step divides it."""
    rows = round(DAY / step.size) if step.unit == "seconds" and step.size else 0
    return rows if 2 <= rows <= MOST_OF_DAY and abs(rows * step.size - DAY) < 1 else None


def _time(file: TableFile, name: str, cells: list[Any]) -> tuple[TimeStep, bool] | Refusal | None:
    """Return the step of a column of time stamps, and if moments are missing; or why it is no series. None if it has no time stamps."""
    try:
        stamps = list(map(parse_stamp, cells))
    except (TypeError, ValueError):
        return None
    if turned := newest_first(stamps):
        stamps, cells = stamps[::-1], cells[::-1]

    def refusal(row: int, fault: str, *, near: bool) -> Refusal:
        places = [position for block in file.blocks([name]) for position in block.positions]
        return Refusal(f"{file.locate(places[-1 - row if turned else row])}: no series: column `{name}`: {fault}", near)

    try:
        step, lacking = check_stamps(stamps, cells)
    except IrregularTime as irregular:
        moments = list(map(moment_of, stamps))
        wrong = max(sum(later < earlier for earlier, later in pairwise(moments)), len(moments) - len(set(moments)))
        near = 0 < wrong <= max(1, len(cells) // FEW_FALLS) or (not wrong and _equal_steps(moments) > MOST_EQUAL)
        return refusal(irregular.row, irregular.fault, near=near)
    if step is None:
        return None
    if sum(lacking) > len(cells) * MOST_HOLES:
        row = next(row for row, count in enumerate(lacking) if count)
        fault = f"{counted(sum(lacking), 'moment')} without a row, the first before `{cells[row]}` (rows are {step} apart)"
        return refusal(row, fault, near=True)
    return step, any(lacking)


def largest_jump(values: Sequence[float]) -> float:
    """Return the ratio of the largest step between two rows and the middle one; 0 if most steps are 0."""
    jumps = sorted(abs(later - earlier) for earlier, later in pairwise(values))
    return jumps[-1] / usual if (usual := jumps[len(jumps) // 2]) else 0.0


def _equal_steps(moments: Sequence[float]) -> float:
    """Return the share of the steps that are like the middle one."""
    apart = [later - earlier for earlier, later in pairwise(moments)]
    usual = statistics.median_low(apart)
    return sum(abs(distance - usual) <= TOLERANCE * usual for distance in apart) / len(apart)


def _lags(values: list[float], season: int | None) -> list[int]:
    """Choose the differences that leave the smallest standard deviation; more of them must lower it by a tenth."""
    best: list[int] = []
    for lags in [[], [1], *([[season], [1, season]] if season else [])]:
        if _deviation(values, lags) < _deviation(values, best) * (GAIN if len(lags) > len(best) else 1):
            best = lags
    return best


def _deviation(values: list[float], lags: list[int]) -> float:
    for lag in lags:
        values = [later - earlier for earlier, later in zip(values, values[lag:], strict=False)]
    return statistics.pstdev(values)


def _helpful(columns: Mapping[str, list[Any]], target: str, lags: list[int], window: int, steps: int) -> list[str]:
    """Return the other columns with whose past a linear forecast of the target errs less, by a tenth, on the newest of the older rows."""
    import numpy as np
    from numpy.lib.stride_tricks import sliding_window_view

    from partrain.data.tables.differences import difference

    table = np.array([list(map(float, cells)) for cells in columns.values()]).T
    older = int(len(table) * OLDER)
    rows = difference(table[max(0, older - MOST_CELLS // window) : older], lags)
    rows = (rows - rows.mean(0)) / np.where(rows.std(0) > 0, rows.std(0), 1.0)
    series = dict(zip(columns, rows.T, strict=True))
    past = {name: sliding_window_view(column[:-steps], window) for name, column in series.items()}
    future = sliding_window_view(series[target][window:], steps)
    trained = len(future) * 4 // 5

    def error(names: list[str]) -> float:
        inputs = np.concatenate([past[name] for name in names], 1)
        older, newer = inputs[:trained], inputs[trained:]
        weights = np.linalg.solve(older.T @ older + np.eye(inputs.shape[1]), older.T @ future[:trained])
        return float(np.abs(newer @ weights - future[trained:]).mean())

    alone = error([target]) if trained else 0.0
    return [name for name in columns if name != target and error([target, name]) < GAIN * alone]
