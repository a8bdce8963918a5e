"""Standardization of images by channel: mean and deviation are kept in the codec and applied to batches, so bytes stay bytes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from partrain.data.base import DataSection, Dataset, DatasetSpec, Training, WrongSetting
from partrain.number_format import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray


def check_channels(section: DataSection, spec: DatasetSpec) -> None:
    """Raise WrongSetting if items are not images, or if `mean` does not have a number for each channel."""
    own_scale, shape = getattr(section, "mean", None), spec.shape
    key = "mean" if own_scale else "standardise"
    if len(shape) != 3 or spec.parts or spec.tokens:
        raise WrongSetting(key, f"`{key}` by channel is for images (channels, height, width), and items are {shape}", "remove it")
    if own_scale and len(own_scale) != shape[0]:
        raise WrongSetting(
            key,
            f"`mean` has {len(own_scale)} {plural('number', len(own_scale))}, and images have {shape[0]} channels",
            "give one for each",
        )


def with_channel_scale(section: DataSection, dataset: Dataset, training: Training) -> Dataset:
    """Add mean and deviation of each channel to the codec: of the training items, or as the section gives them.

    Raises WrongSetting if items are not images, or are already standardised.
    """
    check_channels(section, dataset.spec)
    own_scale = getattr(section, "mean", None)
    key = "mean" if own_scale else "standardise"
    if "mean" in dataset.codec:
        raise WrongSetting(key, f"`{key}`: the items of this file are standardised already", "remove it")
    if own_scale:
        mean, std = list(own_scale), list(getattr(section, "deviation"))  # noqa: B009
    else:
        from partrain.data.standardize import moments

        scale = moments(dataset.inputs, _trained(dataset, training), "[dataset] standardise")
        mean, std = ((value * dataset.scale).tolist() for value in scale)
    codec: dict[str, Any] = {**dataset.codec, "mean": mean, "std": std, "axis": 1, "by_batch": True, "learnt": not own_scale}
    fingerprint = hashlib.sha256((dataset.fingerprint + json.dumps(codec, sort_keys=True)).encode()).hexdigest()
    return replace(dataset, codec=codec, fingerprint=fingerprint)


def _trained(dataset: Dataset, training: Training) -> NDArray[Any]:
    """Return the rows of the training items."""
    import numpy as np

    labels = dataset.item_targets if dataset.kind.one_class else None
    index = training(dataset.items, labels, dataset.gap)
    if dataset.held_out is not None:
        index = index[~np.isin(index, dataset.held_out)]
    rows: NDArray[Any] = index if dataset.rows is None else dataset.rows[index]
    return rows
