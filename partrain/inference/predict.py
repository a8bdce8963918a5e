"""`partrain predict --input`: the answers to the items of a file, as columns; written as CSV, NPZ or JSON.

Symbols: n items; C classes; k numbers.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from partrain.errors import InputMissing, UserCodeFailed
from partrain.inference.codec import Codec
from partrain.inference.metrics import reconstruction_errors
from partrain.inference.network import TrainedNetwork, users
from partrain.train.evaluate import CHUNK_NUMBERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.inputs.read import Sample

Columns = dict[str, "NDArray[Any] | list[str]"]
"""By name, (n,) or (n, k) each."""


@dataclass(frozen=True)
class Answers:
    """What a network says of n items."""

    network: TrainedNetwork
    columns: Columns

    @property
    def summary(self) -> str:
        return f"answers to {len(self.columns['item']):,} items"

    def encoded(self, suffix: str) -> bytes:
        """All as a file with this suffix: `.csv`, `.npz` or `.json`."""
        if suffix == ".npz":
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **{name: np.asarray(column) for name, column in self.columns.items()})
            return buffer.getvalue()
        return ((json.dumps(self.document()) if suffix == ".json" else self.text()) + "\n").encode()

    def document(self) -> dict[str, Any]:
        """All as one JSON document."""
        wide = {name: column.shape[1] for name, column in self.columns.items() if _is_wide(column)}
        named = {f"{name}_names": self._titles(name, width) for name, width in wide.items()}
        return named | {
            name: column.tolist() if isinstance(column, np.ndarray) else column for name, column in self.columns.items()
        }

    def text(self) -> str:
        """All as CSV."""
        titles: list[str] = []
        flat: list[list[Any]] = []
        for name, column in self.columns.items():
            if _is_wide(column):
                titles += self._titles(name, column.shape[1])
                flat += map(_cells, column.T)
            else:
                titles.append(name)
                flat.append(_cells(column) if isinstance(column, np.ndarray) else column)
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(titles)
        writer.writerows(zip(*flat, strict=True))
        return stream.getvalue().removesuffix("\n")

    def _titles(self, name: str, count: int) -> list[str]:
        """Names of the columns of an array (n, k)."""
        codec = Codec(self.network.codec)
        if name == "probability":
            return [f"probability_{codec.class_name(label)}" for label in range(count)]
        return codec.names(count) if name == "answer" else [f"{name}_{number}" for number in range(count)]


def predict(network: TrainedNetwork, sample: Sample, probabilities: bool = False, encode: bool = False) -> Answers:
    """What the network says of each item.

    Args:
        network: The network.
        sample: The items.
        probabilities: Of each class, besides the likeliest.
        encode: The codes of an autoencoder, instead of how far off it is.
    """
    if probabilities and network.kind != "classification":
        raise InputMissing(f"probabilities are of classes, and this network is for {network.kind}")
    columns: Columns = {"item": list(sample.names)}
    ask = _KINDS.get(network.kind, _numbers)
    told: Columns = {"code": _codes(network, sample.inputs)} if encode else ask(network, sample.inputs, probabilities)
    return Answers(network, columns | told)


def answers(network: TrainedNetwork, inputs: Tensor, ask: Callable[[Tensor], Any]) -> Tensor:
    """What `ask` gives for inputs (n, *shape), taken in parts: (n, ...)."""
    chunk = max(16, min(1024, CHUNK_NUMBERS // max(1, math.prod(inputs.shape[1:]))))
    parts = torch.split(inputs, chunk)
    with torch.no_grad(), users(network.loaded):
        found = [ask(part) for part in parts]
    for one, part in zip(found, parts, strict=True):
        if not isinstance(one, Tensor) or not one.dim() or len(one) != len(part):
            raise UserCodeFailed(
                f"the network answers {len(part)} items with {_kind(one)}, not with a tensor of {len(part)} rows"
            )
    return torch.cat(found)


def _classes(network: TrainedNetwork, inputs: Tensor, probabilities: bool) -> Columns:
    logits = answers(network, inputs, network.module)
    labels = logits.argmax(1)
    found: Columns = {"label": labels.numpy()}
    if names := Codec(network.codec).classes:
        found["class"] = [names[label] for label in labels.tolist()]
    return found | ({"probability": logits.softmax(1).numpy()} if probabilities else {})


def _numbers(network: TrainedNetwork, inputs: Tensor, _: bool) -> Columns:
    found = answers(network, inputs, network.module).flatten(1)
    return {"answer": Codec(network.codec).original(found).numpy()}


def _reconstructions(network: TrainedNetwork, inputs: Tensor, _: bool) -> Columns:
    return {"error": answers(network, inputs, lambda part: reconstruction_errors(network.module(part), part)).numpy()}


def _codes(network: TrainedNetwork, inputs: Tensor) -> NDArray[Any]:
    encode = getattr(network.module, "encode", None)
    if not callable(encode):
        raise InputMissing(f"`{network.loaded.job.model.name}` has no `encode`: only an autoencoder gives codes")
    codes: NDArray[Any] = answers(network, inputs, encode).flatten(1).numpy()
    return codes


def _tokens(network: TrainedNetwork, inputs: Tensor, _: bool) -> Columns:
    raise InputMissing("a network for language goes on with a text: give it --prompt TEXT instead of --input")


_KINDS: dict[str, Callable[[TrainedNetwork, Tensor, bool], Columns]] = {
    "classification": _classes,
    "autoencoder": _reconstructions,
    "language": _tokens,
}


def _is_wide(column: Any) -> TypeGuard[NDArray[Any]]:
    return isinstance(column, np.ndarray) and column.ndim > 1


def _cells(column: NDArray[Any]) -> list[Any]:
    """Numbers with as many digits as tell them apart in their own type."""
    return list(map(str, column)) if column.dtype.kind == "f" else column.tolist()


def _kind(answer: Any) -> str:
    return f"shape {tuple(answer.shape)}" if isinstance(answer, Tensor) else type(answer).__name__
