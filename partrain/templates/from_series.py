"""Jobs for series: tables whose rows follow one another in time, according to a column of time stamps.

The rule. A table is a series if a column holds time stamps in order and in equal steps (to within single holes): dates, or numbers in a
column called time, date, year, month, week, day, hour or t. The newest may be first. The season follows from the step: 4 quarters, 12
months, 7 days (5 if only business days have rows), 52 weeks, or the rows of a day. The window is two seasons, or a week if a linear
forecast errs less with it in the first 70 % of rows. If the level drifts there, `difference` is the one of [], [1], [season] and
[1, season] that leaves the smallest standard deviation; a further lag must lower it by a tenth. Another column of numbers is an
input if its past reduces the error of the linear forecast by a tenth. The job forecasts a season, but at most 12 rows or half a
day; without a season one row.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from partrain.config.overrides import toml_value
from partrain.data.tables.files import TableFile
from partrain.data.tables.time_stamps import (
    SEVERAL,
    TOLERANCE,
    IrregularTime,
    TimeStep,
    check_kind,
    check_order,
    missing_before,
    moment_of,
    newest_first,
    parse_stamp,
    step_of,
)
from partrain.errors import InputMissing
from partrain.number_format import counted
from partrain.templates.assemble import Draft, assemble, listed
from partrain.templates.order_in_time import FEW_FALLS, OLDER, epoch_unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEWEST = 40
"""Number of rows from which a series can be trained on."""
SEASONS = {("months", 1): 12, ("months", 3): 4, ("seconds", 86400): 7, ("seconds", 604800): 52}
"""Rows in a season, by unit and size of the step."""
DAY, MOST_OF_DAY = 86400, 288
"""Seconds in a day, which is the season of shorter steps, and the maximum number of rows in a day."""
MOST_STEPS = 12
"""Maximum number of rows of a season that are forecast at once; for steps shorter than an hour, half a day."""
MOST_HOLES = 0.1
"""Moments without a row, as a share of the rows, up to which a table is a series."""
WORKDAYS, MOST_AT_WEEKENDS = 5, 0.9
"""Rows in a week of business days, and the share of weekends among the days without a row above which rows are business days."""
JUMP = 50
"""Ratio of the largest step between two rows to the median step from which a series has outages: they would dominate a squared
loss."""
MOST_EQUAL = 0.5
"""Share of equal steps from which unequal steps are reported: a smaller share suggests events, not a series."""
GAIN = 0.9
"""Largest fraction of the standard deviation that another difference may leave, or of the error that another column may leave."""

SURE = 0.97
"""Largest fraction of the error of a linear forecast that a wider window may leave."""
UNIT_ROOT = -2.86
"""Statistic of Dickey and Fuller's test above which a random walk is not ruled out, at 5 %."""
FEWEST_WINDOWS = 24
"""Number of windows from which a linear forecast is tried."""
MOST_OF_WEEK = 336
"""Maximum number of rows of a week that a network sees."""
MOST_CELLS = 4_000_000
"""Maximum number of values in the windows over a column for trying a linear forecast: the newest ones, which bounds its
memory."""


class Refusal(NamedTuple):
    """A reason why a table is not a series."""

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
    group: str | None = None,
    *,
    equal_rows: bool = False,
) -> Draft | Refusal | None:
    """Write a job that forecasts columns of a series.

    Return a refusal or None if the table is not a series, or a target is not a column of numbers.

    Args:
        file: The table.
        columns: The cells of the targets, of columns that may hold time stamps, of the group, and of other columns of numbers
            without
            missing values.
        written: Lines of `[dataset]` that locate the table and describe its format.
        targets: The columns to forecast. The first one decides on differences.
        stamped: The columns that may hold time stamps.
        horizon: The number of rows to forecast, if the user gives it.
        group: The column of groups, each of which is a series, if the table holds several.
        equal_rows: Rows count as equal steps, without time stamps.
    """
    target = targets[0]
    parts = _rows_by(columns[group]) if group else [list(range(len(columns[target])))]
    usual = statistics.median_low(map(len, parts))
    numbers = [_numbers(columns[name], file.is_missing) for name in targets]
    if usual < FEWEST or not all(numbers):
        return None
    readings = {
        name: reading for name in stamped if name != group and (reading := _time(file, name, columns[name], parts, group))
    }
    first = next(((name, reading) for name, reading in readings.items() if not isinstance(reading, Refusal)), None)
    if equal_rows:
        first = "", _Reading(TimeStep("numbers", 1.0), holes=False, turned=False, parts=parts)
    if first is None:
        return next((reading for reading in readings.values() if isinstance(reading, Refusal)), None)
    time, (step, holes, turned, parts, workdays) = first
    gaps = [[file.is_missing(columns[name][row]) for row in rows] for rows in parts for name in targets]
    if any(map(all, gaps)):
        return None
    columns = {name: [cells[row] for rows in parts for row in rows] for name, cells in columns.items()}
    cuts = [0, *accumulate(map(len, parts))]
    series = [[float(cell) for cell in columns[target][start:end] if not file.is_missing(cell)] for start, end in pairwise(cuts)]
    count, usual = sum(map(len, series)), statistics.median_low(map(len, series))
    unit = epoch_unit(list(map(str, columns[time]))) if step.unit == "numbers" and time else None
    seconds = TimeStep("seconds", step.size / unit) if unit else step
    season = (
        WORKDAYS
        if workdays
        else SEASONS.get((seconds.unit, round(seconds.size))) or _rows_of_day(seconds) or _season_of_numbers(step)
    )
    if season and usual < 4 * season:
        season = None
    windows = [min(2 * season if season else 12, usual // 5)]
    tests = max(count * 15 // 100, 1)
    most = season // 2 if season and _rows_of_day(seconds) else MOST_STEPS
    steps = horizon or min(season or 1, max(most, MOST_STEPS))
    if season and _rows_of_day(seconds) and 7 * season <= min(usual // 5, MOST_OF_WEEK):
        windows.append(7 * season)
    window, lags = _window_and_lags([values[: int(len(values) * OLDER)] for values in series], season, windows, steps)
    room = count - len(series) * (sum(lags) + window) - 2 * tests
    while not horizon and steps > 1 and room <= len(series) * 3 * steps:
        steps //= 2
    items = room - len(series) * 3 * steps
    if horizon and items < 1:
        raise InputMissing(f"{file.path}: --horizon: {count:,} rows are too few to forecast {horizon:,} rows ahead")
    if group and items < 1:
        return Refusal(f"{file.path}: no series of each `{group}`: {usual:,} rows of one are too few", near=False)
    lines = [
        'kind = "series"',
        *written,
        f"target = {toml_value(target if len(targets) == 1 else list(targets))}",
        *([f"time = {toml_value(time)}              # rows are {seconds} apart"] if time and not workdays else []),
        *(
            [f"group = {toml_value(group)}           # {len(series):,} of them, a series each; one network learns all"]
            if group
            else []
        ),
        f"window = {window}                  # rows that the network sees",
        f"steps = {steps}                   # rows after them that it forecasts",
    ]
    if season:
        lines.append(f"season = {season}                  # `evaluate` compares with the value one season before")
    if lags:
        lines.append(
            f"difference = {toml_value(lags)}         # the level drifts; of all differences, these leave the least deviation"
        )
    end = f", the newest first{' of each' * bool(group)}" * turned
    what = f"a series of each `{group}` ({len(series):,})" if group else "a series"
    decline = f"--kind table for rows in any order{', --group none' * bool(group)}"
    days = f"`{time}` has business days, which count as equal steps (`time` is left out)"
    order = days if workdays else f"`{time}` has time stamps, {seconds} apart{end}" if time else "rows count as equal steps"
    notes = [f"{what}: {order}; the newest {2 * tests:,} rows are held out ({decline})"]
    others = {name: cells for name, cells in columns.items() if name not in (*targets[1:], *stamped)}
    alone = holes or len(targets) > 1 or group or count < len(columns[target])
    helpful = [] if alone else _helpful(others, target, lags, window, steps)
    if helpful:
        lines.append(f"columns = {toml_value([target, *helpful])}   # what the network sees")
        notes.append(
            f"the past of {listed(f'`{name}`' for name in helpful)} is an input, too: a linear forecast errs less with it (`columns`)"
        )
    if unused := [name for name in file.names if name not in (*targets, time, group, *helpful)]:
        own = "" if helpful else f", `{target}` is forecast from its own past"
        notes.append(f"{counted(len(unused), 'column')} not used{own}: {listed(f'`{name}`' for name in unused)} (`columns`)")
    if group and any(gap[-1] for gap in gaps):
        lines.append('missing = "forward"          # the value before a hole: some groups end in one')
        notes.append(
            f"moments without a value of `{target}` repeat the value before them, as some `{group}` end without one (`missing`)"
        )
    elif holes or any(map(any, gaps)):
        lines.append('missing = "interpolate"      # a line between the values beside a hole')
        notes.append(f"moments without a value of `{target}` are filled in on a line between their neighbours (`missing`)")
    if not group and (holes or any(map(any, gaps))):
        beginnings = {name: next(row for row, cell in enumerate(columns[name]) if not file.is_missing(cell)) for name in targets}
        late, rows = max(beginnings.items(), key=lambda pair: pair[1])
        if rows:
            notes.append(f"the first {counted(rows, 'row')} without a value of `{late}` left out (`missing`)")
    lines += [f"test_items = {tests}", f"validation = {tests}                # the last before the test items"]
    what = f"Forecast {listed(f'`{name}`' for name in targets)} of {file.path.name}{f' of each `{group}`' if group else ''} from the {window} rows before, {steps} row{'s' * (steps > 1)} ahead: {count:,} rows."
    task = ['metrics = ["rmse"]            # beside the mean error `mae`, which is judged anyway']
    if (jump := largest_jump(series)) >= JUMP:
        outages = f"the largest step of `{target}` from row to row is {jump:,.0f} times the middle one, as in outages"
        task.append('loss = "absolute"             # squared, few large steps would decide')
        notes.append(f'{outages}: loss = "absolute" learns what is usual (`loss`)')
    model = ['name = "mlp"', "hidden = [32]"]
    return Draft(assemble(file.path, what, model, lines, max(items, 1), task=task, decides="mae"), notes)


def _numbers(cells: list[Any], is_missing: Callable[[Any], bool]) -> list[float] | None:
    """Return the numbers of a column without missing values; None if a cell is not a number, or if most are missing."""
    try:
        numbers = [float(cell) for cell in cells if not is_missing(cell)]
    except (TypeError, ValueError):
        return None
    return numbers if len(numbers) > len(cells) // 2 else None


def _season_of_numbers(step: TimeStep) -> int | None:
    """Return the rows in a season if time stamps are years and fractions of them; None for other numbers."""
    rows = round(1 / step.size) if step.unit == "numbers" and 0 < step.size < 1 else 0
    return rows if rows in (4, 12, 52) and abs(rows * step.size - 1) < 0.01 else None


def _rows_of_day(step: TimeStep) -> int | None:
    """Return the rows in a day, if they are few and their step divides it."""
    rows = round(DAY / step.size) if step.unit == "seconds" and step.size else 0
    return rows if 2 <= rows <= MOST_OF_DAY and abs(rows * step.size - DAY) < 1 else None


def _rows_by(cells: Sequence[Any]) -> list[list[int]]:
    """Return the rows of each group."""
    rows = defaultdict[str, list[int]](list)
    for row, cell in enumerate(cells):
        rows[str(cell).strip()].append(row)
    return list(rows.values())


class _Reading(NamedTuple):
    """A column of time stamps."""

    step: TimeStep
    holes: bool
    """Moments are missing."""
    turned: bool
    """The newest row of a series comes first."""
    parts: list[list[int]]
    """The rows of each series, the oldest first."""
    workdays: bool = False
    """Rows are days, and nearly all days without a row are at weekends."""


def _time(
    file: TableFile, name: str, cells: list[Any], parts: Sequence[list[int]], group: str | None
) -> _Reading | Refusal | None:
    """Read a column of time stamps, by the rows of each series; or return why it is not a series.

    None if it has no time stamps.
    """
    try:
        stamps = list(map(parse_stamp, cells))
    except (TypeError, ValueError):
        return None
    no_series = f"no series of each `{group}`" if group else "no series"

    def refusal(row: int, fault: str, *, near: bool) -> Refusal:
        places = [position for block in file.blocks([name]) for position in block.positions]
        return Refusal(f"{file.locate(places[row])}: {no_series}: column `{name}`: {fault}", near)

    turned = [newest_first([stamps[row] for row in rows]) for rows in parts]
    ordered = [rows[::-1] if turn else rows for rows, turn in zip(parts, turned, strict=True)]
    series = [([stamps[row] for row in rows], [cells[row] for row in rows]) for rows in ordered]

    def irregular(at: int, fault: IrregularTime) -> Refusal:
        moments = list(map(moment_of, series[at][0]))
        wrong = max(sum(later < earlier for earlier, later in pairwise(moments)), len(moments) - len(set(moments)))
        near = 0 < wrong <= max(1, len(moments) // FEW_FALLS) or (not wrong and _equal_steps(moments) > MOST_EQUAL)
        return refusal(ordered[at][fault.row], fault.fault, near=near)

    for at, (some, texts) in enumerate(series):
        try:
            check_order(some, texts, "" if group else SEVERAL)
            check_kind(0, some[0], series[0][0][0], texts[0], series[0][1][0])
        except IrregularTime as fault:
            return irregular(at, fault)
    step, lacking = step_of([some for some, _ in series]), list[list[int]]()
    for at, (some, texts) in enumerate(series):
        try:
            lacking.append(missing_before(some, texts, step))
        except IrregularTime as fault:
            return irregular(at, fault)
    if step is None:
        return None
    if (gone := sum(map(sum, lacking))) > len(cells) * MOST_HOLES:
        if (
            (step.unit, step.size) == ("seconds", DAY)
            and not any(turned)
            and not group
            and _at_weekends(stamps) > MOST_AT_WEEKENDS
        ):
            return _Reading(step, holes=False, turned=False, parts=ordered, workdays=True)
        row = next(
            row for rows, counts in zip(ordered, lacking, strict=True) for row, count in zip(rows, counts, strict=True) if count
        )
        what = f"{counted(gone, 'moment')} without a row, the first before `{cells[row]}` (rows are {step} apart)"
        return refusal(row, what, near=True)
    return _Reading(step, gone > 0, any(turned), ordered)


def _at_weekends(stamps: Sequence[Any]) -> float:
    """Return the share of weekends among the days without a row."""
    lacking: list[datetime] = [
        earlier + timedelta(days)
        for earlier, later in pairwise(stamps)
        for days in range(1, round((later - earlier) / timedelta(1)))
    ]
    return sum(day.weekday() >= 5 for day in lacking) / len(lacking)


def largest_jump(series: Sequence[Sequence[float]]) -> float:
    """Return the ratio of the largest step between two rows to the median step; 0 if most steps are 0."""
    jumps = sorted(abs(later - earlier) for values in series for earlier, later in pairwise(values))
    return jumps[-1] / usual if (usual := jumps[len(jumps) // 2]) else 0.0


def _equal_steps(moments: Sequence[float]) -> float:
    """Return the share of the steps that equal the median step."""
    apart = [later - earlier for earlier, later in pairwise(moments)]
    usual = statistics.median_low(apart)
    return sum(abs(distance - usual) <= TOLERANCE * usual for distance in apart) / len(apart)


def _window_and_lags(
    series: Sequence[list[float]], season: int | None, windows: Sequence[int], steps: int
) -> tuple[int, list[int]]:
    """Choose the window with which a linear forecast errs least, and the differences if the level of the series drifts.

    A network does not reach numbers that it never saw; but differences make noise larger.
    """
    import numpy as np

    lags = _lags(series, season) if _drifts(series, season or 1) else []
    parts = [np.array(values)[:, None] for values in series]
    best, least = windows[0], _linear_error(parts, windows[0], lags, steps) if len(windows) > 1 else 0.0
    for window in windows[1:]:
        if (error := _linear_error(parts, window, lags, steps)) < SURE * least:
            best, least = window, error
    return best, lags


def _drifts(series: Sequence[list[float]], season: int) -> bool:
    """Return whether the level of most series may be a random walk, by the test of Dickey and Fuller on the means of seasons.

    Source: Dickey, Fuller. Distribution of the estimators for autoregressive time series with a unit root. 1979
    """
    import numpy as np

    drifting = 0
    for values in series:
        means = np.array(values[len(values) % season :]).reshape(-1, season).mean(1)
        level, change = means[:-1] - means[:-1].mean(), np.diff(means)
        spread = float(level @ level)
        if len(level) < 4 or not spread:
            drifting += 1
            continue
        slope = float(level @ change) / spread
        noise = float(((change - change.mean() - slope * level) ** 2).sum()) / (len(level) - 2)
        drifting += slope > UNIT_ROOT * math.sqrt(noise / spread)
    return drifting > len(series) / 2


def _lags(series: Sequence[list[float]], season: int | None) -> list[int]:
    """Choose the differences that leave the smallest standard deviation; each further one must lower it by a tenth."""
    best: list[int] = []
    for lags in [[], [1], *([[season], [1, season]] if season else [])]:
        if _deviation(series, lags) < _deviation(series, best) * (GAIN if len(lags) > len(best) else 1):
            best = lags
    return best


def _deviation(series: Sequence[list[float]], lags: list[int]) -> float:
    for lag in lags:
        series = [[later - earlier for earlier, later in zip(values, values[lag:], strict=False)] for values in series]
    return statistics.pstdev(chain.from_iterable(series))


def _helpful(columns: Mapping[str, list[Any]], target: str, lags: list[int], window: int, steps: int) -> list[str]:
    """Return the other columns whose past lowers the error of a linear forecast by a tenth, on the newest of the older rows."""
    import numpy as np

    table = {name: np.array(list(map(float, cells)))[: int(len(cells) * OLDER)] for name, cells in columns.items()}

    def error(*names: str) -> float:
        return _linear_error([np.stack([table[name] for name in names], 1)], window, lags, steps)

    alone = error(target)
    return [name for name in columns if name != target and error(target, name) < GAIN * alone]


def _linear_error(parts: Sequence[NDArray[Any]], window: int, lags: Sequence[int], steps: int) -> float:
    """Return the mean error of a linear forecast of the first column, from the past of all, on the newest fifth of the windows.

    Infinite for fewer windows than `FEWEST_WINDOWS`.

    Args:
        parts: The rows (moments, k) of each series.
        window: Rows that it sees.
        lags: Differences that it sees and forecasts; the error is that of the column itself.
        steps: Rows that it forecasts.
    """
    import numpy as np
    from numpy.lib.stride_tricks import sliding_window_view

    from partrain.data.tables.differences import difference, integrate

    lost, most = sum(lags), MOST_CELLS // (window * parts[0].shape[1] * len(parts))
    older: list[tuple[NDArray[Any], ...]] = []
    newer: list[tuple[NDArray[Any], ...]] = []
    for whole in parts:
        rows = whole[max(0, len(whole) - most) :]
        changes = difference(rows, lags)
        count = len(changes) - window - steps + 1
        if count < 2:
            continue
        past = np.concatenate([sliding_window_view(column, window)[:count] for column in changes.T], 1)
        future = sliding_window_view(changes[window:, 0], steps)
        levels = sliding_window_view(rows[:, 0], lost)[window : window + count] if lost else np.empty((count, 0))
        values, cut = sliding_window_view(rows[lost + window :, 0], steps), count * 4 // 5
        older.append((past[: max(1, cut - steps)], future[: max(1, cut - steps)]))
        newer.append((past[cut:], levels[cut:], values[cut:]))
    if sum(len(past) for past, *_ in (*older, *newer)) < FEWEST_WINDOWS:
        return math.inf
    inputs, targets = map(np.concatenate, zip(*older, strict=True))
    past, levels, values = map(np.concatenate, zip(*newer, strict=True))
    mean, deviation = inputs.mean(0), inputs.std(0)
    deviation[deviation == 0] = 1.0
    features, new_features = (np.column_stack([(rows - mean) / deviation, np.ones(len(rows))]) for rows in (inputs, past))
    weights = np.linalg.solve(features.T @ features + np.eye(features.shape[1]), features.T @ targets)
    return float(np.abs(integrate(new_features @ weights, levels, lags, np.stack) - values).mean())
