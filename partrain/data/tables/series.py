"""Number series from a table: windows over one array, to forecast the next numbers from."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from partrain.data.base import (
    Allocate,
    ArrayField,
    DataSection,
    Dataset,
    DatasetInfo,
    DatasetSpec,
    Training,
    fingerprint_of,
    lay_out,
    views,
)
from partrain.data.fetch import File, local_path
from partrain.data.tables.files import is_missing, open_by_name
from partrain.data.tables.sections import Names, Separator
from partrain.data.windows import WindowSplit, refuse_fold, split_windows
from partrain.errors import InputMissing


class Series(DataSection):
    """Numbers over time, one row of a table for each moment; an item forecasts the moments behind its window.

    The last items are tested, those before them held out. Windows of earlier items contain none of the numbers that these
    forecast; the windows of these may reach back.
    """

    kind: Literal["series"]
    path: File
    """A CSV file (plain or gzipped; line 1 has the names of columns), or one that ends in .parquet."""
    target: Names = Field(min_length=1)
    """The column to forecast, or several."""
    columns: Annotated[Names, Field(min_length=1)] | None = None
    """The columns to forecast from; default: the same."""
    window: int = Field(ge=1)
    """L: moments that an item sees."""
    steps: int = Field(1, ge=1)
    """H: moments behind them that it forecasts."""
    stride: int = Field(1, ge=1)
    """Moments from the beginning of one item to that of the next."""
    test_items: int = Field(0, ge=0)
    """Items at the end to test on."""
    standardise: bool = True
    """Each column minus its mean, divided by its standard deviation, both over the moments of training items."""
    separator: Separator | None = None
    """Separator of cells in a CSV file; default: a tab in .tsv files, else a comma."""


def read_spec(section: Series, folder: Path) -> DatasetSpec:
    """Read the table and count its windows; see `data.read_spec`."""
    table = _read(local_path(section.path, folder), section)
    return DatasetSpec(
        _split(section, table).items,
        section.test_items,
        (section.window, len(table.inputs)),
        "forecast",
        section.steps * len(table.targets),
    )


def load(section: Series, folder: Path, allocate: Allocate, training: Training) -> Dataset:
    """Read the table and lay windows over it; see `data.load`."""
    import numpy as np

    from partrain.data.tables.load import moments, store

    table = _read(local_path(section.path, folder), section)
    parts = _split(section, table)
    rows = np.frombuffer(table.numbers).reshape(table.rows, -1)
    mean, deviation = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
    if section.standardise:
        trained = rows[: parts.training_elements(section.validation, section.window + section.steps, section.stride)]
        mean, deviation = moments(trained, table.names, str(table.path))
    features, targets = len(table.inputs), len(table.targets)
    raw = lay_out({"inputs": ("float32", (table.rows, features)), "targets": ("float32", (table.rows, targets))})
    buffer = allocate(raw[-1].end)
    arrays = views(raw, buffer)
    scaled = (rows - mean) / deviation
    for role, names in (("inputs", table.inputs), ("targets", table.targets)):
        store(arrays[role], scaled[:, [table.names.index(name) for name in names]], str(table.path), names)
    slots = _slots(section, "", raw, 0, parts.items + parts.gap)
    if parts.tests:
        slots += _slots(section, "test_", raw, parts.first_test, parts.tests)
    codec = {
        "form": "series",
        "columns": table.inputs,
        "target": table.targets,
        "window": section.window,
        "steps": section.steps,
        "mean": dict(zip(table.names, mean.tolist(), strict=True)),
        "deviation": dict(zip(table.names, deviation.tolist(), strict=True)),
    }
    mark = fingerprint_of(raw, buffer, codec | {"windows": repr(slots)})
    info = DatasetInfo(slots, "forecast", section.steps * targets, 1.0, mark, gap=parts.gap, codec=codec)
    return info.open(buffer)


def _split(section: Series, table: _Table) -> WindowSplit:
    refuse_fold(section)
    span = section.window + section.steps
    return split_windows(str(table.path), table.rows, span, section.steps, section.stride, section.validation, section.test_items)


def _slots(section: Series, prefix: str, raw: Sequence[ArrayField], first: int, count: int) -> tuple[ArrayField, ...]:
    """Lay out windows from item `first` on: inputs (n, L, columns), targets (n, H * targets), moment by moment."""
    inputs, targets = raw
    features, width = inputs.shape[1], targets.shape[1]
    start = first * section.stride
    return (
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


@dataclass(frozen=True)
class _Table:
    path: Path
    inputs: list[str]
    targets: list[str]
    names: list[str]
    """All columns that were read."""
    numbers: array[float]
    """Numbers, row after row."""

    @property
    def rows(self) -> int:
        return len(self.numbers) // len(self.names)


def _read(path: Path, section: Series) -> _Table:
    """Read the needed columns of a table; each cell must hold a finite number."""
    table = open_by_name(path, section.separator)
    inputs = section.columns or section.target
    names = list(dict.fromkeys((*inputs, *section.target)))
    for name in names:
        table.require(name, "target" if name in section.target else "columns")
    numbers = array("d")
    for block in table.blocks(names, dense=True):  # a moment that is left out would shift all behind it
        for place_, *cells in zip(block.positions, *(block.columns[name] for name in names), strict=True):
            try:
                row = list(map(_number, cells))
            except (TypeError, ValueError):
                raise InputMissing(_describe_fault(table.locate(place_), names, cells)) from None
            numbers.extend(row)
    return _Table(path, inputs, section.target, names, numbers)


def _number(cell: Any) -> float:
    """Parse a cell; ValueError or TypeError unless it holds a finite number."""
    number = float(cell)
    if not math.isfinite(number) or "_" in str(cell):
        raise ValueError
    return number


def _describe_fault(where: str, names: list[str], cells: list[Any]) -> str:
    """Describe the first cell of a row that holds no finite number."""
    for name, cell in zip(names, cells, strict=True):
        if is_missing(cell):
            return f"{where}: column `{name}`: no value; a series needs every value: fill it in, or delete the rows before it"
        try:
            _number(cell)
        except (TypeError, ValueError):
            return f"{where}: column `{name}`: `{str(cell)[:60]}` is no finite number"
    raise AssertionError(cells)
