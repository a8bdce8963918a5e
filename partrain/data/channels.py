"""Standardization of images by channel: mean and deviation are kept in the codec and applied to batches, so bytes stay bytes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from partrain.data.base import DataSection, Dataset, Training, WrongSetting
from partrain.data.standardize import moments

if TYPE_CHECKING:
    from numpy.typing import NDArray


def with_channel_scale(section: DataSection, dataset: Dataset, training: Training) -> Dataset:
    """Add mean and deviation of each channel, of the training items or as the section gives them, to the codec.

    Raises WrongSetting if items are no images.
    """
    given = getattr(section, "mean", None)
    key = "mean" if given else "standardise"
    shape = dataset.item_shape
    if len(shape) != 3 or dataset.parts or dataset.vocabulary is not None:
        raise WrongSetting(key, f"`{key}` by channel is for images (channels, height, width), and items are {shape}", "remove it")
    if "mean" in dataset.codec:
        raise WrongSetting(key, f"`{key}`: the items of this file are standardised already", "remove it")
    if given:
        mean, std = list(given), list(getattr(section, "deviation"))  # noqa: B009
        if len(mean) != shape[0]:
            raise WrongSetting(key, f"`mean` has {len(mean)} numbers, and images have {shape[0]} channels", "give one for each")
    else:
        found = moments(dataset.inputs, _trained(dataset, training), "[dataset] standardise")
        mean, std = ((one * dataset.scale).tolist() for one in found)
    codec: dict[str, Any] = {**dataset.codec, "mean": mean, "std": std, "axis": 1, "by_batch": True, "learnt": not given}
    mark = hashlib.sha256((dataset.fingerprint + json.dumps(codec, sort_keys=True)).encode()).hexdigest()
    return replace(dataset, codec=codec, fingerprint=mark)


def _trained(dataset: Dataset, training: Training) -> NDArray[Any]:
    """Return the rows of the training items."""
    labels = dataset.item_targets if dataset.task == "classification" else None
    index = training(dataset.items, labels, dataset.gap)
    rows: NDArray[Any] = index if dataset.rows is None else dataset.rows[index]
    return rows
