"""The preprocessing of a trained network, checked: its raw inputs and its outputs, which `graph.Preprocessed` computes.

The recipe is the codec of the checkpoint. The raw inputs depend on it:

    tables             `numbers` (n, k) float64, `dates` (n, d) float64: seconds since 1970, and `codes` (n, c) int64: indices of words,
                       -1 for another word, -2 for none; each is left out if there are no such columns
    several inputs     each by its name, (n, *shape): float64, uint8 (bytes of images) or int64 (tokens)
    unequal lengths    `inputs` (n, longest, ...), padded with zeros, and `lengths` (n,)
    everything else    `inputs` (n, *shape), float64, uint8 for images, or int64 for tokens; windows of a differenced series have
                       `sum(lags)` moments more
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from partrain.byte_layout import input_names
from partrain.data.standardize import broadcastable
from partrain.errors import CannotCreate
from partrain.inference.codec import Codec
from partrain.inference.table_graph import TableInputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.network import TrainedNetwork

InputType = Literal["uint8", "float64"]
"""Type of raw numbers that do not come from a table."""
RawItems = dict[str, Tensor]
"""Raw values by the name of the module's input."""

_SCALE = {"mean", "std", "axis"}
_BY_CHANNEL = _SCALE | {"by_batch", "learnt"}
_KNOWN: dict[str | None, set[str]] = {
    "table": _SCALE
    | {"inputs", "one_hot", "categories", "cardinalities", "dates", "features", "targets", "classes", "missing", "fill"}
    | {"missing_indicator", "target_mean", "target_std"},
    "series": {"columns", "target", "window", "steps", "mean", "deviation", "difference", "season", "time", "step", "missing"},
    "images": {"classes", "renumbered", "size", "channels"} | _BY_CHANNEL,
    None: {"classes", "renumbered", "targets", "target_mean", "target_std", "parts"} | _BY_CHANNEL,
}
"""Keys of a codec that a graph carries out, by its form. Another key may change the numbers, so it is refused."""
_MISSING = {"error", "drop", "mean", "median", "category"}
_KINDS = {"classification", "multi-label", "segmentation", "regression", "forecast", "autoencoder", "user"}
PROBABILITIES = ("classification", "multi-label", "segmentation")
"""Kinds of tasks whose answers are probabilities and labels."""


@dataclass(frozen=True)
class GraphRecipe:
    """The preprocessing of a network, checked: a graph can hold all of it."""

    network: TrainedNetwork
    type: InputType
    """Type of raw numbers that do not come from a table."""

    @classmethod
    def of(cls, network: TrainedNetwork, type: InputType | None = None) -> GraphRecipe:
        """Check a network's codec. CannotCreate, naming the key, if a graph cannot hold it."""
        stored, kind = network.codec, network.kind
        form = stored.get("form")
        if kind == "language" or form == "text":
            raise _cannot("it continues texts, token by token")
        if kind not in _KINDS:
            raise _cannot(f"no graph is known for answers of the kind {kind}")
        if form not in _KNOWN:
            raise _cannot(f"no graph is known for items of the form `{form}`")
        if unknown := sorted(stored.keys() - _KNOWN[form] - {"form"}):
            raise _cannot(f"no graph is known for the step `{unknown[0]}` of its codec")
        if form == "table":
            ways = [stored["missing"]] if isinstance(stored["missing"], str) else stored["missing"].values()
            if other := next((how for how in ways if isinstance(how, str) and how not in _MISSING), None):
                raise _cannot(f'no graph is known for missing = "{other}"')
        if form == "table" and len(stored["features"]) != network.record.input[0]:
            raise _cannot("its items are not the features of the table")
        if type and (network.record.parts or network.record.vocabulary is not None):
            raise _cannot("its inputs have types of their own: leave --input-type out")
        scaled = "mean" in stored and not stored.get("by_batch")
        images = form == "images" or (len(network.record.input) == 3 and not scaled)
        if type == "uint8" and (form in ("table", "series") or scaled):
            raise _cannot("its items are no bytes: leave --input-type out")
        return cls(network, type or ("uint8" if images else "float64"))

    @property
    def codec(self) -> Codec:
        return Codec(self.network.codec)

    @cached_property
    def table(self) -> TableInputs | None:
        """Columns of a table by the module's input; None if the items are not from a table."""
        return TableInputs.of(self.network.codec) if self.codec.is_table else None

    @property
    def words(self) -> dict[str, list[str]]:
        """Words of each column of words."""
        return self.table.words if self.table else {}

    @cached_property
    def columns(self) -> list[str]:
        """Columns of a series in the order of the module's input: of a differenced one, the targets that it forecasts too."""
        codec = self.codec
        return list(dict.fromkeys([*codec.columns, *(codec.targets if self.continues else [])]))

    @property
    def continues(self) -> bool:
        """True if the network forecasts differences, which continue the newest values."""
        return bool(self.codec.lags) and self.network.kind != "autoencoder"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a raw item that is not from a table."""
        lags = self.codec.lags
        return (sum(lags) + self.codec.stored["window"], len(self.columns)) if lags else tuple(self.network.record.input)

    @property
    def names(self) -> list[str]:
        """Names of several inputs, or of padded items and their lengths; empty if there is one input."""
        return input_names([part.name for part in self.network.record.parts])

    @property
    def raw(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Type and shape of each raw input that is not from a table, by name."""
        record = self.network.record
        if record.parts:
            types = {"float32": "float64"}
            parts = zip(self.names, record.parts, strict=True)
            return {name: (types.get(part.dtype, part.dtype), tuple(part.shape)) for name, part in parts}
        return {"inputs": ("int64" if record.vocabulary is not None else self.type, self.shape)}

    @property
    def outputs(self) -> list[str]:
        """Names of the module's outputs."""
        if self.network.kind in PROBABILITIES:
            return ["probabilities", "label"]
        return ["error" if self.network.kind == "autoencoder" else "answers"]

    def describe(self, strings: bool) -> dict[str, Any]:
        """Describe the inputs and outputs of the module. `strings`: words are given as text, not as their codes."""
        if self.table:
            inputs = self.table.describe(strings)
        else:
            inputs = {name: {"type": type, "shape": list(shape)} for name, (type, shape) in self.raw.items()}
            if self.codec.is_series:
                inputs["inputs"]["columns"] = self.columns
        kind, count = self.network.kind, self.network.record.outputs
        names = {"class": {"type": "string"}} if strings and self.codec.classes and kind == "classification" else {}
        outputs: dict[str, Any] = {name: {} for name in self.outputs} | names
        if kind == "multi-label":
            outputs["probabilities"] = {"labels": self.codec.names(count)}
        elif "probabilities" in outputs:
            outputs["probabilities"] = {"classes": [self.codec.class_name(label) for label in range(count)]}
        if "answers" in outputs:
            outputs["answers"] = {"names": self.codec.names(count)}
        return {"inputs": inputs, "outputs": outputs}

    def scale(self, dimensions: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return mean and deviation in the form that standardizes items with this number of axes, the first included."""
        assert self.codec.scale is not None
        mean, std = (broadcastable(one, self.codec.stored.get("axis", -1), dimensions) for one in self.codec.scale)
        return mean, std


def _cannot(why: str) -> CannotCreate:
    advice = "export without --with-preprocessing; the metadata has the codec"
    return CannotCreate(f"the preprocessing of this network exists in partrain alone: {why}; {advice}")
