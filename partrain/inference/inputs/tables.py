"""Rows of a CSV or Parquet file as items: by the names of columns, faults by line and column."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.data.tables import load
from partrain.data.tables.files import TableFile, open_by_name
from partrain.data.tables.schema import TableSchema
from partrain.errors import InputMissing
from partrain.inference.codec import Codec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.network import TrainedNetwork

    Pair = tuple[NDArray[Any], NDArray[Any] | None]
    """Inputs as the network takes them, and targets as the file has them."""


def read_table(network: TrainedNetwork, path: Path, judged: bool) -> Pair:
    """The rows of a file; of a series the newest window, which is to be gone on with, or all that can be `judged` or given back."""
    codec, section = Codec(network.codec), network.loaded.job.dataset
    sheet = open_by_name(path, getattr(section, "separator", None), getattr(section, "encoding", None), way="")
    if codec.is_table:
        return _judged_rows(codec, sheet) if judged else (load.encode(codec.stored, sheet), None)
    if codec.is_series:
        return _windows(codec, sheet, judged, network.kind == "autoencoder")
    width = math.prod(network.facts.input)
    if judged:
        raise InputMissing(f"{path}: the network was not trained on a table, so no column is known to be the target; use NPZ")
    if len(sheet.names) != width:
        raise InputMissing(f"{sheet.header_location}: {len(sheet.names)} columns, the network takes {width} numbers")
    numbers = load.numbers_of(sheet, sheet.names)
    return codec.standardised(numbers.reshape(len(numbers), *network.facts.input)), None


def _judged_rows(codec: Codec, sheet: TableFile) -> Pair:
    stored = codec.stored
    classes = None if stored["classes"] is None else tuple(stored["classes"])
    words = {name: tuple(known) for name, known in stored["one_hot"].items()}
    scheme = TableSchema(tuple(stored["inputs"]), words, tuple(stored["targets"]), classes, stored["missing"])
    for name in scheme.inputs:
        sheet.require(name, "inputs")
    for name in scheme.targets:
        sheet.require(name, "target")
    inputs, targets = load.read(sheet, scheme)
    return codec.standardised(inputs), targets


def _windows(codec: Codec, sheet: TableFile, judged: bool, itself: bool) -> Pair:
    """Windows (n, window, columns), and what follows them (n, k); `itself`: they are to be given back, and nothing follows."""
    names, window, steps = codec.columns, codec.stored["window"], codec.stored["steps"]
    follow = judged and not itself
    for name in [*names, *(codec.targets if follow else [])]:
        sheet.require(name, "columns")
    rows = load.numbers_of(sheet, [*names, *codec.targets] if follow else names, dense=True)
    wanted = window + steps if follow else window
    if len(rows) < wanted:
        what = "a window and what follows" if follow else "a window"
        raise InputMissing(f"{sheet.path}: {len(rows)} rows, and {what} are {wanted}")
    inputs = codec.standardised(rows[:, : len(names)])
    if not (judged or itself):
        return inputs[np.newaxis, -window:], None
    slide = np.lib.stride_tricks.sliding_window_view
    seen = slide(inputs[:-steps] if follow else inputs, window, axis=0).swapaxes(1, 2)
    if not follow:
        return seen, None
    return seen, slide(rows[window:, len(names) :], steps, axis=0).swapaxes(1, 2).reshape(len(seen), -1)
