"""The conversion of a table's raw values into features, as a module: words are given by their codes, dates by their seconds.

Symbols: n items; k columns of numbers; d of dates; c of words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from partrain.data.tables.columns import CYCLES, MISSING_CODE, UNSEEN_CODE, TableSchema
from partrain.data.tables.load import schema_of

UNSEEN, MISSING = -1, -2
"""Codes, in a graph's inputs, of a word that is not in the list, and of a cell without a value."""
DAY_S = 86400
"""Seconds of a day."""
_FIRST, _AFTER_LAST = -719162 * DAY_S, 2932897 * DAY_S
"""Seconds of the first moment of the years 1 to 9999, which `predict` reads, and of the first behind them."""
_PARTS = 1 + 2 * (len(CYCLES) + 1)
"""Parts of a date with a time of day."""


@dataclass(frozen=True)
class TableInputs:
    """Columns of a table by the input of the graph that takes them."""

    schema: TableSchema

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> TableInputs:
        """Read a codec."""
        return cls(schema_of(stored))

    @cached_property
    def words(self) -> dict[str, list[str]]:
        """Words of each column of words, in the order of their codes."""
        known = self.schema.words | self.schema.codes
        return {name: list(known[name]) for name in self.schema.inputs if name in known}

    @cached_property
    def dates(self) -> list[str]:
        """Columns of dates."""
        return [name for name in self.schema.inputs if name in self.schema.dates]

    @cached_property
    def numbers(self) -> list[str]:
        """Columns of numbers and of truth values."""
        return [name for name in self.schema.inputs if name not in self.words and name not in self.schema.dates]

    def describe(self, strings: bool) -> dict[str, Any]:
        """Describe the inputs. `strings`: words are given as text, not as their codes."""
        found: dict[str, Any] = {}
        if self.numbers:
            found["numbers"] = {"type": "float64", "columns": self.numbers}
        if self.dates:
            found["dates"] = {"type": "float64", "columns": self.dates, "unit": "seconds since 1970-01-01T00:00:00 UTC"}
        if self.words and strings:
            found["words"] = {"type": "string", "columns": list(self.words), "words": self.words}
        elif self.words:
            codes = {"unseen": UNSEEN, "missing": MISSING}
            found["codes"] = {"type": "int64", "columns": list(self.words), "words": self.words, **codes}
        for one in found.values():
            one["may_be_missing"] = [name for name in one["columns"] if self.schema.may_miss(name)]
        return found


class TableFeatures(nn.Module):
    """Raw values -> features, and for each item whether `predict` reads its words and dates."""

    order: Tensor
    """(features,) position of each feature among those that `forward` puts together."""
    column: Tensor
    """Column of words of each one-hot feature."""
    word: Tensor
    """Code of its word."""
    lowest: Tensor
    """Lowest code of each column of words: MISSING, or UNSEEN where a cell must have a value."""
    word_counts: Tensor
    """Number of words of each column of words."""
    clocks: Tensor
    """1 for each column of dates that has a time of day, else 0."""
    fill: Tensor
    """Number that stands for a missing one, by feature; NaN where a cell must have a value."""

    def __init__(self, inputs: TableInputs, fill: list[float]) -> None:
        super().__init__()
        schema, words = inputs.schema, inputs.words
        hot = [(at, code) for at, name in enumerate(words) if name in schema.words for code in range(len(words[name]))]
        holes = [holed for name in schema.inputs for holed in [schema.may_miss(name)] * _width(schema, name)]
        arrays = {
            "order": np.array(_order(inputs), np.int64),
            "column": np.array([at for at, _ in hot], np.int64),
            "word": np.array([code for _, code in hot], np.int64),
            "lowest": np.array([MISSING if schema.may_miss(name) else UNSEEN for name in words], np.int64),
            "word_counts": np.array([len(known) for known in words.values()], np.int64),
            "clocks": np.array([schema.dates[name] for name in inputs.dates], np.float64),
            "fill": np.where(holes, np.asarray(fill, np.float64), np.nan),
        }
        for name, array in arrays.items():
            if array.size:  # torch.export stores no tensor without numbers
                self.register_buffer(name, torch.from_numpy(array))
        self.one_hot = bool(hot)

    def forward(self, numbers: Tensor | None, dates: Tensor | None, codes: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return features (n, features) of numbers (n, k), dates (n, d) and codes (n, c), and which items (n,) are known.

        The order of parts is that of `_order`.
        """
        values: list[Tensor] = []
        lacking: list[Tensor] = []
        known: Tensor | None = None
        if numbers is not None:
            values.append(numbers.double())
            lacking.append(torch.isnan(numbers))
        if dates is not None:
            values.append(date_parts(dates, self.clocks).flatten(1))
            lacking.append(torch.isnan(dates))
            known = (torch.isnan(dates) | ((dates >= _FIRST) & (dates < _AFTER_LAST))).all(1)
        if codes is not None:
            there = (codes >= self.lowest) & (codes < self.word_counts)
            known = there.all(1) if known is None else known & there.all(1)
            # Embeddings are looked up for unknown items too, so each code must be valid.
            stored = torch.where(there, codes - MISSING + MISSING_CODE, torch.full_like(codes, UNSEEN_CODE))
            if self.one_hot:
                values.append((codes.index_select(1, self.column) == self.word).double())
            values.append(stored.double())
            lacking.append(codes == MISSING)
        raw = torch.cat([*values, *(one.double() for one in lacking)], 1).index_select(1, self.order)
        return torch.where(torch.isnan(raw), self.fill, raw), known


def date_parts(seconds: Tensor, clocks: Tensor) -> Tensor:
    """Return the parts (n, d, 7) of moments (n, d) in seconds since 1970, as `load` computes them; NaN for NaN.

    `clocks`, (d,), are 1 for dates with a time of day, which is then a part of the day.
    The day of the year comes from days since 0000-03-01, in eras of 400 years that end on a leap day.
    """
    seconds = seconds.double().floor()
    days = (seconds / DAY_S).floor()
    time = (seconds - days * DAY_S) / DAY_S
    weekday = _remainder(days + 3, 7)  # 1970-01-01 was a Thursday
    in_era = _remainder(days + 719468, 146097)
    leaps = (in_era / 1460).floor() - (in_era / 36524).floor() + (in_era / 146096).floor()
    year = ((in_era - leaps) / 365).floor()
    since_march = in_era - (365 * year + (year / 4).floor() - (year / 100).floor())
    is_leap = (_remainder(year, 4) == 0) & ((_remainder(year, 100) != 0) | (year == 0))
    in_year = torch.where(since_march >= 306, since_march - 306, since_march + 59 + is_leap.double())
    angles = torch.stack([in_year / 365.25, weekday / 7, time], -1) * (2 * math.pi)
    waves = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)
    return torch.cat([(days + clocks * time).unsqueeze(-1), waves], -1)


def _remainder(numbers: Tensor, divisor: int) -> Tensor:
    return numbers - divisor * (numbers / divisor).floor()


def _width(schema: TableSchema, name: str) -> int:
    """Return the number of features of a column."""
    return replace(schema, inputs=(name,)).width


def _order(inputs: TableInputs) -> list[int]:
    """Return the position of each feature among: numbers, parts of dates, one-hot words, codes, indicators of each."""
    schema, words = inputs.schema, inputs.words
    there: list[tuple[str, str | int]] = [(name, "value") for name in inputs.numbers]
    there += [(name, part) for name in inputs.dates for part in range(_PARTS)]
    there += [(name, code) for name in words if name in schema.words for code in range(len(words[name]))]
    there += [(name, "value") for name in words]
    there += [(name, "missing") for name in (*inputs.numbers, *inputs.dates, *words)]
    place = {feature: at for at, feature in enumerate(there)}
    found: list[int] = []
    for name in schema.inputs:
        parts: list[str | int] = ["value"]
        if name in schema.words:
            parts = list(range(len(words[name])))
        elif name in schema.dates:
            parts = list(range(_PARTS if schema.dates[name] else _PARTS - 2))
        found += [place[name, part] for part in [*parts, *["missing"] * (name in schema.indicators)]]
    return found
