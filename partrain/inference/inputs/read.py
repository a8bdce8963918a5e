"""Items from a file, in the form the network was trained on: arrays, tables, series, images, text.

A file that does not fit raises InputMissing (66), one line that names the position. Symbols: n items; shape of one item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from partrain.data.arrays.mapped import is_mapped
from partrain.data.base import check_finite
from partrain.data.fetch import require_regular
from partrain.data.tables.labels import encode_labels, remap_labels
from partrain.errors import InputMissing
from partrain.inference.codec import Codec
from partrain.inference.inputs.arrays import read_arrays
from partrain.inference.inputs.images import read_images
from partrain.inference.inputs.kinds import STDIN, kind_of, stored_stdin
from partrain.inference.inputs.mapped import inputs_of, read_converted, targets_of
from partrain.inference.inputs.parts import read_rows
from partrain.inference.inputs.series import read_windows
from partrain.inference.inputs.tables import open_table, read_table
from partrain.inference.inputs.text import read_text
from partrain.tasks.kinds import USER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.network import TrainedNetwork


@dataclass(frozen=True)
class Sample:
    """Items for the network."""

    inputs: Tensor
    """(n, *shape) as the network takes them."""
    targets: Tensor | None
    """(n,) labels, (n, k) numbers or (n, length) tokens; None unless requested."""
    names: Sequence[str]
    """The name of each item."""
    columns: Mapping[str, list[Any]] = field(default_factory=dict)
    """Columns of the file that answers carry, (n,) cells each."""
    newest: Tensor | None = None
    """(n, number, targets): newest values of a series, if its codec needs them."""
    following: Mapping[str, list[str]] = field(default_factory=dict)
    """The time column of a series, and its stamps of the moments that are forecast."""
    skipped: Sequence[str] = ()
    """Fault of each row that was left out."""


def read(
    network: TrainedNetwork,
    path: Path,
    targets: Path | None = None,
    *,
    labeled: bool = False,
    id_column: str | None = None,
    with_input: bool = False,
    skip_bad: bool = False,
) -> Sample:
    """Read the items of a file.

    Args:
        network: The network that will answer them.
        path: A file or folder of any kind that jobs take, JSON lines, an image; `-` is the standard input.
        targets: NPY or IDX file of the targets, if `path` has neither an array of targets nor a target column.
        labeled: Read the targets too.
        id: A column of a table that answers carry.
        with_input: Answers carry all columns of a table.
        skip_bad: Leave out rows of a table that cannot be read, instead of raising InputMissing for the first.
    """
    if str(path) == "-":
        with stored_stdin(network.kind) as stored:
            try:
                found = read(
                    network, stored, targets, labeled=labeled, id_column=id_column, with_input=with_input, skip_bad=skip_bad
                )
            except InputMissing as fault:
                raise InputMissing(fault.message.replace(str(stored), STDIN)) from None
            return replace(found, skipped=[fault.replace(str(stored), STDIN) for fault in found.skipped])
    if not path.exists():
        raise InputMissing(f"no such file: {path}")
    if network.record.parts and not (path.is_file() and is_mapped(path)):
        return _several(network, require_regular(path), targets, labeled=labeled)
    kind = kind_of(require_regular(path), network.kind)
    codec = Codec(network.codec)
    if (id_column or with_input or skip_bad) and (kind != "table" or codec.is_series):
        option = "--id" if id_column else "--with-input" if with_input else "--skip-bad"
        what = "a series, whose rows are no items" if codec.is_series else "no table (CSV, Parquet or JSON lines)"
        raise InputMissing(f"{path}: {option} concerns the rows of a table, and this is {what}")
    if kind == "mapped":
        return _converted(network, path, targets, labeled=labeled)
    wanted = labeled and targets is None and bool(network.kind.targets)
    names: Sequence[str] = []
    answers: NDArray[Any] | None
    more: dict[str, Any] = {}
    if kind == "images":
        inputs, answers, names = read_images(network, path, labeled=wanted)
        inputs = codec.standardize(inputs)
    elif kind == "table" and codec.is_series:
        windows = read_windows(codec, open_table(network, path), labeled=wanted, reconstruct=not network.kind.targets)
        inputs, answers = windows.inputs, windows.targets
        if windows.newest is not None:
            more["newest"] = torch.from_numpy(np.ascontiguousarray(windows.newest))
        if windows.following:
            more["following"] = {codec.stored["time"]: windows.following}
    elif kind == "table":
        sheet = open_table(network, path)
        if id_column:
            sheet.require(id_column, "--id")
        items = read_table(
            network,
            sheet,
            labeled=wanted,
            carry=sheet.names if with_input else [id_column] if id_column else (),
            skip_bad=skip_bad,
        )
        inputs, answers, names = items.inputs, items.targets, list(map(str, items.rows))
        more |= {"columns": items.columns, "skipped": items.skipped}
    elif kind == "text":
        inputs, answers = read_text(network, path)
    elif codec.lags:
        raise InputMissing(
            f"{path}: this network forecasts differences of a series: give the series as a table, with its columns"
        )
    else:
        inputs, answers = read_arrays(network, path, kind, labeled=wanted)
        inputs = _scaled(network, _shaped(network, inputs, path), codec, path)
    fitted = torch.from_numpy(_fitted(network, _shaped(network, inputs, path), path))
    names = names or [str(number) for number in range(len(fitted))]
    if not labeled:
        return Sample(fitted, None, names, **more)
    if targets is not None:
        answers = read_arrays(network, targets, kind_of(require_regular(targets), network.kind), labeled=False)[0]
    return Sample(fitted, _targets(network, answers, fitted, targets or path), names, **more)


def _converted(network: TrainedNetwork, path: Path, targets: Path | None, *, labeled: bool) -> Sample:
    """Read the items to train on of a file that `partrain data convert` wrote."""
    dataset = read_converted(network, path)
    inputs = inputs_of(network, dataset)
    newest = None if dataset.newest is None else torch.from_numpy(np.array(dataset.newest))
    answers = None
    if labeled and (targets is not None or not network.kind.targets):
        given = None
        if targets is not None:
            given = read_arrays(network, targets, kind_of(require_regular(targets), network.kind), labeled=False)[0]
        answers = _targets(network, given, inputs, targets or path)
    elif labeled:
        answers = targets_of(network, dataset)
    return Sample(inputs, answers, [str(number) for number in range(len(inputs))], newest=newest)


def _several(network: TrainedNetwork, path: Path, targets: Path | None, *, labeled: bool) -> Sample:
    """Read items with several inputs, or of unequal length."""
    rows, answers = read_rows(network, path)
    names = [str(number) for number in range(len(rows))]
    if not labeled:
        return Sample(rows, None, names)
    if targets is not None:
        answers = read_arrays(network, targets, kind_of(require_regular(targets), network.kind), labeled=False)[0]
    if network.kind.targets == "tokens" and answers is not None:
        if len(answers) and answers.max() >= network.record.outputs:
            raise InputMissing(f"{path}: targets must be whole numbers from 0 to {network.record.outputs - 1}")
        return Sample(rows, torch.from_numpy(answers.astype(np.int64)), names)
    return Sample(rows, _targets(network, answers, rows, targets or path), names)


def _scaled(network: TrainedNetwork, inputs: NDArray[Any], codec: Codec, path: Path) -> NDArray[Any]:
    """Convert numbers as in training: scale bytes to [0, 1], and standardize if the data set was standardized."""
    if inputs.dtype.kind not in "fiub":
        raise InputMissing(f"{path}: holds {inputs.dtype}, not numbers")
    if network.record.vocabulary is not None:
        return inputs
    if inputs.dtype == np.uint8 and not (codec.is_table or codec.is_series):  # numbers of columns are never scaled
        inputs = inputs.astype(np.float32) * np.float32(1 / 255)
    scaled: NDArray[Any] = codec.standardize(inputs)
    return scaled


def _shaped(network: TrainedNetwork, inputs: NDArray[Any], path: Path) -> NDArray[Any]:
    """Reshape inputs to the shape that the network takes; axes of length 1 may differ."""
    shape = tuple(network.record.input)
    bare = tuple(size for size in shape if size != 1)
    if inputs.shape == shape or (inputs.ndim == len(bare) and inputs.shape == bare):
        inputs = inputs[np.newaxis]
    if not len(inputs.shape) or tuple(size for size in inputs.shape[1:] if size != 1) != bare:
        raise InputMissing(f"{path}: holds items of shape {inputs.shape[1:]}, the network takes {shape}")
    if not len(inputs):
        raise InputMissing(f"{path}: holds no items")
    return np.ascontiguousarray(inputs).reshape(len(inputs), *shape)


def _fitted(network: TrainedNetwork, inputs: NDArray[Any], path: Path) -> NDArray[Any]:
    """Convert inputs to the type of number that the network takes."""
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
    """Convert names of classes to labels (n,)."""
    known: dict[str, int] = {}
    numbers = encode_labels(names.reshape(-1), known, f"{path}: targets", 0)
    return remap_labels(numbers, known, Codec(network.codec).classes or [], f"{path}: targets")


def _targets(network: TrainedNetwork, answers: NDArray[Any] | None, inputs: Tensor, path: Path) -> Tensor:
    """Convert targets to the form that the task compares answers with."""
    kind, facts = network.kind, network.record
    if not kind.targets:
        return torch.zeros(len(inputs), 1)
    if answers is None:
        raise InputMissing(f"{path}: contains no targets; put an array `targets` into an NPZ file, or give --targets FILE")
    if answers.ndim == 0 or len(answers) != len(inputs):
        raise InputMissing(f"{path}: {len(answers) if answers.ndim else 1} targets for {len(inputs)} items")
    if kind.targets in ("labels", "tokens"):
        if answers.size != (len(inputs) if kind.one_class else inputs.numel()):
            wanted = "one label" if kind.one_class else f"{inputs[0].numel()} tokens"
            raise InputMissing(f"{path}: targets are {answers.shape}, expected {wanted} for each of {len(inputs)} items")
        limit = facts.outputs
        if answers.dtype.kind in "US" and kind.one_class:
            answers = _labels(network, answers, path)
        elif answers.dtype.kind in "iu" and kind.one_class and Codec(network.codec).renumbered:
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
    return torch.from_numpy(Codec(network.codec).standardize_targets(numbers)).to(network.dtype)
