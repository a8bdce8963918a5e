"""The `[dataset]` table of generated items, and their spec, derived from the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from partrain.data.base import DataSection, DatasetSpec
from partrain.tasks.kinds import CLASSIFICATION, FORECAST, REGRESSION


class Synthetic(DataSection):
    """Generated items, for demonstrations and tests."""

    kind: Literal["synthetic"]
    function: Literal["sine", "seeds", "blobs", "xor", "spirals", "moons", "checkerboard", "waves", "mnist-1d"]
    """Kind of items. Regressions: `sine` (y = sin(x) on [-pi, pi]) and `seeds` (the function on which older trainers were
    measured). Classes: `blobs` (Gaussian clouds), `xor` (noisy XOR of two bits), `spirals`, `moons` and `checkerboard` (in the
    plane), `mnist-1d` (ten signals, moved, sheared and noisy). Forecasts: `waves` (windows of sine waves)."""
    items: int = Field(5000, ge=2, le=10**8)
    """Number of training items, held-out ones included."""
    test_items: int = Field(0, ge=0, le=10**8)
    """Number of further items to test on."""
    features: int = Field(2, ge=1, le=10**5)
    """`blobs`: inputs of each item."""
    classes: int = Field(3, ge=2, le=10**4)
    """`blobs`: number of classes. `spirals`: number of arms, each a class."""
    noise: float = Field(0.1, ge=0)
    """Standard deviation of the noise. Not for `seeds`, `checkerboard` and `mnist-1d`."""
    window: int = Field(20, ge=1, le=10**5)
    """`waves`: numbers per item."""
    steps: int = Field(1, ge=1, le=10**4)
    """`waves`: numbers to forecast after the item."""

    @model_validator(mode="after")
    def _only_what_counts(self) -> Synthetic:
        used = {
            "blobs": {"features", "classes", "noise"},
            "spirals": {"classes", "noise"},
            "waves": {"window", "steps", "noise"},
        }
        silent = ("seeds", "checkerboard", "mnist-1d")
        taken = used.get(self.function, set() if self.function in silent else {"noise"})
        idle = [key for key in ("features", "classes", "noise", "window", "steps") if key not in taken]
        if useless := [key for key in idle if key in self.model_fields_set]:
            raise ValueError(f'{" and ".join(useless)} would have no effect: function = "{self.function}" has no such setting')
        return self


def read_spec(section: Synthetic, folder: Path) -> DatasetSpec:
    """Derive the spec from the settings; see `data.read_spec`."""
    items, tests = section.items, section.test_items
    match section.function:
        case "blobs":
            return DatasetSpec(items, tests, (section.features,), CLASSIFICATION, section.classes)
        case "xor" | "moons" | "checkerboard":
            return DatasetSpec(items, tests, (2,), CLASSIFICATION, 2)
        case "spirals":
            return DatasetSpec(items, tests, (2,), CLASSIFICATION, section.classes)
        case "mnist-1d":
            return DatasetSpec(items, tests, (40,), CLASSIFICATION, 10)
        case "waves":
            return DatasetSpec(items, tests, (section.window, 1), FORECAST, section.steps)
    return DatasetSpec(items, tests, (1,), REGRESSION, 1)
