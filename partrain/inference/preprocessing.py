"""The preprocessing of a trained network for a graph: its raw inputs, their conversion to items, and its outputs.

The recipe is the codec of the checkpoint. The raw inputs depend on it:

    tables             `numbers` (n, k) float64, `dates` (n, d) float64: seconds since 1970, and `codes` (n, c) int64: positions
    of
                       words, -1 for another word, -2 for a missing one; inputs without columns are left out
    several inputs     each by its name, (n, *shape): float64, uint8 (bytes of images) or int64 (tokens)
    unequal lengths    `inputs` (n, longest, ...), padded with zeros, and `lengths` (n,)
    everything else    `inputs` (n, *shape), float64, uint8 for images, or int64 for tokens; windows of a differenced series have
                       `sum(lags)` more moments
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from partrain.byte_layout import LENGTHS, input_names, part_view
from partrain.data.codec import Codec
from partrain.data.standardize import broadcastable
from partrain.data.tables.differences import difference, integrate
from partrain.data.tables.load import schema_of
from partrain.errors import CannotCreate
from partrain.inference.inputs.sample import Sample
from partrain.inference.predict import predict
from partrain.preprocess.column import double
from partrain.preprocess.table import TableSchema
from partrain.preprocess.words import MISSING, UNSEEN
from partrain.seeds import derive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.network import TrainedNetwork
    from partrain.inference.predict import Columns

InputType = Literal["uint8", "float64"]
"""Type of raw numbers that do not come from a table."""
WordForm = Literal["text", "codes"]
"""Form of words in a graph."""
RawItems = dict[str, "NDArray[Any]"]
"""Raw values by the name of the graph's input."""
_HOLES = 0.2
"""Fraction of missing cells among the drawn cells that may be missing."""
_DETAILS: dict[str, tuple[str, dict[str, Any]]] = {
    "numbers": ("float64", {}),
    "dates": ("float64", {"unit": "seconds since 1970-01-01T00:00:00 UTC"}),
    "codes": ("int64", {"unseen": UNSEEN, "missing": MISSING}),
}
"""Type and description of a table's raw inputs."""


@dataclass(frozen=True)
class Preprocessing:
    """The preprocessing of a network, checked for whether a graph can hold all of it."""

    network: TrainedNetwork
    type: InputType
    """Type of raw numbers that do not come from a table."""
    words_as: WordForm | None = None
    """Form of words in the graph; None: text if the format supports it."""

    @classmethod
    def of(cls, network: TrainedNetwork, dtype: InputType | None = None, words_as: WordForm | None = None) -> Preprocessing:
        """Check a network's codec. CannotCreate if a graph cannot hold it."""
        stored, kind, form = network.codec.stored, network.kind, network.codec.stored.get("form")
        if kind.targets == "tokens" or form == "text":
            raise _cannot("it continues texts, token by token")
        if form == "documents":
            raise _cannot("its words are numbered outside of the graph; the vocabulary is in the metadata of the file")
        if stored.get("texts"):
            raise _cannot(f"the words of column `{next(iter(stored['texts']))}` are split outside of the graph")
        if form == "table" and len(stored["features"]) != network.record.input[0]:
            raise _cannot("its items are not the features of the table")
        if dtype and (network.record.parts or network.record.vocabulary is not None):
            raise _cannot("its inputs have their own types: leave --input-type out")
        scaled = "mean" in stored and not stored.get("by_batch")
        if dtype == "uint8" and (form in ("table", "series") or scaled):
            raise _cannot("its items are no bytes: leave --input-type out")
        return cls(network, dtype or ("uint8" if network.record.of_bytes else "float64"), words_as)

    @cached_property
    def codec(self) -> Codec:
        return self.network.codec

    @cached_property
    def schema(self) -> TableSchema | None:
        """Columns of a table; None if the items are not from a table."""
        return schema_of(self.codec.stored) if self.codec.is_table else None

    @cached_property
    def table(self) -> dict[str, list[str]]:
        """Columns of each raw input of a table."""
        by_source: dict[str, list[str]] = {name: [] for name in _DETAILS}
        for name, kind in self.schema.kinds.items() if self.schema else ():
            by_source[kind.source].append(name)
        return {source: names for source, names in by_source.items() if names}

    @property
    def words(self) -> dict[str, list[str]]:
        """Words of each column of words."""
        return self.schema.words if self.schema else {}

    @cached_property
    def columns(self) -> list[str]:
        """Columns of a series in the order of the graph's input; for a differenced series, including its forecast targets."""
        codec = self.codec
        return list(dict.fromkeys([*codec.columns, *(codec.targets if self.continues else [])]))

    @property
    def continues(self) -> bool:
        """True if the network forecasts differences, which continue the newest values."""
        return bool(self.codec.lags) and bool(self.network.kind.targets)

    @property
    def names(self) -> list[str]:
        """Names of several inputs, or of padded items and their lengths; empty if there is one input."""
        return input_names([part.name for part in self.network.record.parts])

    @property
    def raw(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Type and shape of each raw input that is not from a table, by name."""
        record, lags = self.network.record, self.codec.lags
        if record.parts:
            types = {"float32": "float64"}
            parts = zip(self.names, record.parts, strict=True)
            return {name: (types.get(part.dtype, part.dtype), tuple(part.shape)) for name, part in parts}
        shape = (sum(lags) + self.codec.stored["window"], len(self.columns)) if lags else tuple(record.input)
        return {"inputs": ("int64" if record.vocabulary is not None else self.type, shape)}

    @property
    def outputs(self) -> list[str]:
        """Names of the graph's outputs."""
        if self.network.kind.has_probabilities:
            return ["probabilities", "label"]
        return ["answers" if self.network.kind.targets else "error"]

    def describe(self, *, strings: bool) -> dict[str, Any]:
        """Describe the inputs and outputs of the graph. `strings`: words are text, not codes."""
        inputs: dict[str, Any] = {}
        for source, names in self.table.items():
            dtype, details = _DETAILS[source]
            more = {"words": self.words} if source == "codes" else {}
            if strings and source == "codes":
                source, dtype, details = "words", "string", {}
            holes = [name for name in names if self.schema and self.schema.may_miss(name)]
            inputs[source] = {"type": dtype, "columns": names, **details, **more, "may_be_missing": holes}
        if not self.schema:
            inputs = {name: {"type": dtype, "shape": list(shape)} for name, (dtype, shape) in self.raw.items()}
            if self.codec.is_series:
                inputs["inputs"]["columns"] = self.columns
        kind, count = self.network.kind, self.network.record.outputs
        named = {"class": {"type": "string"}} if strings and self.codec.classes and kind.one_class else {}
        outputs: dict[str, Any] = {name: {} for name in self.outputs} | named
        if kind.zero_one:
            outputs["probabilities"] = {"labels": self.codec.names(count)}
        elif "probabilities" in outputs:
            outputs["probabilities"] = {"classes": [self.codec.class_name(label) for label in range(count)]}
        if "answers" in outputs:
            outputs["answers"] = {"names": self.codec.names(count)}
        return {"inputs": inputs, "outputs": outputs}

    def items(self, xp: Any, raw: Mapping[str, Any]) -> tuple[Any, Any]:
        """Convert raw numbers to items (n, ...), and return a mask (n,) of the items that `predict` reads; None: it reads all.

        `xp` is numpy, or torch in a graph. Items that are not finite are refused in addition.
        """
        codec = self.codec
        if self.schema:
            columns = {name: raw[source][:, at] for source, names in self.table.items() for at, name in enumerate(names)}
            items = codec.standardize(self.schema.compute(xp, columns), xp)
            return single(items), self.schema.readable(xp, columns)
        items = scaled_bytes(xp, raw["inputs"])
        if codec.lags:
            items = difference(double(items).swapaxes(0, 1), codec.lags).swapaxes(0, 1)
            items = items[:, :, [self.columns.index(name) for name in codec.columns]]
        return codec.standardize(items, xp), None

    def sample(self, count: int) -> tuple[RawItems, Columns]:
        """Draw raw items similar to the training items. Return them with the answers of `predict`, whose items numpy computes."""
        draw, network = np.random.default_rng(derive(0, "export", count)), self.network
        newest = None
        if self.schema:
            raw = self._rows(self.schema, draw, count)
            items, _ = self.items(np, raw)
        elif self.names:
            raw = self._several(draw, count)
            items = np.zeros((count, max(part.end for part in network.record.parts)), np.uint8)
            for part, values in zip(network.record.parts, raw.values(), strict=True):
                part_view(items, part)[:] = values
        else:
            raw = {"inputs": self._numbers(draw, count)}
            items = raw["inputs"] if network.record.vocabulary is not None else self.items(np, raw)[0]
            if self.continues:
                targets = [self.columns.index(name) for name in self.codec.targets]
                newest = torch.from_numpy(raw["inputs"][:, -sum(self.codec.lags) :, targets])
        inputs = torch.from_numpy(np.ascontiguousarray(items))
        inputs = inputs if inputs.dtype in (torch.uint8, torch.int64) else inputs.to(network.dtype)
        sample = Sample(inputs, None, list(map(str, range(count))), newest=newest)
        return raw, predict(network, sample, probabilities=network.kind.has_probabilities).columns

    def _rows(self, schema: TableSchema, draw: np.random.Generator, count: int) -> RawItems:
        """Draw rows of a table: values similar to the training values, any words, and missing cells."""
        stored, raw = self.network.codec.stored, RawItems()
        first = {name: at for at, name in reversed(list(enumerate(schema.owners)))}
        for source, names in self.table.items():
            columns = []
            for name in names:
                at = first.get(name, 0)
                values = schema.kinds[name].draw(draw, stored["fill"][at], stored["std"][at], count)
                holes = (draw.random(count) < _HOLES) & schema.may_miss(name)
                columns.append(np.where(holes, MISSING if source == "codes" else np.nan, values))
            raw[source] = np.stack(columns, axis=1)
        return raw

    def _numbers(self, draw: np.random.Generator, count: int) -> NDArray[Any]:
        """Draw tokens, bytes, numbers, or windows of a series."""
        dtype, shape = self.raw["inputs"]
        if (vocabulary := self.network.record.vocabulary) is not None:
            return draw.integers(0, vocabulary, (count, *shape))
        if dtype == "uint8":
            return draw.integers(0, 256, (count, *shape), np.uint8)
        numbers = draw.standard_normal((count, *shape))
        if self.codec.lags:
            mean, std = (np.array([self.codec.stored[key][name] for name in self.columns]) for key in ("mean", "deviation"))
            lags = sum(self.codec.lags)
            first, steps = torch.from_numpy(10 * std * (1 + numbers[:, :lags])), torch.from_numpy(mean + std * numbers[:, lags:])
            return torch.cat([first, integrate(steps, first, self.codec.lags)], 1).numpy()
        if self.codec.scale is None:
            return numbers
        mean, std = (broadcastable(value, self.codec.stored.get("axis", -1), numbers.ndim) for value in self.codec.scale)
        return mean + std * numbers

    def _several(self, draw: np.random.Generator, count: int) -> RawItems:
        """Draw several inputs, or padded items and their lengths. The first item has the full length."""
        parts = dict(zip(self.names, self.network.record.parts, strict=True))
        raw = RawItems()
        for name, part in parts.items():
            shape = (count, *part.shape)
            if part.vocabulary is not None:
                raw[name] = draw.integers(0, part.vocabulary, shape)
            elif part.dtype == "int64":
                padded = raw[padded_name(name)]
                longest = padded.shape[1]
                raw[name] = np.concatenate([[longest], draw.integers(1, longest + 1, count - 1)])
                padded[np.arange(longest) >= raw[name][:, None]] = 0
            else:
                numbers = draw.integers(0, 256, shape, np.uint8) if part.dtype == "uint8" else draw.standard_normal(shape)
                raw[name] = numbers
        return raw


def padded_name(lengths: str) -> str:
    """Return the name of the padded input whose lengths have this name."""
    return "inputs" if lengths == LENGTHS else lengths.removesuffix(f"_{LENGTHS}")


def single(values: Any) -> Any:
    """Return numbers of numpy or torch in single precision."""
    if hasattr(values, "float"):
        return values.float()
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def scaled_bytes(xp: Any, raw: Any) -> Any:
    """Scale bytes to [0, 1]; other numbers stay unchanged."""
    return single(raw) * float(np.float32(1 / 255)) if raw.dtype == xp.uint8 else raw


def _cannot(why: str) -> CannotCreate:
    advice = "export without --with-preprocessing; the metadata has the codec"
    return CannotCreate(f"the preprocessing of this network exists in partrain alone: {why}; {advice}")
