"""Number series from a table: windows over one array, to forecast the next numbers from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from partrain.data.base import (
    HELD_OUT,
    Allocate,
    ArrayField,
    DataSection,
    Dataset,
    DatasetInfo,
    DatasetSpec,
    Remark,
    Training,
    fingerprint_of,
    lay_out,
    views,
)
from partrain.data.fetch import File, local_path
from partrain.data.tables.files import TableFile
from partrain.data.tables.schema import open_table
from partrain.data.tables.sections import HasDialect, Names
from partrain.data.tables.series_groups import GroupSplit, GroupWindows, WindowShape, split_groups
from partrain.data.tables.series_rows import Missing, SeriesRows, read_groups, read_rows
from partrain.data.windows import WindowSplit, refuse_fold, split_windows
from partrain.number_format import counted
from partrain.preprocess.cells import Class
from partrain.tasks.kinds import FORECAST

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _few(lags: list[int]) -> list[int]:
    if sum(lags) > 10_000:
        raise ValueError("the lags sum to more than 10,000 moments")
    return lags


Lags = Annotated[
    list[Annotated[int, Field(ge=1)]],
    BeforeValidator(lambda value: [value] if isinstance(value, int) and not isinstance(value, bool) else value, int | list[int]),
    Field(max_length=4),
    AfterValidator(_few),
]


class Series(HasDialect, DataSection):
    """A number series: a table with one row for each moment. An item is a window of rows; the network forecasts the rows after it.

    The last items are the test items; the held-out items come before them. Training items contain none of the numbers that these
    items forecast. The windows of test and held-out items may reach back over the rows of earlier items.
    """

    kind: Literal["series"]
    path: File
    """The table, in any file format given by its suffix, else CSV; relative to the job,
    or a URL with its digest."""
    target: Names = Field(min_length=1)
    """The column to forecast, or several."""
    columns: Annotated[Names, Field(min_length=1)] | None = None
    """The columns that the network sees; default: the columns of `target`."""
    window: int = Field(ge=1)
    """L: number of rows that the network sees."""
    steps: int = Field(1, ge=1)
    """H: number of rows after the window that it forecasts."""
    stride: int = Field(1, ge=1)
    """Number of rows from the start of one item to the start of the next."""
    test_items: int = Field(0, ge=0)
    """Number of items at the end of the file to test on. The items before them are held out (`validation`)."""
    standardise: bool = True
    """Subtract the mean of each column and divide by its standard deviation, both of the rows of training items. Includes
    targets."""
    difference: Lags = []
    """Lags: each column is replaced by its differences, one lag after the other. 1 removes a trend, 12 the season of months, [1,
    12] both. Answers and metrics are again in the units of the file."""
    season: int | None = Field(None, ge=2)
    """Number of rows in a season. `evaluate` then also compares with the value of one season before."""
    time: str | None = None
    """The column of time stamps: numbers or dates, sorted (the newest may be first), in equal steps. partrain checks it, and `predict` continues it."""
    group: str | None = None
    """Column that names the person, machine or place of a row, which is not an input. The rows of each are a separate series, in
    any order in the file; one network learns from the windows of all. Test and held-out items are those that forecast the newest
    moments, the same moments for all groups, at least as many items as asked for; without `time` all groups end at the same
    moment."""
    missing: Missing = "error"
    """Treatment of missing values: cells without a value, and with `time` moments without a row. `error`: refuse the file.
    `interpolate`: draw a line between the values on both sides of the gap. `forward`: repeat the value before it."""

    @model_validator(mode="after")
    def _group_without_another_role(self) -> Self:
        if self.group is not None and self.group in (*self.used, self.time):
            raise ValueError(f"`group`: `{self.group}` has another role: a name of groups is no input, and no target")
        return self

    @property
    def newest(self) -> int:
        """Number of newest values from which a forecast is restored, or with which it is compared; 0 if windows suffice."""
        return max(sum(self.difference), self.season or 0)

    @property
    def lead(self) -> int:
        """Number of moments before the first window: they have no difference, or serve only as newest values."""
        return max(sum(self.difference), self.newest - self.window)

    @property
    def shape(self) -> WindowShape:
        """Sizes of the windows."""
        return WindowShape(self.lead, self.window, self.steps, self.stride)

    @property
    def roles(self) -> dict[str, list[str]]:
        """Columns by the item array that holds them."""
        return {"inputs": self.columns or self.target, "targets": self.target}

    @property
    def used(self) -> list[str]:
        """Columns of numbers to read."""
        return list(dict.fromkeys((*(self.columns or self.target), *self.target)))


def read_spec(section: Series, folder: Path) -> DatasetSpec:
    """Read the table and count its windows; see `data.read_spec`."""
    table = _open(section, folder)
    held_out: int | None = None
    if section.group:
        groups = _read_groups(section, table)
        parts = _split_groups(section, table, groups)
        held_out, tests = parts.count("held_out"), parts.count("tests")
        items = parts.count("training") + held_out
        remarks = _too_short(section, table, parts)
        begun = [rows.left_out for rows in groups if rows.left_out]
    else:
        rows = read_rows(table, section.used, section.time, section.missing)
        items, tests = _split(section, table, rows).items, section.test_items
        remarks, begun = (), [rows.left_out] if rows.left_out else []
    if begun:
        more = f"; so in {counted(len(begun) - 1, 'other group')}" * (len(begun) > 1)
        remarks += (Remark("missing", begun[0] + more, "remove these rows from the file, or choose other columns"),)
    return DatasetSpec(
        items,
        tests,
        (section.window, len(section.columns or section.target)),
        FORECAST,
        section.steps * len(section.target),
        remarks=remarks,
        held_out=held_out,
    )


def load(section: Series, folder: Path, allocate: Allocate, training: Training) -> Dataset:
    """Read the table and lay windows over it; see `data.load`."""
    if section.group:
        return _load_groups(section, folder, allocate)
    import numpy as np

    from partrain.data.tables.differences import difference
    from partrain.data.tables.load import moments, store

    table = _open(section, folder)
    series = read_rows(table, section.used, section.time, section.missing)
    parts, names = _split(section, table, series), section.used
    raw = np.frombuffer(series.numbers).reshape(series.count, -1)
    rows = difference(raw, section.difference)[section.lead - sum(section.difference) :]
    mean, deviation = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
    if section.standardise:
        trained = rows[: parts.training_elements(section.validation, section.window + section.steps, section.stride)]
        mean, deviation = moments(trained, np.arange(len(trained)), names, str(table.path))
    columns = section.roles
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        role: ("float32", (len(rows), len(column))) for role, column in columns.items()
    }
    if section.newest:
        shapes["newest"] = ("float64", (len(raw), len(section.target)))
    fields = lay_out(shapes)
    buffer = allocate(fields[-1].end)
    arrays = views(fields, buffer)
    scaled, place = (rows - mean) / deviation, {name: at for at, name in enumerate(names)}
    for role, some in columns.items():
        store(arrays[role], scaled[:, [place[name] for name in some]], str(table.path), some)
    if section.newest:
        arrays["newest"][:] = raw[:, [place[name] for name in section.target]]
    slots = _slots(section, "", fields, 0, parts.items + parts.gap)
    if parts.tests:
        slots += _slots(section, "test_", fields, parts.first_test, parts.tests)
    codec = _codec(section, mean, deviation, series)
    fingerprint = fingerprint_of(fields, buffer, codec | {"windows": slots})
    info = DatasetInfo(slots, FORECAST, section.steps * len(section.target), 1.0, fingerprint, gap=parts.gap, codec=codec)
    return info.open(buffer)


def _load_groups(section: Series, folder: Path, allocate: Allocate) -> Dataset:
    """Read the table, and copy the windows of its groups one after the other; see `data.load`."""
    import numpy as np

    from partrain.data.tables.differences import difference
    from partrain.data.tables.load import moments, store

    table = _open(section, folder)
    parts, names = _split_groups(section, table, _read_groups(section, table)), section.used
    raw = [np.frombuffer(group.rows.numbers).reshape(group.rows.count, -1) for group in parts.groups]
    rows = [difference(some, section.difference)[section.lead - sum(section.difference) :] for some in raw]
    mean, deviation = np.zeros(len(names)), np.ones(len(names))
    if section.standardise:
        seen = [group.seen(section.shape) for group in parts.groups]
        trained = np.concatenate([some[part] for some, part in zip(rows, seen, strict=True)])
        mean, deviation = moments(trained, np.arange(len(trained)), names, str(table.path))
    held_out, stay, tests = (parts.count(part) for part in ("held_out", "stay", "tests"))
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {HELD_OUT: ("int64", (held_out,))}
    for prefix, count in (("", stay), ("test_", tests))[: 1 + bool(tests)]:
        shapes[f"{prefix}inputs"] = ("float32", (count, section.window, len(section.roles["inputs"])))
        shapes[f"{prefix}targets"] = ("float32", (count, section.steps * len(section.target)))
        if section.newest:
            shapes[f"{prefix}newest"] = ("float64", (count, section.newest, len(section.target)))
    slots = lay_out(shapes)
    buffer = allocate(slots[-1].end)
    arrays = views(slots, buffer)
    places, held, filled = {name: at for at, name in enumerate(names)}, list[int](), dict.fromkeys(arrays, 0)
    for group, own, some in zip(parts.groups, raw, rows, strict=True):
        scaled, columns = (some - mean) / deviation, dict[str, Any]()
        for role, used in section.roles.items():
            columns[role] = np.empty((len(scaled), len(used)), np.float32)
            store(columns[role], scaled[:, [places[name] for name in used]], str(table.path), used)
        columns["newest"] = own[:, [places[name] for name in section.target]]
        held += range(filled["inputs"] + len(group.training), filled["inputs"] + len(group.stay))
        for name, array in _windows_of(section, group, columns).items():
            arrays[name][filled[name] : filled[name] + len(array)] = array.reshape(len(array), *arrays[name].shape[1:])
            filled[name] += len(array)
    arrays[HELD_OUT][:] = held
    codec = _codec(section, mean, deviation, parts.groups[0].rows)
    fingerprint = fingerprint_of(slots, buffer, codec)
    return DatasetInfo(slots, FORECAST, section.steps * len(section.target), 1.0, fingerprint, codec=codec).open(buffer)


def groups_by_part(section: Series, folder: Path, _: Dataset) -> dict[str, list[Class]]:
    """Return the name of the group of each window, in the order of `_load_groups`; see `data.groups_by_part`."""
    table = _open(section, folder)
    groups = _split_groups(section, table, _read_groups(section, table)).groups
    named = [(group, group.rows.group) for group in groups if group.rows.group is not None]
    return {
        "": [name for group, name in named for _ in group.stay],
        "test_": [name for group, name in named for _ in group.tests],
    }


def _windows_of(section: Series, group: GroupWindows, columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Copy the windows of a group, by array name. `columns`: its rows (moments, columns) by role."""
    import numpy as np
    from numpy.lib.stride_tricks import sliding_window_view

    windows: dict[str, NDArray[Any]] = {}
    for prefix, items in ("", group.stay), ("test_", group.tests):
        starts = group.first + section.stride * np.array(items, np.int64)
        spans = {"inputs": (starts, section.window), "targets": (starts + section.window, section.steps)}
        if section.newest:
            spans["newest"] = (starts + section.lead + section.window - section.newest, section.newest)
        for role, (first, length) in spans.items() if len(items) else ():
            windows[f"{prefix}{role}"] = sliding_window_view(columns[role], length, axis=0).swapaxes(1, 2)[first]
    return windows


def _codec(section: Series, mean: NDArray[Any], deviation: NDArray[Any], rows: SeriesRows) -> dict[str, object]:
    """Describe how rows become windows, as JSON."""
    codec: dict[str, object] = {
        "form": "series",
        "columns": section.roles["inputs"],
        "target": section.target,
        "window": section.window,
        "steps": section.steps,
        "mean": dict(zip(section.used, mean.tolist(), strict=True)),
        "deviation": dict(zip(section.used, deviation.tolist(), strict=True)),
    }
    codec |= {key: value for key in ("difference", "season", "time", "group") if (value := getattr(section, key))}
    codec |= {"missing": section.missing} if section.missing != "error" else {}
    return codec | ({"step": [rows.step.unit, rows.step.size]} if rows.step else {})


def _open(section: Series, folder: Path) -> TableFile:
    """Open the table, and check that it has the required columns."""
    table = open_table(section, local_path(section.path, folder))
    for name in section.used:
        table.require(name, "target" if name in section.target else "columns")
    for key in ("time", "group"):
        if name := getattr(section, key):
            table.require(name, key)
    return table


def _read_groups(section: Series, table: TableFile) -> list[SeriesRows]:
    """Read the required columns of a table by group."""
    assert section.group
    return read_groups(table, section.used, section.time, section.missing, section.group)


def _split_groups(section: Series, table: TableFile, groups: list[SeriesRows]) -> GroupSplit:
    refuse_fold(section)
    return split_groups(str(table.path), groups, section.shape, section.validation, section.test_items)


def _too_short(section: Series, table: TableFile, parts: GroupSplit) -> tuple[Remark, ...]:
    """Return a remark on groups that are too short for a window, if there are any."""
    if not parts.too_short:
        return ()
    first, count = parts.too_short[0], len(parts.too_short) + len(parts.groups)
    wanted = section.lead + section.shape.span
    what = f"{len(parts.too_short):,} of {counted(count, 'group')} of `{section.group}` are too short for a window of {wanted:,} rows, and left out"
    return (
        Remark(
            "group",
            f"{table.path}: {what}; the first: {first.group} ({first.where})",
            "choose fewer rows, or remove these groups",
        ),
    )


def _split(section: Series, table: TableFile, rows: SeriesRows) -> WindowSplit:
    refuse_fold(section)
    span, left = section.window + section.steps, max(0, rows.count - section.lead)
    return split_windows(str(table.path), left, span, section.steps, section.stride, section.validation, section.test_items)


def _slots(section: Series, prefix: str, raw: Sequence[ArrayField], first: int, count: int) -> tuple[ArrayField, ...]:
    """Lay out windows from item `first` on: inputs (n, L, columns), targets (n, H * targets), moment by moment.

    The `newest` values (n, number, targets) are the ones at the end of the window, in the units of the file.
    """
    inputs, targets, *more = raw
    features, width = inputs.shape[1], targets.shape[1]
    start = first * section.stride
    windows = (
        ArrayField(
            f"{prefix}inputs",
            "float32",
            (count, section.window, features),
            inputs.offset + 4 * features * start,
            (4 * features * section.stride, 4 * features, 4),
        ),
        ArrayField(
            f"{prefix}targets",
            "float32",
            (count, section.steps * width),
            targets.offset + 4 * width * (start + section.window),
            (4 * width * section.stride, 4),
        ),
    )
    return windows + tuple(
        ArrayField(
            f"{prefix}newest",
            "float64",
            (count, section.newest, width),
            field.offset + 8 * width * (start + section.lead + section.window - section.newest),
            (8 * width * section.stride, 8 * width, 8),
        )
        for field in more
    )
