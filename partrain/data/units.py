"""The units of the numbers in a data set's files, where `standardise_target` or a series has scaled or differenced the targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from partrain.data.tables.differences import integrate

if TYPE_CHECKING:
    from torch import Tensor

Units = tuple[Sequence[float], Sequence[float]]
"""Mean and standard deviation of each target."""


def targets_of(codec: Mapping[str, Any]) -> list[str]:
    """Return the target columns of a table or series."""
    return list(codec.get("targets") or codec.get("target") or [])


def units_of(codec: Mapping[str, Any]) -> Units | None:
    """Return the units that a data set's codec stores; None if its targets are as in the files."""
    if codec.get("form") == "series":
        return [codec["mean"][name] for name in targets_of(codec)], [codec["deviation"][name] for name in targets_of(codec)]
    return (codec["target_mean"], codec["target_std"]) if "target_mean" in codec else None


def restore_units(codec: Mapping[str, Any], numbers: Tensor, newest: Tensor | None = None) -> Tensor:
    """Convert answers or targets (n, k) to the units of the files. A forecast has all columns of one time step after another.

    `newest`, (n, number, columns), are the values that differences continue; they are needed where the series has been differenced.
    """
    if units := units_of(codec):
        numbers = numbers.double()
        mean, std = (numbers.new_tensor(column).repeat(numbers.shape[1] // len(column)) for column in units)
        numbers = numbers * std + mean
    if not (lags := codec.get("difference")):
        return numbers
    if newest is None:
        raise ValueError("differences without the values that they continue")
    return integrate(numbers.double().reshape(numbers.shape[0], -1, len(targets_of(codec))), newest, lags).flatten(1)
