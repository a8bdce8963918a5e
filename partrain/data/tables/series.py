"""Number series from a table: windows over one array, to forecast the next numbers from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from partrain.data.base import (
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
from partrain.data.tables.series_rows import Missing, SeriesRows, read_rows
from partrain.data.windows import WindowSplit, refuse_fold, split_windows
from partrain.tasks.kinds import FORECAST


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

    The last items are the test items; the held-out items come before them. Training items see none of the numbers that these items
    forecast. The windows of test and held-out items may reach back over the rows of earlier items.
    """

    kind: Literal["series"]
    path: File
    """The table, in any file format that its suffix tells, else CSV; relative to the job,
    or a URL with its digest."""
    target: Names = Field(min_length=1)
    """The column to forecast, or several."""
    columns: Annotated[Names, Field(min_length=1)] | None = None
    """The columns that the network sees; default: those of `target`."""
    window: int = Field(ge=1)
    """L: number of rows that the network sees."""
    steps: int = Field(1, ge=1)
    """H: number of rows after the window that it forecasts."""
    stride: int = Field(1, ge=1)
    """Number of rows from the start of one item to the start of the next."""
    test_items: int = Field(0, ge=0)
    """Number of items at the end of the file to test on. Held-out items (`validation`) are those before them."""
    standardise: bool = True
    """Subtract the mean of each column and divide by its standard deviation, both of the rows of training items. Targets, too."""
    difference: Lags = []
    """Lags: each column is replaced by its differences, one lag after the other. 1 removes a trend, 12 the season of months, [1,
    12] both. Answers and metrics are in the units of the file again."""
    season: int | None = Field(None, ge=2)
    """Number of rows of a season. `evaluate` then also compares with the value of one season before."""
    time: str | None = None
    """The column of time stamps: numbers or dates, sorted (the newest may be first), in equal steps. partrain checks it, and `predict` continues it."""
    missing: Missing = "error"
    """Treatment of missing values: cells without a value, and with `time` moments without a row. `error`: refuse the file.
    `interpolate`: draw a line between the values beside the hole. `forward`: repeat the value before it."""

    @property
    def newest(self) -> int:
        """Number of newest values from which a forecast is restored, or compared with; 0 if windows tell all."""
        return max(sum(self.difference), self.season or 0)

    @property
    def lead(self) -> int:
        """Moments before the first window: they have no difference, or serve as newest values only."""
        return max(sum(self.difference), self.newest - self.window)

    @property
    def used(self) -> list[str]:
        """Columns of numbers that are read."""
        return list(dict.fromkeys((*(self.columns or self.target), *self.target)))


def read_spec(section: Series, folder: Path) -> DatasetSpec:
    """Read the table and count its windows; see `data.read_spec`."""
    table, rows = _read(section, folder)
    return DatasetSpec(
        _split(section, table, rows).items,
        section.test_items,
        (section.window, len(section.columns or section.target)),
        FORECAST,
        section.steps * len(section.target),
        remarks=(Remark("missing", rows.left_out, "remove these rows from the file, or choose other columns"),)
        if rows.left_out
        else (),
    )


def load(section: Series, folder: Path, allocate: Allocate, training: Training) -> Dataset:
    """Read the table and lay windows over it; see `data.load`."""
    import numpy as np

    from partrain.data.tables.differences import difference
    from partrain.data.tables.load import moments, store

    table, series = _read(section, folder)
    parts, names = _split(section, table, series), section.used
    raw = np.frombuffer(series.numbers).reshape(series.count, -1)
    rows = difference(raw, section.difference)[section.lead - sum(section.difference) :]
    mean, deviation = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
    if section.standardise:
        trained = rows[: parts.training_elements(section.validation, section.window + section.steps, section.stride)]
        mean, deviation = moments(trained, np.arange(len(trained)), names, str(table.path))
    columns = {"inputs": section.columns or section.target, "targets": section.target}
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
    codec: dict[str, object] = {
        "form": "series",
        "columns": columns["inputs"],
        "target": section.target,
        "window": section.window,
        "steps": section.steps,
        "mean": dict(zip(names, mean.tolist(), strict=True)),
        "deviation": dict(zip(names, deviation.tolist(), strict=True)),
    }
    codec |= {key: value for key in ("difference", "season", "time") if (value := getattr(section, key))}
    codec |= {"missing": section.missing} if section.missing != "error" else {}
    codec |= {"step": [series.step.unit, series.step.size]} if series.step else {}
    fingerprint = fingerprint_of(fields, buffer, codec | {"windows": slots})
    info = DatasetInfo(slots, FORECAST, section.steps * len(section.target), 1.0, fingerprint, gap=parts.gap, codec=codec)
    return info.open(buffer)


def _read(section: Series, folder: Path) -> tuple[TableFile, SeriesRows]:
    """Read the needed columns of a table."""
    table = open_table(section, local_path(section.path, folder))
    for name in section.used:
        table.require(name, "target" if name in section.target else "columns")
    if section.time:
        table.require(section.time, "time")
    return table, read_rows(table, section.used, section.time, section.missing)


def _split(section: Series, table: TableFile, rows: SeriesRows) -> WindowSplit:
    refuse_fold(section)
    span, left = section.window + section.steps, max(0, rows.count - section.lead)
    return split_windows(str(table.path), left, span, section.steps, section.stride, section.validation, section.test_items)


def _slots(section: Series, prefix: str, raw: Sequence[ArrayField], first: int, count: int) -> tuple[ArrayField, ...]:
    """Lay out windows from item `first` on: inputs (n, L, columns), targets (n, H * targets), moment by moment.

    The `newest` values (n, number, targets) are those at the end of the window, in the units of the file.
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
