"""Windows of a series or of the groups of a file: all windows with the values after them, or the newest to forecast from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from partrain.data.codec import Codec
from partrain.data.tables.differences import difference
from partrain.data.tables.files import TableFile
from partrain.data.tables.series_rows import SeriesRows, read_groups, read_rows
from partrain.data.tables.time_stamps import TimeStep, are_month_ends, continue_stamps
from partrain.errors import InputMissing
from partrain.inference.inputs.remarks import far_numbers
from partrain.number_format import counted
from partrain.preprocess.cells import Class

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Windows:
    """Windows of a series."""

    inputs: NDArray[Any]
    """(n, window, columns) in the network's form."""
    targets: NDArray[Any] | None
    """(n, steps * targets), not yet scaled; for a differenced series, its differences."""
    newest: NDArray[Any] | None
    """(n, number, targets): newest values in the units of the file, if the codec needs them."""
    following: list[str] | None
    """Time stamps of the steps after the newest window of each group, if the series has a time column."""
    remarks: Sequence[str]
    """Columns whose values are unlike those trained on, and groups without a window, in words."""
    groups: Sequence[Class]
    """The group of each window; empty if the series has no groups."""


def read_windows(codec: Codec, sheet: TableFile, *, labeled: bool, reconstruct: bool) -> Windows:
    """Read windows, and if `labeled` the values after them; otherwise only the newest window of each group, to forecast from.

    `reconstruct`: the windows themselves are the targets.
    """
    stored, lags = codec.stored, codec.lags
    window, steps, time, group = stored["window"], stored["steps"], stored.get("time"), stored.get("group")
    follow = labeled and not reconstruct
    count = codec.newest_count if follow else 0 if reconstruct else sum(lags)
    names = list(dict.fromkeys([*codec.columns, *(codec.targets if follow or count else [])]))
    for name in names:
        sheet.require(name, "columns")
    for key in ("time", "group"):
        if stored.get(key):
            sheet.require(stored[key], key)
    missing = stored.get("missing", "error")
    every = read_groups(sheet, names, time, missing, group) if group else [read_rows(sheet, names, time, missing)]
    lead = max(sum(lags), count - window)
    wanted = lead + window + steps * follow
    series = [rows for rows in every if rows.count >= wanted]
    if not series:
        parts = [f"the {lead} moments before a window"] * bool(lead) + [f"{'the' if lead else 'a'} window"]
        parts += ["the steps after it"] * follow
        what = ", ".join(parts[:-1]) + " and " * (len(parts) > 1) + parts[-1]
        longest = f" in the longest group of `{group}`" * bool(group)
        most = max(rows.count for rows in every)
        raise InputMissing(f"{sheet.path}: {most} rows{longest}, but {what} take{'s' * (len(parts) == 1)} {wanted}")
    step = _step(codec, sheet, series[0]) if time else None
    cut = _Cut(codec, names, lead, count, follow=follow, newest_only=not (labeled or reconstruct))
    pieces = [cut.piece(rows) for rows in series]
    remarks = _far(codec, sheet, series, [piece.seen for piece in pieces])
    if short := len(every) - len(series):
        first = next(rows for rows in every if rows.count < wanted)
        what = f"{short:,} of {counted(len(every), 'group')} of `{group}` have fewer than {wanted:,} rows and are left out"
        remarks.append(f"{sheet.path}: {what}; the first: {first.group} ({first.where})")
    following = None
    if step and cut.newest_only:
        ends = [are_month_ends(rows.stamps) for rows in series]
        following = [
            stamp
            for rows, end in zip(series, ends, strict=True)
            for stamp in continue_stamps(rows.cells[-1], step, steps, ends=end)
        ]
    groups = [rows.group for rows, piece in zip(series, pieces, strict=True) for _ in piece.inputs if rows.group is not None]
    targets = _joined([piece.targets for piece in pieces])
    inputs = _joined([piece.inputs for piece in pieces])
    assert inputs is not None
    return Windows(inputs, targets, _joined([piece.newest for piece in pieces]), following, remarks, groups)


class _Piece(NamedTuple):
    """The windows of one series; see `Windows`."""

    inputs: NDArray[Any]
    targets: NDArray[Any] | None
    newest: NDArray[Any] | None
    seen: NDArray[Any]
    """(rows, columns): the rows that windows see."""


@dataclass(frozen=True)
class _Cut:
    """Rules for cutting a series into windows."""

    codec: Codec
    names: list[str]
    """The columns to read."""
    lead: int
    """Rows before the first window."""
    count: int
    """Number of newest values."""
    follow: bool
    """Windows have targets: the values after them."""
    newest_only: bool
    """Only the newest window is needed."""

    def piece(self, series: SeriesRows) -> _Piece:
        """Cut a series."""
        window, steps = self.codec.stored["window"], self.codec.stored["steps"]
        inputs, answers, targets = ([self.names.index(name) for name in some] for some in self._roles)
        raw = np.frombuffer(series.numbers).reshape(series.count, -1)
        rows = difference(raw, self.codec.lags)[self.lead - sum(self.codec.lags) :]
        seen = self.codec.standardize(rows[:, inputs])
        if self.newest_only:
            newest = raw[np.newaxis, series.count - self.count :, targets] if self.count else None
            return _Piece(seen[np.newaxis, -window:], None, newest, seen[-window:])
        slide = np.lib.stride_tricks.sliding_window_view
        windows = slide(seen[:-steps] if self.follow else seen, window, axis=0).swapaxes(1, 2)
        if not self.follow:
            return _Piece(windows, None, None, seen)
        following = slide(rows[window:, answers], steps, axis=0).swapaxes(1, 2).reshape(len(windows), -1)
        if not self.count:
            return _Piece(windows, following, None, seen)
        before = raw[self.lead + window - self.count :, targets]
        return _Piece(windows, following, slide(before, self.count, axis=0).swapaxes(1, 2)[: len(windows)], seen)

    @property
    def _roles(self) -> tuple[list[str], list[str], list[str]]:
        """Columns of inputs, of targets, and of newest values."""
        return self.codec.columns, self.codec.targets * self.follow, self.codec.targets * bool(self.count)


def _joined(arrays: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    """Concatenate the arrays of all series; a single one is returned unchanged."""
    some = [array for array in arrays if array is not None]
    return None if not some else some[0] if len(some) == 1 else np.concatenate(some)


def _far(codec: Codec, sheet: TableFile, series: Sequence[SeriesRows], seen: Sequence[NDArray[Any]]) -> list[str]:
    """Describe the columns with numbers far from those trained on."""
    moments = [
        at if rows.group is None else f"{at} of {rows.group}"
        for rows, some in zip(series, seen, strict=True)
        for at in range(rows.count - len(some), rows.count)
    ]
    remarks: list[str] = []
    for at in np.flatnonzero(codec.scaled):
        numbers = np.concatenate([some[:, [at]] for some in seen])
        remarks += far_numbers(f"{sheet.path}: column `{codec.columns[at]}`", numbers, moments, "moment")
    return remarks


def _step(codec: Codec, sheet: TableFile, rows: SeriesRows) -> TimeStep:
    """Return the step of a file's time column; InputMissing if training had another step."""
    unit, size = codec.stored.get("step", (None, 0.0))
    trained = TimeStep(unit, size)
    if rows.step is not None and not trained.agrees_with(rows.step):
        raise InputMissing(
            f"{sheet.path}: column `{codec.stored['time']}`: its rows are {rows.step} apart, those trained on {trained}"
        )
    return trained
