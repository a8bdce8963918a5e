"""Seeded raw items for a network, with the answers of `predict`, which reads them from files.

Symbols: n items; L moments of a window; k columns.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from partrain.byte_layout import LENGTHS
from partrain.data.tables.differences import integrate
from partrain.inference.inputs.read import read
from partrain.inference.predict import predict
from partrain.inference.preprocess import PROBABILITIES
from partrain.inference.table_graph import DAY_S, MISSING, UNSEEN, TableInputs
from partrain.seeds import derive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.network import TrainedNetwork
    from partrain.inference.predict import Columns
    from partrain.inference.preprocess import GraphRecipe, RawItems

HOLES = 0.2
"""Share of the cells that may be missing which are, and of the words that are not in the list."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def sample(recipe: GraphRecipe, count: int) -> tuple[RawItems, Columns]:
    """Draw raw items, and return them with the answers of `predict`."""
    draw = np.random.default_rng(derive(0, "export", count))
    network = recipe.network
    with TemporaryDirectory(prefix="partrain-export-") as folder:
        path = Path(folder)
        if recipe.table:
            raw, text = _table(recipe, recipe.table, draw, count)
            (path / "items.csv").write_bytes(text)
            return raw, _answers(network, path / "items.csv")
        if recipe.codec.lags:
            return _windows(recipe, draw, count, path)
        arrays = _several(recipe, draw, count) if recipe.names else {"inputs": _array(recipe, draw, count)}
        np.savez(path / "items.npz", allow_pickle=False, **_as_file(recipe, arrays))
        return {name: torch.from_numpy(array) for name, array in arrays.items()}, _answers(network, path / "items.npz")


def _answers(network: TrainedNetwork, path: Path) -> Columns:
    return predict(network, read(network, path), probabilities=network.kind in PROBABILITIES).columns


def _array(recipe: GraphRecipe, draw: np.random.Generator, count: int) -> NDArray[Any]:
    shape = (count, *recipe.shape)
    if (vocabulary := recipe.network.record.vocabulary) is not None:
        return draw.integers(0, vocabulary, shape)
    if recipe.type == "uint8":
        return draw.integers(0, 256, shape, np.uint8)
    inputs = draw.standard_normal(shape)
    if recipe.codec.scale is None:
        return inputs
    mean, std = recipe.scale(len(shape))
    scaled: NDArray[Any] = mean + std * inputs
    return scaled


def _several(recipe: GraphRecipe, draw: np.random.Generator, count: int) -> dict[str, NDArray[Any]]:
    """Draw several inputs, or padded items and their lengths. The first item is of the full length."""
    parts = dict(zip(recipe.names, recipe.network.record.parts, strict=True))
    found: dict[str, NDArray[Any]] = {}
    for name, part in parts.items():
        shape = (count, *part.shape)
        if part.vocabulary is not None:
            found[name] = draw.integers(0, part.vocabulary, shape)
        elif part.dtype == "int64":
            padded = "inputs" if name == LENGTHS else name.removesuffix(f"_{LENGTHS}")
            longest = parts[padded].shape[0]
            found[name] = np.concatenate([[longest], draw.integers(1, longest + 1, count - 1)])
            for row, length in zip(found[padded], found[name], strict=True):
                row[length:] = 0
        else:
            bytes = part.dtype == "uint8"
            found[name] = draw.integers(0, 256, shape, np.uint8) if bytes else draw.standard_normal(shape)
    return found


def _as_file(recipe: GraphRecipe, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays as files hold them: items of unequal length without padding, one behind the other."""
    if not recipe.network.record.interface.unequal:
        return arrays
    values = [row[:length] for row, length in zip(arrays["inputs"], arrays[LENGTHS], strict=True)]
    return {"inputs": np.concatenate(values), "offsets": np.cumsum([0, *arrays[LENGTHS]])}


def _windows(recipe: GraphRecipe, draw: np.random.Generator, count: int, folder: Path) -> tuple[RawItems, Columns]:
    """Draw windows (n, L, k) of a differenced series whose differences are like those trained on. Each is a file of its own.

    Time stamps are left out: they name moments, and change no number.
    """
    codec, lags = recipe.codec, sum(recipe.codec.lags)
    stored = {key: value for key, value in recipe.network.codec.items() if key not in ("time", "step")}
    network = replace(recipe.network, codec=stored)
    mean, std = (np.array([codec.stored[key][name] for name in recipe.columns]) for key in ("mean", "deviation"))
    first = torch.from_numpy(10 * std * (1 + draw.standard_normal((count, lags, len(std)))))
    steps = torch.from_numpy(mean + std * draw.standard_normal((count, recipe.shape[0] - lags, len(std))))
    windows = torch.cat([first, integrate(steps, first, codec.lags)], 1)
    found: list[Columns] = []
    for item, window in enumerate(windows.tolist()):
        path = folder / f"window-{item}.csv"
        path.write_bytes(_csv(network, recipe.columns, [list(map(repr, row)) for row in window]))
        found.append(_answers(network, path))
    return {"inputs": windows}, {name: np.concatenate([np.asarray(one[name]) for one in found]) for name in found[0]}


def _table(recipe: GraphRecipe, table: TableInputs, draw: np.random.Generator, count: int) -> tuple[RawItems, bytes]:
    """Draw rows of a table, as tensors and as a CSV file: numbers and dates like those trained on, any words, and holes."""
    stored, schema = recipe.codec.stored, table.schema
    first = {name: stored["features"].index(replace(schema, inputs=(name,)).features[0]) for name in table.numbers + table.dates}
    raw: dict[str, Tensor] = {}
    cells: list[list[str]] = [[] for _ in range(count)]

    def spread(names: Sequence[str]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return a typical number and the deviation of each column, and the holes (n, columns)."""
        center, std = (np.array([stored[key][first[name]] for name in names]) for key in ("fill", "std"))
        return center, std, _holes(table, names, draw, count)

    if table.numbers:
        center, std, holes = spread(table.numbers)
        numbers = np.where(holes, np.nan, center + std * draw.standard_normal(holes.shape))
        raw["numbers"] = torch.from_numpy(numbers)
        _add(cells, numbers, repr)
    if table.dates:
        center, std, holes = spread(table.dates)
        days = np.clip(center + np.maximum(std, 400) * draw.standard_normal(holes.shape), -700_000, 2_900_000)
        clocks = [schema.dates[name] for name in table.dates]
        seconds = np.where(clocks, np.floor(days * DAY_S), np.floor(days) * DAY_S)
        seconds = np.where(holes, np.nan, seconds)
        raw["dates"] = torch.from_numpy(seconds)
        _add(cells, seconds, lambda moment: (_EPOCH + timedelta(seconds=moment)).isoformat())
    if table.words:
        known = list(table.words.values())
        codes = (draw.random((count, len(known))) * [len(words) for words in known]).astype(np.int64)
        empty = [not words for words in known]
        codes[empty | (draw.random(codes.shape) < HOLES)] = UNSEEN
        codes[_holes(table, list(table.words), draw, count)] = MISSING
        raw["codes"] = torch.from_numpy(codes)
        for row, numbers in zip(cells, codes, strict=True):
            row += [as_text(words, code) for words, code in zip(known, numbers, strict=True)]
    return raw, _csv(recipe.network, [*table.numbers, *table.dates, *table.words], cells)


def as_text(words: Sequence[str], code: int) -> str:
    """Return a word for its code; for UNSEEN one that is not among them."""
    if code == MISSING:
        return ""
    if code != UNSEEN:
        return words[code]
    text = "unseen"
    while text in words:
        text += "_"
    return text


def _add(cells: Sequence[list[str]], numbers: NDArray[Any], write: Any) -> None:
    """Append columns of numbers to the cells of rows: NaN is a cell without a value."""
    for row, some in zip(cells, numbers.tolist(), strict=True):
        row += ["NA" if number != number else write(number) for number in some]


def _holes(table: TableInputs, names: Sequence[str], draw: np.random.Generator, count: int) -> NDArray[Any]:
    may_miss = [table.schema.may_miss(name) for name in names]
    holes: NDArray[Any] = (draw.random((count, len(names))) < HOLES) & may_miss
    return holes


def _csv(network: TrainedNetwork, names: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
    """Write a CSV file as the network's job separates and encodes it."""
    section = network.loaded.job.dataset
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=getattr(section, "separator", None) or ",", lineterminator="\n")
    writer.writerows([names, *rows])
    return text.getvalue().encode(getattr(section, "encoding", None) or "utf-8")
