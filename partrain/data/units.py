"""The units of the numbers in a data set's files, where `standardise_target` or a series has scaled the targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Units = tuple[Sequence[float], Sequence[float]]
"""Mean and standard deviation of each target."""


def units_of(codec: Mapping[str, Any]) -> Units | None:
    """Return the units that a data set's codec stores; None if its targets are as in the files."""
    if codec.get("form") == "series":
        names = codec.get("target") or codec["columns"]
        return [codec["mean"][name] for name in names], [codec["deviation"][name] for name in names]
    return (codec["target_mean"], codec["target_std"]) if "target_mean" in codec else None


def restore_units(units: Units | None, numbers: Tensor) -> Tensor:
    """Convert answers or targets (n, k) to the units of the files. A forecast has all columns of one time step after another."""
    if units is None:
        return numbers
    mean, std = (numbers.new_tensor(one).repeat(numbers.shape[1] // len(one)) for one in units)
    return numbers * std + mean
