"""Rows of a CSV or Parquet file as items: by the names of columns, faults by line and column."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.after.codec import Codec
from partrain.data import columns
from partrain.data.sheets import Sheet, sheet_of
from partrain.data.survey import Scheme
from partrain.errors import InputMissing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.evaluation import Restored

    Pair = tuple[NDArray[Any], NDArray[Any] | None]
    """Inputs as the network takes them, and targets as the file has them."""


def read_table(network: Restored, path: Path, judged: bool) -> Pair:
    """The rows of a file; of a series the newest window, which is to be gone on with, or all windows if they are `judged`."""
    codec, section = Codec(network.codec), network.loaded.job.dataset
    sheet = sheet_of(path, getattr(section, "separator", None), getattr(section, "encoding", "utf-8"))
    if codec.is_table:
        return _judged_rows(codec, sheet) if judged else (columns.encode(codec.stored, sheet), None)
    if codec.is_series:
        return _windows(codec, sheet, judged)
    width = math.prod(network.facts.input)
    if judged:
        raise InputMissing(f"{path}: the network was not trained on a table, so no column is known to be the target; use NPZ")
    if len(sheet.names) != width:
        raise InputMissing(f"{sheet.head}: {len(sheet.names)} columns, the network takes {width} numbers")
    return _rows(sheet, sheet.names), None


def _rows(sheet: Sheet, names: list[str]) -> NDArray[Any]:
    """(n, columns) of numbers, as they stand there."""
    plain = {"inputs": names, "one_hot": {}, "missing": "error", "fill": [0.0] * len(names), "mean": [0.0] * len(names)}
    return columns.encode(plain | {"std": [1.0] * len(names)}, sheet)


def _judged_rows(codec: Codec, sheet: Sheet) -> Pair:
    stored = codec.stored
    classes = None if stored["classes"] is None else tuple(stored["classes"])
    words = {name: tuple(known) for name, known in stored["one_hot"].items()}
    scheme = Scheme(tuple(stored["inputs"]), words, tuple(stored["targets"]), classes, stored["missing"])
    for name in scheme.inputs:
        sheet.require(name, "inputs")
    for name in scheme.targets:
        sheet.require(name, "target")
    inputs, targets = columns.read(sheet, scheme)
    return codec.standardised(inputs), targets


def _windows(codec: Codec, sheet: Sheet, judged: bool) -> Pair:
    """Windows (n, steps, columns), and what follows them (n, k)."""
    names, window, steps = codec.columns, codec.stored["window"], codec.stored["steps"]
    for name in [*names, *(codec.targets if judged else [])]:
        sheet.require(name, "columns")
    rows = _rows(sheet, [*names, *codec.targets] if judged else names)
    wanted = window + steps if judged else window
    if len(rows) < wanted:
        raise InputMissing(
            f"{sheet.path}: {len(rows)} rows, and {'a window and what follows' if judged else 'a window'} are {wanted}"
        )
    inputs = codec.standardised(rows[:, : len(names)])
    if not judged:
        return inputs[np.newaxis, -window:], None
    slide = np.lib.stride_tricks.sliding_window_view
    seen = slide(inputs[:-steps], window, axis=0).swapaxes(1, 2)
    told = slide(rows[window:, len(names) :], steps, axis=0).swapaxes(1, 2).reshape(len(seen), -1)
    return seen, told
