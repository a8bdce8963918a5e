"""Rows of a CSV or Parquet file as items: columns are found by name, errors name line and column."""

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


def read_table(network: TrainedNetwork, path: Path, labeled: bool) -> Pair:
    """Read the rows of a file. Of a series, read the newest window, to forecast from; for an autoencoder or if `labeled`, all windows."""
    codec, section = Codec(network.codec), network.loaded.job.dataset
    sheet = open_by_name(path, getattr(section, "separator", None), getattr(section, "encoding", None), way="")
    if codec.is_table:
        return _labeled_rows(codec, sheet) if labeled else (load.encode(codec.stored, sheet), None)
    if codec.is_series:
        return _windows(codec, sheet, labeled, network.kind == "autoencoder")
    width = math.prod(network.record.input)
    if labeled:
        raise InputMissing(f"{path}: the network was not trained on a table, so no column is known to be the target; use NPZ")
    if len(sheet.names) != width:
        raise InputMissing(f"{sheet.header_location}: {len(sheet.names)} columns, the network takes {width} numbers")
    numbers = load.numbers_of(sheet, sheet.names)
    return codec.standardize(numbers.reshape(len(numbers), *network.record.input)), None


def _labeled_rows(codec: Codec, sheet: TableFile) -> Pair:
    stored = codec.stored
    classes = None if stored["classes"] is None else tuple(stored["classes"])
    categories = {name: tuple(known) for name, known in stored["one_hot"].items()}
    schema = TableSchema(tuple(stored["inputs"]), categories, tuple(stored["targets"]), classes, stored["missing"])
    for name in schema.inputs:
        sheet.require(name, "inputs")
    for name in schema.targets:
        sheet.require(name, "target")
    inputs, targets = load.read(sheet, schema)
    return codec.standardize(inputs), targets


def _windows(codec: Codec, sheet: TableFile, labeled: bool, reconstruct: bool) -> Pair:
    """Read windows (n, window, columns), and the values that follow them (n, k). `reconstruct`: the windows themselves are the targets."""
    names, window, steps = codec.columns, codec.stored["window"], codec.stored["steps"]
    follow = labeled and not reconstruct
    for name in [*names, *(codec.targets if follow else [])]:
        sheet.require(name, "columns")
    rows = load.numbers_of(sheet, [*names, *codec.targets] if follow else names, dense=True)
    wanted = window + steps if follow else window
    if len(rows) < wanted:
        what = "a window and the steps after it take" if follow else "a window takes"
        raise InputMissing(f"{sheet.path}: {len(rows)} rows, and {what} {wanted}")
    inputs = codec.standardize(rows[:, : len(names)])
    if not (labeled or reconstruct):
        return inputs[np.newaxis, -window:], None
    slide = np.lib.stride_tricks.sliding_window_view
    windows = slide(inputs[:-steps] if follow else inputs, window, axis=0).swapaxes(1, 2)
    if not follow:
        return windows, None
    return windows, slide(rows[window:, len(names) :], steps, axis=0).swapaxes(1, 2).reshape(len(windows), -1)
