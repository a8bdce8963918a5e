"""How items were made of what the data set's files say, as the checkpoint keeps it; and the way back.

`form` says what else there is: table (`inputs`, `targets`, `one_hot`), series (`columns`, `target`, `window`), images, text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partrain.data.standardize import broadcastable

Numbers = NDArray[np.float64]
Scale = tuple[Numbers, Numbers]
"""Mean and standard deviation of each column."""


@dataclass(frozen=True)
class Codec:
    """The codec of a data set's card."""

    stored: Mapping[str, Any]

    @property
    def is_table(self) -> bool:
        return self.stored.get("form") == "table"

    @property
    def is_series(self) -> bool:
        return self.stored.get("form") == "series"

    @property
    def resizes(self) -> bool:
        """Images of any size are items."""
        return self.stored.get("form") == "images"

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes, by label."""
        names = self.stored.get("classes")
        return None if names is None else [str(name) for name in names]

    @property
    def columns(self) -> list[str]:
        """Columns that a series is forecast from."""
        return list(self.stored.get("columns") or [])

    @property
    def targets(self) -> list[str]:
        """Columns that are to be told."""
        return list(self.stored.get("targets") or self.stored.get("target") or [])

    @cached_property
    def scale(self) -> Scale | None:
        """What inputs were standardised by."""
        return self._scale(self.columns, "mean", "std")

    @cached_property
    def target_scale(self) -> Scale | None:
        """What targets were standardised by."""
        return self._scale(self.targets, "target_mean", "target_std")

    def standardised(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Raw inputs (n, ..., columns) as the network was trained on them; what is missing (NaN) as the data set filled it in.

        Those of arrays may have their features along another axis: (n, channels, ...).
        """
        if self.scale is None:
            return inputs
        mean, std = (broadcastable(one, self.stored.get("axis", -1), inputs.ndim) for one in self.scale)
        if self.stored.get("missing") == "mean" and inputs.dtype.kind == "f":
            inputs = np.where(np.isnan(inputs), np.asarray(self.stored["fill"], np.float64), inputs)
        scaled: NDArray[Any] = (inputs.astype(np.float64) - mean) / std
        return scaled

    def standardised_targets(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Raw targets (n, k) as the network was trained on them: `original` is the way back."""
        if self.target_scale is None:
            return numbers
        mean, std = (np.tile(one, numbers.shape[1] // len(one)) for one in self.target_scale)
        scaled: NDArray[Any] = (numbers - mean) / std
        return scaled

    def original(self, numbers: Tensor) -> Tensor:
        """Answers or targets (n, k) in the units of the files; a forecast is moment after moment, all columns of each."""
        if self.target_scale is None:
            return numbers
        mean, std = (torch.from_numpy(one).repeat(numbers.shape[1] // len(one)) for one in self.target_scale)
        return numbers.double() * std + mean

    @property
    def knows_newest(self) -> bool:
        """Whether items hold the newest value of all that is to be forecast."""
        return self.is_series and set(self.targets) <= set(self.columns)

    def newest(self, inputs: Tensor, count: int) -> Tensor:
        """For windows (n, steps, columns): the newest values in the units of the files, for each of (n, count) answers."""
        last = inputs[:, -1, [self.columns.index(name) for name in self.targets]]
        return self.original(last.repeat(1, count // len(self.targets)))

    def names(self, count: int) -> list[str]:
        """Names of k answers that are numbers."""
        names = self.targets
        if count == len(names) and not self.is_series:
            return names
        if names and count % len(names) == 0:
            return [f"{name}+{step}" for step in range(1, count // len(names) + 1) for name in names]
        return ["answer"] if count == 1 else [f"answer_{number}" for number in range(count)]

    def class_name(self, label: int) -> str:
        return self.classes[label] if self.classes else str(label)

    def _scale(self, columns: Sequence[str], mean: str, std: str) -> Scale | None:
        """Tables have lists, by feature; series have both by column, the same for inputs and targets."""
        if self.is_series:
            by_column = (self.stored["mean"], self.stored["deviation"])
            return _pair(*([one[name] for name in columns] for one in by_column))
        return _pair(self.stored[mean], self.stored[std]) if mean in self.stored else None


def _pair(mean: Sequence[float], std: Sequence[float]) -> Scale:
    return np.asarray(mean, np.float64), np.asarray(std, np.float64)
