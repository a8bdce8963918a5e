"""Items from a file, in the form the network was trained on: NPZ and NPY, IDX, CSV and Parquet, images, text.

A file that does not fit raises InputMissing (66), one line that names the position. Symbols: n items; shape of one item.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from partrain.data.arrays import idx
from partrain.data.base import check_finite
from partrain.data.fetch import require_regular
from partrain.data.images import SUFFIXES
from partrain.data.tables.files import TABLES
from partrain.data.tables.labels import encode_labels
from partrain.errors import InputMissing
from partrain.inference.codec import Codec
from partrain.inference.inputs.images import read_images
from partrain.inference.inputs.tables import read_table
from partrain.inference.inputs.text import read_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.network import TrainedNetwork

_STARTS = {b"PK\x03\x04": "npz", b"PK\x05\x06": "npz", b"\x93NUM": "npy", b"\x1f\x8b": "idx", b"\0\0": "idx"}


@dataclass(frozen=True)
class Sample:
    """Items for the network."""

    inputs: Tensor
    """(n, *shape) as the network takes them."""
    targets: Tensor | None
    """(n,) labels, (n, k) numbers or (n, length) tokens; None unless requested."""
    names: Sequence[str]
    """The name of each item."""


def read(network: TrainedNetwork, path: Path, targets: Path | None = None, labeled: bool = False) -> Sample:
    """Read the items of a file.

    Args:
        network: The network that will answer them.
        path: NPZ with an array `inputs`, NPY, IDX, CSV, an image, or a folder of images.
        targets: NPY or IDX file of the targets, if `path` has neither an array `targets` nor a target column.
        labeled: Read the targets too.
    """
    if not path.exists():
        raise InputMissing(f"no such file: {path}")
    kind = kind_of(require_regular(path), network.kind)
    names: Sequence[str] = []
    answers: NDArray[Any] | None
    wanted = labeled and targets is None and network.kind != "autoencoder"
    codec = Codec(network.codec)
    if kind == "images":
        inputs, answers, names = read_images(network, path, wanted)
        inputs = codec.standardize(inputs)
    elif kind == "table":
        inputs, answers = read_table(network, path, wanted)
    elif kind == "text":
        inputs, answers = read_text(network, path)
    else:
        inputs, answers = _arrays(path, kind)
        inputs = _scaled(network, _shaped(network, inputs, path), codec, path)
    fitted = torch.from_numpy(_fitted(network, _shaped(network, inputs, path), path))
    names = names or [str(number) for number in range(len(fitted))]
    if not labeled:
        return Sample(fitted, None, names)
    if targets is not None:
        answers = _arrays(targets, kind_of(require_regular(targets), network.kind))[0]
    return Sample(fitted, _targets(network, answers, fitted, targets or path), names)


def kind_of(path: Path, task: str) -> str:
    """Recognize the kind of a file by its first bytes, else by its suffix."""
    if path.is_dir() or path.suffix.lower() in SUFFIXES:
        return "images"
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise InputMissing(f"cannot read {path}: {error.strerror}") from None
    if path.name.lower().endswith(TABLES):
        return "table"
    for first, kind in _STARTS.items():
        if start.startswith(first):
            return kind
    if task == "language":
        return "text"
    raise InputMissing(f"{path}: is not an NPZ, NPY or IDX file, and its suffix is not one of CSV, Parquet or images")


def _arrays(path: Path, kind: str) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Read inputs, and targets if they are in the same file."""
    if kind == "idx":
        header = idx.read_header(path)
        array = np.empty(header.shape, np.dtype(header.dtype).newbyteorder("="))
        idx.read_into(path, header, array)
        return array, None
    if kind not in ("npz", "npy"):
        raise InputMissing(f"{path}: is not an NPZ, NPY or IDX file, which arrays come in")
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded, None
            if "inputs" not in loaded:
                raise InputMissing(f"{path}: has no array `inputs`; it has: {', '.join(loaded.files) or 'none'}")
            return loaded["inputs"], loaded.get("targets")
    except (OSError, ValueError, EOFError, KeyError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputMissing(f"{path}: cannot be read as {kind.upper()}: {reason}") from None


def _scaled(network: TrainedNetwork, inputs: NDArray[Any], codec: Codec, path: Path) -> NDArray[Any]:
    """Convert numbers as in training: scale bytes to [0, 1], and standardize if the data set was standardized."""
    if inputs.dtype.kind not in "fiub":
        raise InputMissing(f"{path}: holds {inputs.dtype}, not numbers")
    if network.record.vocabulary is not None:
        return inputs
    if inputs.dtype == np.uint8 and not (codec.is_table or codec.is_series):  # numbers of columns are never scaled
        inputs = inputs.astype(np.float32) * np.float32(1 / 255)
    return codec.standardize(inputs)


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
    classes = Codec(network.codec).classes or []
    labels = {name: label for label, name in enumerate(classes)}
    found: NDArray[Any] = np.array([labels.get(name, -1) for name in known])[numbers]
    if (found < 0).any():
        item = int(found.argmin())
        raise InputMissing(
            f"{path}: targets: item {item}: the class `{list(known)[numbers[item]][:60]}` is not one that was trained on"
        )
    return found


def _targets(network: TrainedNetwork, answers: NDArray[Any] | None, inputs: Tensor, path: Path) -> Tensor:
    """Convert targets to the form that the task compares answers with."""
    kind, facts = network.kind, network.record
    if kind == "autoencoder":
        return torch.zeros(len(inputs), 1)
    if answers is None:
        raise InputMissing(f"{path}: contains no targets; put an array `targets` into an NPZ file, or give --targets FILE")
    if answers.ndim == 0 or len(answers) != len(inputs):
        raise InputMissing(f"{path}: {len(answers) if answers.ndim else 1} targets for {len(inputs)} items")
    if kind in ("classification", "language"):
        if answers.size != (len(inputs) if kind == "classification" else inputs.numel()):
            wanted = "one label" if kind == "classification" else f"{inputs[0].numel()} tokens"
            raise InputMissing(f"{path}: targets are {answers.shape}, expected {wanted} for each of {len(inputs)} items")
        limit = facts.outputs
        if answers.dtype.kind in "US" and kind == "classification":
            answers = _labels(network, answers, path)
        elif answers.dtype.kind in "iu" and kind == "classification" and Codec(network.codec).renumbered:
            answers = _labels(network, answers.astype(str), path)
        if answers.dtype.kind not in "iu" or answers.min() < 0 or answers.max() >= limit:
            raise InputMissing(f"{path}: targets must be whole numbers from 0 to {limit - 1}")
        return torch.from_numpy(answers.astype(np.int64).reshape(len(answers), *((-1,) if kind == "language" else ())))
    if answers.dtype.kind not in "fiub":
        raise InputMissing(f"{path}: targets are {answers.dtype}; expected numbers")
    numbers = np.asarray(answers, np.float64).reshape(len(answers), -1)
    check_finite(numbers, str(path))
    if numbers.shape[1] != facts.outputs and kind != "user":
        raise InputMissing(f"{path}: {numbers.shape[1]} targets for each item, the network gives {facts.outputs}")
    return torch.from_numpy(Codec(network.codec).standardize_targets(numbers)).to(network.dtype)
