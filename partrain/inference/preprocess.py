"""A trained network with the conversion of raw values in front of it and that of answers behind it, as one module.

    raw values -> [fill in, one-hot, codes, parts of dates, differences, scale, standardize] -> network
               -> [softmax, label | units of the targets, sums of differences | error]

The recipe is the codec of the checkpoint. The inputs of the module depend on it:

    tables             `numbers` (n, k) float64, `dates` (n, d) float64: seconds since 1970, and `codes` (n, c) int64: indices of words,
                       -1 for another word, -2 for none; each is left out if there are no such columns
    everything else    `inputs` (n, *shape), float64, or uint8 for images; windows of a differenced series have `sum(lags)` moments more

A graph cannot refuse an item. So an item with a missing value that is not filled in, or a number beyond the network's type gets NaN
as its answers, and -1 as its label. `predict` refuses the same items.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from partrain.data.standardize import broadcastable
from partrain.data.tables.differences import integrate
from partrain.errors import CannotCreate
from partrain.inference.codec import Codec
from partrain.inference.metrics import reconstruction_errors
from partrain.inference.table_graph import TableFeatures, TableInputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.network import TrainedNetwork

InputType = Literal["uint8", "float64"]
"""Type of raw numbers that do not come from a table."""
RawItems = dict[str, Tensor]
"""Raw values by the name of the module's input."""

_SCALE = {"mean", "std", "axis"}
_KNOWN: dict[str | None, set[str]] = {
    "table": _SCALE
    | {"inputs", "one_hot", "categories", "cardinalities", "dates", "features", "targets", "classes", "missing", "fill"}
    | {"missing_indicator", "target_mean", "target_std"},
    "series": {"columns", "target", "window", "steps", "mean", "deviation", "difference", "season", "time", "step", "missing"},
    "images": {"classes", "renumbered", "size", "channels"} | _SCALE,
    None: {"classes", "renumbered", "targets", "target_mean", "target_std"} | _SCALE,
}
"""Keys of a codec that a graph carries out, by its form. Another key may change the numbers, so it is refused."""
_MISSING = {"error", "drop", "mean", "median", "category"}
_KINDS = {"classification", "regression", "forecast", "autoencoder", "user"}


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
        if network.record.vocabulary is not None:
            raise _cannot("its items are tokens, which have no preprocessing")
        images = form == "images" or (len(network.record.input) == 3 and "mean" not in stored)
        if type == "uint8" and (form in ("table", "series") or "mean" in stored):
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
    def outputs(self) -> list[str]:
        """Names of the module's outputs."""
        return {"classification": ["probabilities", "label"], "autoencoder": ["error"]}.get(self.network.kind, ["answers"])

    def describe(self, strings: bool) -> dict[str, Any]:
        """Describe the inputs and outputs of the module. `strings`: words are given as text, not as their codes."""
        if self.table:
            inputs = self.table.describe(strings)
        else:
            inputs = {"inputs": {"type": self.type, "shape": list(self.shape)}}
            if self.codec.is_series:
                inputs["inputs"]["columns"] = self.columns
        names = {"class": {"type": "string"}} if strings and self.codec.classes and self.network.kind == "classification" else {}
        outputs: dict[str, Any] = {name: {} for name in self.outputs} | names
        if "probabilities" in outputs:
            count = self.network.record.outputs
            outputs["probabilities"] = {"classes": [self.codec.class_name(label) for label in range(count)]}
        if "answers" in outputs:
            outputs["answers"] = {"names": self.codec.names(self.network.record.outputs)}
        return {"inputs": inputs, "outputs": outputs}

    def scale(self, dimensions: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return mean and deviation in the form that standardizes items with this number of axes, the first included."""
        assert self.codec.scale is not None
        mean, std = (broadcastable(one, self.codec.stored.get("axis", -1), dimensions) for one in self.codec.scale)
        return mean, std


class Preprocessed(nn.Module):
    """Raw values in, answers as `predict` gives them out."""

    mean: Tensor
    std: Tensor
    target_mean: Tensor
    target_std: Tensor

    def __init__(self, recipe: GraphRecipe) -> None:
        super().__init__()
        codec, record = recipe.codec, recipe.network.record
        self.network = recipe.network.module
        self.kind, self.lags, self.continues = recipe.network.kind, codec.lags, recipe.continues
        self.dtype = torch.float64 if recipe.network.dtype == torch.float64 else torch.float32
        self.table = TableFeatures(recipe.table, codec.stored["fill"]) if recipe.table else None
        self.standardizes, self.restores = codec.scale is not None, codec.target_scale is not None
        self.predicted = recipe.network.task.predicted
        if codec.scale is not None:
            mean, std = recipe.scale(1 + len(record.input))
            self._keep(mean=mean, std=std)
        if self.lags:
            self.columns = [recipe.columns.index(name) for name in codec.columns]
        if self.continues:
            self.targets = [recipe.columns.index(name) for name in codec.targets]
        if codec.target_scale is not None:
            mean, std = (np.tile(one, record.outputs // len(one)) for one in codec.target_scale)
            self._keep(target_mean=mean, target_std=std)

    def _keep(self, **arrays: NDArray[Any]) -> None:
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(array)))

    def forward(
        self,
        inputs: Tensor | None = None,
        numbers: Tensor | None = None,
        dates: Tensor | None = None,
        codes: Tensor | None = None,
    ) -> Mapping[str, Tensor]:
        """Compute the outputs (n, ...) by name."""
        raw, known = self.table(numbers, dates, codes) if self.table else (inputs, None)
        assert raw is not None
        items = self._items(raw)
        fine = torch.isfinite(items).flatten(1).all(1)
        if self.continues:
            fine = fine & torch.isfinite(raw).flatten(1).all(1)
        if known is not None:
            fine = fine & known
        answers = self.network(items)
        if self.kind == "classification":
            probabilities = answers.softmax(1)
            label = torch.where(fine, answers.argmax(1), torch.full_like(answers[:, 0], -1, dtype=torch.int64))
            return {"probabilities": _masked(probabilities, fine[:, None]), "label": label}
        if self.kind == "autoencoder":
            return {"error": _masked(reconstruction_errors(answers, items), fine)}
        answers = self.predicted(answers).flatten(1)
        if self.restores:
            answers = answers.double() * self.target_std + self.target_mean
        if self.continues:
            newest = raw[:, -sum(self.lags) :, self.targets].double()
            steps = torch.unflatten(answers.double(), 1, (-1, len(self.targets)))
            answers = integrate(steps, newest, self.lags).flatten(1)
        return {"answers": _masked(answers, fine[:, None])}

    def _items(self, raw: Tensor) -> Tensor:
        """Convert raw numbers to what the network saw in training."""
        if raw.dtype == torch.uint8:
            raw = raw.float() * float(np.float32(1 / 255))
        if self.lags:
            raw = raw.double()
            for lag in self.lags:
                raw = raw[:, lag:] - raw[:, :-lag]
            raw = raw[:, :, self.columns]
        if self.standardizes:
            raw = (raw.double() - self.mean) / self.std
        if self.table:
            raw = raw.float()  # rows of tables are stored in single precision
        return raw.to(self.dtype)


def _masked(answers: Tensor, fine: Tensor) -> Tensor:
    return torch.where(fine, answers, torch.full_like(answers, float("nan")))


def _cannot(why: str) -> CannotCreate:
    advice = "export without --with-preprocessing and --snippet; the metadata has the codec"
    return CannotCreate(f"the preprocessing of this network exists in partrain alone: {why}; {advice}")
