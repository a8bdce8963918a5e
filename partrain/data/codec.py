"""The conversion of a data set's files into items, as the checkpoint stores it; and its inverse.

The key `form` decides which other keys exist: table (`inputs`, `targets`, `one_hot`), series (`columns`, `target`, `window`),
images, text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from partrain.data.standardize import broadcastable
from partrain.data.tables.differences import integrate
from partrain.preprocess.column import double

if TYPE_CHECKING:
    from torch import Tensor

Numbers = NDArray[np.float64]
Scale = tuple[Numbers, Numbers]
"""Mean and standard deviation of each column."""


@dataclass(frozen=True)
class Codec:
    """The codec of a `DatasetInfo`."""

    stored: Mapping[str, Any]

    @property
    def is_table(self) -> bool:
        return self.stored.get("form") == "table"

    @property
    def is_series(self) -> bool:
        return self.stored.get("form") == "series"

    @property
    def is_documents(self) -> bool:
        return self.stored.get("form") == "documents"

    @property
    def resizes(self) -> bool:
        """True if images of any size are resized to items."""
        return self.stored.get("form") == "images"

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes by label; None if classes have no names."""
        names = self.stored.get("classes")
        return None if names is None else [str(name) for name in names]

    @property
    def renumbered(self) -> bool:
        """True if `[dataset] classes` selected classes by number: whole numbers in files are then class numbers, not labels."""
        return bool(self.stored.get("renumbered"))

    @property
    def columns(self) -> list[str]:
        """Input columns of a series."""
        return list(self.stored.get("columns") or [])

    @property
    def targets(self) -> list[str]:
        """Target columns of a table or series."""
        return list(self.stored.get("targets") or self.stored.get("target") or [])

    @cached_property
    def scale(self) -> Scale | None:
        """Mean and deviation that standardized the inputs; None if they were not standardized."""
        return self._scale(self.columns, "mean", "std")

    @property
    def scaled(self) -> NDArray[np.bool_]:
        """Mask (k,) of the input columns that were standardized, if any."""
        mean, std = self.scale or (np.zeros(0), np.ones(0))
        scaled: NDArray[np.bool_] = (mean != 0) | (std != 1)
        return scaled

    @cached_property
    def target_scale(self) -> Scale | None:
        """Mean and deviation that standardized the targets; None if they were not standardized."""
        return self._scale(self.targets, "target_mean", "target_std")

    def _scale(self, columns: Sequence[str], *keys: str) -> Scale | None:
        if self.is_series:
            mean, std = ([self.stored[key][name] for name in columns] for key in ("mean", "deviation"))
        elif keys[0] in self.stored:
            mean, std = (self.stored[key] for key in keys)
        else:
            return None
        return np.asarray(mean, np.float64), np.asarray(std, np.float64)

    def standardize(self, inputs: Any, xp: Any = np) -> Any:
        """Standardize raw inputs (n, ..., columns) as in training. Missing values (NaN) are filled in as the data set did.

        Inputs from array files may have their features along another axis: (n, channels, ...). `xp`: numpy, or torch in a graph.
        """
        if self.scale is None:
            return inputs
        axis, inputs = self.stored.get("axis", -1), double(inputs)
        mean, std = (xp.asarray(broadcastable(value, axis, inputs.ndim), dtype=xp.float64) for value in self.scale)
        if self.is_table and self.stored["missing"] not in ("error", "drop"):
            inputs = xp.where(xp.isnan(inputs), xp.asarray(self.stored["fill"], dtype=xp.float64), inputs)
        return (inputs - mean) / std

    @cached_property
    def target_log(self) -> Numbers | None:
        """Medians (k,) by which targets were divided before asinh; None without `target_transform`."""
        medians = self.stored.get("target_log")
        return None if medians is None else np.asarray(medians, np.float64)

    def standardize_targets(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Standardize raw targets (n, k) as in training. `restore_units` is the inverse."""
        if self.target_scale is None:
            return numbers
        mean, std = (np.tile(value, numbers.shape[1] // len(value)) for value in self.target_scale)
        numbers = numbers if self.target_log is None else np.arcsinh(numbers / self.target_log)
        scaled: NDArray[Any] = (numbers - mean) / std
        return scaled

    def restore_units(self, numbers: Tensor, newest: Tensor | None = None) -> Tensor:
        """Convert answers or targets (n, k) to the units of the files. A forecast has all columns of one time step after another.

        `newest`, (n, number, columns), holds the values that differences continue; needed if the series was differenced.
        """
        if self.target_scale:
            numbers = numbers.double()
            mean, std = (numbers.new_tensor(column).repeat(numbers.shape[1] // len(column)) for column in self.target_scale)
            numbers = numbers * std + mean
        if self.target_log is not None:  # sinh, which ONNX Runtime has in single precision alone
            numbers = (numbers.exp() - (-numbers).exp()) / 2 * numbers.new_tensor(self.target_log)
        if not self.lags:
            return numbers
        if newest is None:
            raise ValueError("differences without the values that they continue")
        return integrate(numbers.double().reshape(numbers.shape[0], -1, len(self.targets)), newest, self.lags).flatten(1)

    @property
    def lags(self) -> list[int]:
        """Lags at which a series was differenced."""
        return list(self.stored.get("difference") or [])

    @property
    def season(self) -> int | None:
        """Number of moments in a season of a series, if the job gave it."""
        return self.stored.get("season")

    @property
    def newest_count(self) -> int:
        """Number of newest values from which forecasts of a series are restored, or with which they are compared."""
        return max(sum(self.lags), self.season or 0)

    @property
    def has_newest_values(self) -> bool:
        """True if windows end in the newest value of every forecast column, in scaled units."""
        return self.is_series and not self.lags and set(self.targets) <= set(self.columns)

    def newest(self, inputs: Tensor) -> Tensor:
        """Return the newest values (n, 1, targets) of windows (n, steps, columns), in the units of the files."""
        last = inputs[:, -1, [self.columns.index(name) for name in self.targets]]
        return self.restore_units(last.double()).unsqueeze(1)

    def names(self, count: int) -> list[str]:
        """Return the names of `count` numeric answers."""
        names = self.targets
        if count == len(names) and not self.is_series:
            return names
        if names and count % len(names) == 0:
            return [f"{name}+{step}" for step in range(1, count // len(names) + 1) for name in names]
        return ["answer"] if count == 1 else [f"answer_{number}" for number in range(count)]

    def class_name(self, label: int) -> str:
        """Return the name of a class; its number if it has no name: a network may give more logits than there are classes."""
        return self.classes[label] if self.classes and label < len(self.classes) else str(label)
