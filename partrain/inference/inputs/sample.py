"""Items in memory, in the form the network was trained on: arrays, and the rows of a table. Files are read earlier: see `read`.

Items that do not fit raise InputMissing (66) with one line that names `path` and the position. Symbols: n items; shape of one
item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from partrain.data.base import check_finite
from partrain.data.codec import Codec
from partrain.data.tables.labels import encode_labels, remap_labels
from partrain.errors import InputMissing
from partrain.inference.inputs.remarks import far_numbers
from partrain.preprocess.cells import Class
from partrain.tasks.kinds import USER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.data.tables.files import TableFile
    from partrain.inference.network import TrainedNetwork


@dataclass(frozen=True)
class Sample:
    """Items for the network."""

    inputs: Tensor
    """(n, *shape) in the network's form."""
    targets: Tensor | None
    """(n,) labels, (n, k) numbers or (n, length) tokens; None unless requested."""
    names: Sequence[str]
    """The name of each item."""
    columns: Mapping[str, list[Any]] = field(default_factory=dict)
    """Columns of the file to copy into the answers, (n,) cells each."""
    newest: Tensor | None = None
    """(n, number, targets): newest values of a series, if its codec needs them."""
    following: Mapping[str, list[Any]] = field(default_factory=dict)
    """The time column of a series, with the stamps of the forecast moments; before it the group column, with group names."""
    groups: Sequence[Class] = ()
    """The group name of each item, if requested."""
    skipped: Sequence[str] = ()
    """The fault of each row that was left out."""
    remarks: Sequence[str] = ()
    """Columns whose values are unlike those trained on, in words."""


@dataclass(frozen=True)
class Wanted:
    """The parts of a file that a command wants in addition to its items."""

    targets: bool = False
    """Also read the targets."""
    id_column: str | None = None
    """Column of a table to copy into the answers."""
    with_input: bool = False
    """Copy all columns of a table into the answers."""
    skip_bad: bool = False
    """Leave out rows of a table that cannot be read."""
    group: str | None = None
    """Column of a table that names the group of each item."""

    @property
    def option(self) -> str:
        """The option set here that concerns rows of a table; "" if there is none."""
        return "--id" if self.id_column else "--with-input" if self.with_input else "--skip-bad" if self.skip_bad else ""

    def carried(self, table: TableFile) -> Sequence[str]:
        """Return the columns of a table to copy into the answers."""
        if self.id_column:
            table.require(self.id_column, "--id")
        return table.names if self.with_input else [self.id_column] if self.id_column else []


def of_array(network: TrainedNetwork, raw: NDArray[Any], path: Path) -> Sample:
    """Return raw numbers (n, *shape) as items, converted as in training: bytes are scaled to [0, 1], numbers standardized.

    Whole numbers from 0 to 255 of any integer type count as bytes if the network was trained on bytes.
    """
    codec = network.codec
    if codec.lags:
        raise InputMissing(
            f"{path}: this network forecasts differences of a series: give the series as a table, with its columns"
        )
    raw = _shaped(network, raw, path)
    if raw.dtype.kind not in "fiub":
        raise InputMissing(f"{path}: holds {raw.dtype}, not numbers")
    if network.record.vocabulary is None:
        raw = codec.standardize(_scaled_bytes(network, codec, raw, path))
    sample = of_inputs(network, raw, path)
    if not codec.scaled.any():
        return sample
    far = np.moveaxis(raw, codec.stored.get("axis", -1), -1)[..., codec.scaled].reshape(len(raw), -1)
    return replace(sample, remarks=far_numbers(str(path), far, range(len(raw))))


def of_inputs(network: TrainedNetwork, inputs: NDArray[Any], path: Path, names: Sequence[str] = (), **more: Any) -> Sample:
    """Return converted inputs as items of the network's shape and type. `more`: other attributes of the sample."""
    fitted = torch.from_numpy(_fitted(network, _shaped(network, inputs, path), path))
    return Sample(fitted, None, names or list(map(str, range(len(fitted)))), **more)


def with_targets(network: TrainedNetwork, sample: Sample, answers: NDArray[Any] | None, path: Path) -> Sample:
    """Return items with their targets, in the form with which the task compares answers."""
    return replace(sample, targets=_targets(network, answers, sample.inputs, path))


def _shaped(network: TrainedNetwork, inputs: NDArray[Any], path: Path) -> NDArray[Any]:
    """Reshape inputs to the network's shape; axes of length 1 may differ."""
    shape = tuple(network.record.input)
    bare = tuple(size for size in shape if size != 1)
    if inputs.shape == shape or (inputs.ndim == len(bare) and inputs.shape == bare):
        inputs = inputs[np.newaxis]
    if not len(inputs.shape) or tuple(size for size in inputs.shape[1:] if size != 1) != bare:
        raise InputMissing(f"{path}: holds items of shape {inputs.shape[1:]}, the network takes {shape}")
    if not len(inputs):
        raise InputMissing(f"{path}: holds no items")
    return np.ascontiguousarray(inputs).reshape(len(inputs), *shape)


def _scaled_bytes(network: TrainedNetwork, codec: Codec, raw: NDArray[Any], path: Path) -> NDArray[Any]:
    """Scale bytes to [0, 1] for a network trained on bytes, and refuse numbers that may have another scale than in training."""
    if not network.record.of_bytes:
        if raw.dtype == np.uint8 and not (codec.is_table or codec.is_series):
            advice = "give them as float32, in the scale of training"
            raise InputMissing(f"{path}: holds bytes (uint8), and the network was not trained on bytes: {advice}")
        return raw
    whole = raw.dtype.kind in "iu"
    if not whole or raw.min() < 0 or raw.max() > 255:
        what = f"whole numbers from {raw.min()} to {raw.max()}" if whole else raw.dtype
        advice = "give whole numbers from 0 to 255, as uint8"
        raise InputMissing(f"{path}: holds {what}, and the network was trained on bytes: {advice}")
    scaled: NDArray[Any] = raw.astype(np.float32) * np.float32(1 / 255)
    return scaled


def _fitted(network: TrainedNetwork, inputs: NDArray[Any], path: Path) -> NDArray[Any]:
    """Convert inputs to the network's number type."""
    vocabulary = network.record.vocabulary
    if vocabulary is not None:
        if inputs.dtype.kind not in "iu" or inputs.min() < 0 or inputs.max() >= vocabulary:
            raise InputMissing(f"{path}: tokens must be whole numbers from 0 to {vocabulary - 1}")
        return inputs.astype(np.int64)
    with np.errstate(over="ignore"):
        inputs = inputs.astype({torch.float64: np.float64}.get(network.dtype, np.float32))
    check_finite(inputs, str(path))
    return inputs


def _labels(network: TrainedNetwork, names: NDArray[Any], path: Path) -> NDArray[Any]:
    """Convert class names to labels (n,)."""
    codes: dict[str, int] = {}
    numbers = encode_labels(names.reshape(-1), codes, f"{path}: targets", 0)
    return remap_labels(numbers, codes, network.codec.classes or [], f"{path}: targets")


def _targets(network: TrainedNetwork, answers: NDArray[Any] | None, inputs: Tensor, path: Path) -> Tensor:
    """Convert targets to the form with which the task compares answers."""
    kind, facts = network.kind, network.record
    if not kind.targets:
        return torch.zeros(len(inputs), 1)
    if answers is None:
        raise InputMissing(f"{path}: contains no targets; put an array `targets` into an NPZ file, or give --targets FILE")
    if answers.ndim == 0 or len(answers) != len(inputs):
        raise InputMissing(f"{path}: {len(answers) if answers.ndim else 1} targets for {len(inputs)} items")
    answers = answers.astype(np.int8) if answers.dtype.kind == "b" else answers
    if kind.targets == "tokens" and facts.parts:
        if len(answers) and answers.max() >= facts.outputs:
            raise InputMissing(f"{path}: targets must be whole numbers from 0 to {facts.outputs - 1}")
        return torch.from_numpy(answers.astype(np.int64))
    if kind.targets in ("labels", "tokens"):
        if answers.size != (len(inputs) if kind.one_class else inputs.numel()):
            wanted = "one label" if kind.one_class else f"{inputs[0].numel()} tokens"
            raise InputMissing(f"{path}: targets are {answers.shape}, expected {wanted} for each of {len(inputs)} items")
        limit = facts.outputs
        if answers.dtype.kind in "US" and kind.one_class:
            answers = _labels(network, answers, path)
        elif answers.dtype.kind in "iu" and kind.one_class and network.codec.renumbered:
            answers = _labels(network, answers.astype(str), path)
        if answers.dtype.kind not in "iu" or answers.min() < 0 or answers.max() >= limit:
            raise InputMissing(f"{path}: targets must be whole numbers from 0 to {limit - 1}")
        return torch.from_numpy(answers.astype(np.int64).reshape(len(answers), *((-1,) if kind.targets == "tokens" else ())))
    if kind.targets == "label maps":
        if answers.dtype.kind not in "iu" or answers.shape != (len(inputs), *inputs.shape[-2:]):
            maps = "label maps of whole numbers, one for each pixel"
            raise InputMissing(f"{path}: targets are {answers.dtype} {answers.shape}; expected {maps}")
        return torch.from_numpy(answers.astype(np.int64))
    if answers.dtype.kind not in "fiub":
        raise InputMissing(f"{path}: targets are {answers.dtype}; expected numbers")
    numbers = np.asarray(answers, np.float64).reshape(len(answers), -1)
    check_finite(numbers, str(path))
    if numbers.shape[1] != facts.outputs and kind is not USER:
        raise InputMissing(f"{path}: {numbers.shape[1]} targets for each item, the network gives {facts.outputs}")
    return torch.from_numpy(network.codec.standardize_targets(numbers)).to(network.dtype)
