"""`partrain predict --input`: answers to the items of a file, as columns of CSV, NPZ or JSON.

Symbols: n items; C classes; k numbers.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from partrain.errors import InputMissing, UserCodeFailed
from partrain.inference.network import TrainedNetwork, blame_user_code
from partrain.number_format import plural
from partrain.tasks.kinds import answered
from partrain.training.evaluate import items_at_a_time

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.inputs.sample import Sample

FEW_PRODUCTS = 1 << 25
"""Multiplications in a part of the items below which one thread is faster than several, which wait for one another."""
Columns = dict[str, "NDArray[Any] | list[Any]"]
"""Columns by name, each (n,) or (n, k)."""


@dataclass(frozen=True)
class Answers:
    """A network's answers to n items."""

    network: TrainedNetwork
    columns: Columns

    @property
    def summary(self) -> str:
        return f"answers to {len(next(iter(self.columns.values()))):,} items"

    @property
    def titles(self) -> list[str]:
        """Names of the columns in a CSV file."""
        columns = self.columns.items()
        return [
            title for name, column in columns for title in (self._titles(name, column.shape[1]) if _is_wide(column) else [name])
        ]

    def encode(self, suffix: str) -> bytes:
        """Encode all columns as a file with this suffix: `.csv`, `.npz` or `.json`."""
        if suffix == ".npz":
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **{name: _array(column) for name, column in self.columns.items()})
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
        if maps := [name for name, column in self.columns.items() if isinstance(column, np.ndarray) and column.ndim > 2]:
            raise InputMissing(f"`{maps[0]}` has a value for each pixel, which CSV cannot hold: give --output FILE.npz")
        flat: list[Sequence[Any]] = []
        for column in self.columns.values():
            if _is_wide(column):
                flat += map(_cells, column.T)
            else:
                flat.append(_cells(column) if isinstance(column, np.ndarray) else _harmless_cells(column))
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(map(_harmless, self.titles))
        writer.writerows(zip(*flat, strict=True))
        return stream.getvalue().removesuffix("\n")

    def _titles(self, name: str, count: int) -> list[str]:
        """Return the names of the k columns of an array (n, k)."""
        codec = self.network.codec
        if self.network.kind.zero_one:
            return [f"{name}_{label}" for label in codec.names(count)]
        if name == "probability":
            return [f"probability_{codec.class_name(label)}" for label in range(count)]
        return codec.names(count) if name == "answer" else [f"{name}_{number}" for number in range(count)]


def _harmless_cells(column: Sequence[Any]) -> Sequence[Any]:
    """Apply `_harmless` to each text of a column."""
    texts = {cell for cell in column if isinstance(cell, str)}
    changed = {text: harmless for text in texts if (harmless := _harmless(text)) != text}
    return [changed.get(cell, cell) if isinstance(cell, str) else cell for cell in column] if changed else column


def _harmless(cell: Any) -> Any:
    """Put `'` before a text that a spreadsheet would run as a formula. A numeric text stays unchanged."""
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def predict(
    network: TrainedNetwork, sample: Sample, *, probabilities: bool = False, encode: bool = False, top: int = 0
) -> Answers:
    """Compute a network's answer to each item.

    Args:
        network: The network.
        sample: The items.
        probabilities: Also return the probability of each class.
        encode: Return the codes of an autoencoder instead of its reconstruction errors.
        top: Also return this number of likeliest classes, with their probabilities.
    """
    if top and not network.kind.one_class:
        raise InputMissing(f"only a classification network has likeliest classes, and this one is for {network.kind}")
    if probabilities and not network.kind.has_probabilities:
        raise InputMissing(f"only a classification network has probabilities, and this one is for {network.kind}")
    columns: Columns = {"code": _codes(network, sample)} if encode else _answers(network, sample, probabilities=probabilities)
    if top:
        columns |= _likeliest(network, sample, top)
    if sample.following and "answer" in columns:
        return Answers(network, _by_moment(network, sample, columns))
    if not sample.columns:
        return Answers(network, {"item": list(sample.names), **columns})
    taken = {*columns, *Answers(network, columns).titles}
    carried: Columns = {}
    for name, cells in sample.columns.items():
        free = name
        while free in taken or (free != name and free in sample.columns):
            free = f"input_{free}"
        carried[free] = [cell if isinstance(cell, str | int | float | None) else str(cell) for cell in cells]
    return Answers(network, carried | columns)


def _by_moment(network: TrainedNetwork, sample: Sample, answers: Columns) -> Columns:
    """Return the forecast of each window with a row for each moment: its time stamp, and a column for each target."""
    targets = network.codec.targets
    numbers = np.asarray(answers["answer"]).reshape(-1, len(targets))
    columns: Columns = dict(sample.following)
    return columns | {f"forecast_{name}" if name in columns else name: numbers[:, at] for at, name in enumerate(targets)}


def _likeliest(network: TrainedNetwork, sample: Sample, top: int) -> Columns:
    """Return the likeliest classes, first to last, each with its probability."""
    codec, classes = network.codec, network.record.outputs
    if top > classes:
        raise InputMissing(f"--top {top}: the network has {classes} classes")
    logits = compute_answers(network, sample.inputs, network.answer)[:, :classes]
    likeliest = network.kind.probabilities(network.task, logits).topk(top)
    columns: Columns = {}
    for place in range(top):
        columns[f"top_{place + 1}"] = [codec.class_name(label) for label in likeliest.indices[:, place].tolist()]
        columns[f"top_{place + 1}_probability"] = likeliest.values[:, place].numpy()
    return columns


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Let torch use this number of threads within the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def compute_answers(network: TrainedNetwork, inputs: Tensor, compute: Callable[[Tensor], Any]) -> Tensor:
    """Apply `compute` to inputs (n, *shape) in parts, and return its answers (n, ...)."""
    parts = torch.split(inputs, items_at_a_time(inputs))
    products = len(parts[0]) * sum(parameter.numel() for parameter in network.module.parameters()) if parts else 0
    with torch.no_grad(), blame_user_code(network.loaded), _threads(1 if products < FEW_PRODUCTS else torch.get_num_threads()):
        answers = [compute(network.batch(part)) for part in parts]
    for answer, part in zip(answers, parts, strict=True):
        if not isinstance(answer, Tensor) or not answer.dim() or len(answer) != len(part):
            raise UserCodeFailed(
                f"the network answers {len(part)} items with {_describe(answer)}, not with a tensor of {len(part)} rows"
            )
    return torch.cat(answers)


def _answers(network: TrainedNetwork, sample: Sample, *, probabilities: bool) -> Columns:
    """Compute the columns of the kind of task, and the names of the classes."""
    kind, task, codec = network.kind, network.task, network.codec
    if kind.targets == "tokens":
        raise InputMissing("a language network continues a text: give --prompt TEXT instead of --input")
    answer = network.answer
    reduced = compute_answers(
        network, sample.inputs, lambda part: kind.reduce(task, answer(part), part, probabilities=probabilities)
    )
    columns = kind.columns(task, reduced, sample.newest, codec.restore_units, probabilities=probabilities)
    _check_answered(sample, columns)
    named: Columns = {}
    for name, column in columns.items():
        named[name] = (column.byte() if name == "label" and kind.head == "pixels" else column).numpy()
        if name == "label" and kind.one_class and codec.classes:
            labels = column.tolist()
            names = {label: codec.class_name(label) for label in set(labels)}
            named["class"] = list(map(names.__getitem__, labels))
    return named


def _codes(network: TrainedNetwork, sample: Sample) -> NDArray[Any]:
    encode = getattr(network.module, "encode", None)
    if not callable(encode):
        raise InputMissing(f"`{network.loaded.job.model.name}` has no `encode`: only an autoencoder has codes")
    codes = compute_answers(network, sample.inputs, encode).flatten(1)
    _check_answered(sample, {"code": codes})
    array: NDArray[Any] = codes.numpy()
    return array


def _check_answered(sample: Sample, columns: Mapping[str, Tensor]) -> None:
    """Raise InputMissing for items without an answer. An exported graph gives them NaN and the label -1."""
    lacking = (~answered(columns)).nonzero().flatten().tolist()
    if lacking:
        what = f"the network's answers to {len(lacking):,} {plural('item', len(lacking))} are not finite"
        why = "its numbers are too far from those trained on, or training diverged"
        raise InputMissing(f"{what}; the first: item {sample.names[lacking[0]]}: {why}")


def _is_wide(column: Any) -> TypeGuard[NDArray[Any]]:
    return isinstance(column, np.ndarray) and column.ndim > 1


def _array(column: NDArray[Any] | list[Any]) -> NDArray[Any]:
    """Return a column as an array; cells of several types become texts."""
    array = np.asarray(column)
    return array if array.dtype.kind != "O" else np.array(["" if cell is None else str(cell) for cell in column])


def _cells(column: NDArray[Any]) -> list[Any]:
    """Format numbers with enough digits to distinguish them in their type."""
    return list(map(str, column)) if column.dtype.kind == "f" else column.tolist()


def _describe(answer: Any) -> str:
    return f"shape {tuple(answer.shape)}" if isinstance(answer, Tensor) else type(answer).__name__
