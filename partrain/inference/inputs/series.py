"""Windows of a series: those of a whole file with what follows them, or the newest to forecast from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.data.codec import Codec
from partrain.data.tables.differences import difference
from partrain.data.tables.files import TableFile
from partrain.data.tables.series_rows import SeriesRows, read_rows
from partrain.data.tables.time_stamps import TimeStep, are_month_ends, continue_stamps
from partrain.errors import InputMissing
from partrain.inference.inputs.remarks import far_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Windows:
    """Windows of a series."""

    inputs: NDArray[Any]
    """(n, window, columns) as the network takes them."""
    targets: NDArray[Any] | None
    """(n, steps * targets), not yet scaled; of a differenced series its differences."""
    newest: NDArray[Any] | None
    """(n, number, targets): newest values in the units of the file, if the codec needs them."""
    following: list[str] | None
    """Time stamps of the steps after the last window, if the series has a time column."""
    remarks: Sequence[str]
    """Columns whose values are unlike those trained on, in words."""


def read_windows(codec: Codec, sheet: TableFile, *, labeled: bool, reconstruct: bool) -> Windows:
    """Read windows, and if `labeled` the values that follow them; otherwise only the newest window, to forecast from.

    `reconstruct`: the windows themselves are the targets.
    """
    stored, lags = codec.stored, codec.lags
    window, steps, time = stored["window"], stored["steps"], stored.get("time")
    follow = labeled and not reconstruct
    count = codec.newest_count if follow else 0 if reconstruct else sum(lags)
    names = list(dict.fromkeys([*codec.columns, *(codec.targets if follow or count else [])]))
    place = {name: at for at, name in enumerate(names)}
    for name in names:
        sheet.require(name, "columns")
    if time:
        sheet.require(time, "time")
    series = read_rows(sheet, names, time, stored.get("missing", "error"))
    lead = max(sum(lags), count - window)
    wanted = lead + window + steps * follow
    if series.count < wanted:
        parts = [f"the {lead} moments before a window"] * bool(lead) + [f"{'the' if lead else 'a'} window"]
        parts += ["the steps after it"] * follow
        what = ", ".join(parts[:-1]) + " and " * (len(parts) > 1) + parts[-1]
        raise InputMissing(f"{sheet.path}: {series.count} rows, but {what} take{'s' * (len(parts) == 1)} {wanted}")
    step = _step(codec, sheet, series) if time else None
    raw = np.frombuffer(series.numbers).reshape(series.count, -1)
    rows = difference(raw, lags)[lead - sum(lags) :]
    inputs = codec.standardize(rows[:, [place[name] for name in codec.columns]])
    answers = rows[:, [place[name] for name in codec.targets]] if follow else rows[:, :0]
    slide = np.lib.stride_tricks.sliding_window_view
    seen, remarks = inputs if labeled or reconstruct else inputs[-window:], []
    for at in np.flatnonzero(codec.scaled):
        moments = range(series.count - len(seen), series.count)
        remarks += far_numbers(f"{sheet.path}: column `{codec.columns[at]}`", seen[:, [at]], moments, "moment")
    if not (labeled or reconstruct):
        newest = raw[np.newaxis, series.count - count :, [place[name] for name in codec.targets]] if count else None
        ends = are_month_ends(series.stamps)
        following = continue_stamps(series.cells[-1], step, steps, ends=ends) if step else None
        return Windows(seen[np.newaxis], None, newest, following, remarks)
    windows = slide(inputs[:-steps] if follow else inputs, window, axis=0).swapaxes(1, 2)
    if not follow:
        return Windows(windows, None, None, None, remarks)
    targets = slide(answers[window:], steps, axis=0).swapaxes(1, 2).reshape(len(windows), -1)
    if not count:
        return Windows(windows, targets, None, None, remarks)
    targets_before = raw[lead + window - count :, [place[name] for name in codec.targets]]
    newest = slide(targets_before, count, axis=0).swapaxes(1, 2)[: len(windows)]
    return Windows(windows, targets, newest, None, remarks)


def _step(codec: Codec, sheet: TableFile, rows: SeriesRows) -> TimeStep:
    """Return the step of a file's time column; InputMissing if it is not the one trained on."""
    unit, size = codec.stored.get("step", (None, 0.0))
    trained = TimeStep(unit, size)
    if rows.step is not None and not trained.agrees_with(rows.step):
        raise InputMissing(
            f"{sheet.path}: column `{codec.stored['time']}`: its rows are {rows.step} apart, those trained on {trained}"
        )
    return trained
