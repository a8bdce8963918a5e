"""Items of a file written by `partrain data convert`, as training saw them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from partrain.data.arrays import mapped
from partrain.errors import InputMissing
from partrain.inference.inputs.sample import Sample, Wanted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.data import Dataset
    from partrain.inference.network import TrainedNetwork


def read_items(network: TrainedNetwork, path: Path, kind: str, wanted: Wanted) -> tuple[Sample, NDArray[Any] | None]:
    """Read converted items; see `DataForm.items`. Targets have the form with which the task compares answers."""
    dataset = read_converted(network, path)
    newest = None if dataset.newest is None else torch.from_numpy(np.array(dataset.newest))
    inputs = inputs_of(network, dataset)
    targets = targets_of(network, dataset) if wanted.targets else None
    return Sample(inputs, targets, list(map(str, range(len(inputs)))), newest=newest), None


def read_converted(network: TrainedNetwork, path: Path) -> Dataset:
    """Map the file. Raises InputMissing if its items differ in kind from those that the network was trained on."""
    dataset = mapped.read(path).open(memoryview(b""))
    if _text(dataset.codec) != _text(network.codec.stored):
        what = "its items were made with other means, classes or columns than those the network was trained on"
        raise InputMissing(f"{path}: {what}; give the file that they were converted from")
    expected = tuple(network.record.input)
    if dataset.item_shape != expected or tuple(dataset.parts) != tuple(network.record.parts):
        raise InputMissing(f"{path}: holds items of shape {dataset.item_shape}, the network takes {expected}")
    if dataset.outputs != network.record.outputs and network.kind.targets:
        raise InputMissing(f"{path}: its targets have {dataset.outputs} classes or numbers, the network {network.record.outputs}")
    return dataset


def inputs_of(network: TrainedNetwork, dataset: Dataset) -> torch.Tensor:
    """Return the inputs (n, ...) in the network's form."""
    if dataset.parts or dataset.vocabulary is not None:
        return torch.from_numpy(np.array(dataset.inputs))
    numbers = dataset.inputs * np.float32(dataset.scale) if dataset.scale != 1 else dataset.inputs
    if dataset.channel_scale:  # which batches are standardised by, not the items
        numbers = network.codec.standardize(numbers)
    return torch.from_numpy(np.array(numbers)).to(network.dtype)


def targets_of(network: TrainedNetwork, dataset: Dataset) -> torch.Tensor:
    """Return the targets in the form with which the task compares answers."""
    targets = torch.from_numpy(np.array(dataset.targets))
    return targets.to(network.dtype) if targets.is_floating_point() else targets.long()


def _text(codec: Any) -> str:
    return json.dumps(dict(codec), sort_keys=True)
