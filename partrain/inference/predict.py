"""`partrain predict --input`: answers to the items of a file, as columns of CSV, NPZ or JSON.

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
from partrain.inference.network import TrainedNetwork, blame_user_code
from partrain.training.evaluate import CHUNK_NUMBERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.inputs.read import Sample

Columns = dict[str, "NDArray[Any] | list[str]"]
"""Columns by name, each (n,) or (n, k)."""


@dataclass(frozen=True)
class Answers:
    """A network's answers to n items."""

    network: TrainedNetwork
    columns: Columns

    @property
    def summary(self) -> str:
        return f"answers to {len(self.columns['item']):,} items"

    def encode(self, suffix: str) -> bytes:
        """Encode all columns as a file with this suffix: `.csv`, `.npz` or `.json`."""
        if suffix == ".npz":
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **{name: np.asarray(column) for name, column in self.columns.items()})
            return buffer.getvalue()
        return ((json.dumps(self.document()) if suffix == ".json" else self.text()) + "\n").encode()

    def document(self) -> dict[str, Any]:
        """Return all columns as one JSON document."""
        wide = {name: column.shape[1] for name, column in self.columns.items() if _is_wide(column)}
        named = {f"{name}_names": self._titles(name, width) for name, width in wide.items()}
        return named | {
            name: column.tolist() if isinstance(column, np.ndarray) else column for name, column in self.columns.items()
        }

    def text(self) -> str:
        """Return all columns as CSV."""
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
        """Return the names of the k columns of an array (n, k)."""
        codec = Codec(self.network.codec)
        if name == "probability":
            return [f"probability_{codec.class_name(label)}" for label in range(count)]
        return codec.names(count) if name == "answer" else [f"{name}_{number}" for number in range(count)]


def predict(network: TrainedNetwork, sample: Sample, probabilities: bool = False, encode: bool = False) -> Answers:
    """Compute a network's answer to each item.

    Args:
        network: The network.
        sample: The items.
        probabilities: Also return the probability of each class.
        encode: Return the codes of an autoencoder instead of its reconstruction errors.
    """
    if probabilities and network.kind != "classification":
        raise InputMissing(f"only a classification network has probabilities, and this one is for {network.kind}")
    columns: Columns = {"item": list(sample.names)}
    answer = _KINDS.get(network.kind, _numbers)
    found: Columns = {"code": _codes(network, sample.inputs)} if encode else answer(network, sample.inputs, probabilities)
    return Answers(network, columns | found)


def compute_answers(network: TrainedNetwork, inputs: Tensor, compute: Callable[[Tensor], Any]) -> Tensor:
    """Apply `compute` to inputs (n, *shape) in parts, and return its answers (n, ...)."""
    chunk = max(16, min(1024, CHUNK_NUMBERS // max(1, math.prod(inputs.shape[1:]))))
    parts = torch.split(inputs, chunk)
    with torch.no_grad(), blame_user_code(network.loaded):
        found = [compute(part) for part in parts]
    for one, part in zip(found, parts, strict=True):
        if not isinstance(one, Tensor) or not one.dim() or len(one) != len(part):
            raise UserCodeFailed(
                f"the network answers {len(part)} items with {_describe(one)}, not with a tensor of {len(part)} rows"
            )
    return torch.cat(found)


def _classes(network: TrainedNetwork, inputs: Tensor, probabilities: bool) -> Columns:
    logits = compute_answers(network, inputs, network.module)
    labels = logits.argmax(1)
    found: Columns = {"label": labels.numpy()}
    if names := Codec(network.codec).classes:
        found["class"] = [names[label] for label in labels.tolist()]
    return found | ({"probability": logits.softmax(1).numpy()} if probabilities else {})


def _numbers(network: TrainedNetwork, inputs: Tensor, _: bool) -> Columns:
    found = compute_answers(network, inputs, network.module).flatten(1)
    return {"answer": Codec(network.codec).restore_units(found).numpy()}


def _reconstructions(network: TrainedNetwork, inputs: Tensor, _: bool) -> Columns:
    return {"error": compute_answers(network, inputs, lambda part: reconstruction_errors(network.module(part), part)).numpy()}


def _codes(network: TrainedNetwork, inputs: Tensor) -> NDArray[Any]:
    encode = getattr(network.module, "encode", None)
    if not callable(encode):
        raise InputMissing(f"`{network.loaded.job.model.name}` has no `encode`: only an autoencoder has codes")
    codes: NDArray[Any] = compute_answers(network, inputs, encode).flatten(1).numpy()
    return codes


def _tokens(network: TrainedNetwork, inputs: Tensor, _: bool) -> Columns:
    raise InputMissing("a language network continues a text: give --prompt TEXT instead of --input")


_KINDS: dict[str, Callable[[TrainedNetwork, Tensor, bool], Columns]] = {
    "classification": _classes,
    "autoencoder": _reconstructions,
    "language": _tokens,
}


def _is_wide(column: Any) -> TypeGuard[NDArray[Any]]:
    return isinstance(column, np.ndarray) and column.ndim > 1


def _cells(column: NDArray[Any]) -> list[Any]:
    """Format numbers with as many digits as distinguish them in their own type."""
    return list(map(str, column)) if column.dtype.kind == "f" else column.tolist()


def _describe(answer: Any) -> str:
    return f"shape {tuple(answer.shape)}" if isinstance(answer, Tensor) else type(answer).__name__
