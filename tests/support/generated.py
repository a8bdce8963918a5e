"""Generated data sets, by the name of their function."""

from __future__ import annotations

from pathlib import Path

from partrain.data import Dataset, load
from partrain.data.generated.section import Synthetic

HERE = Path()


def generate(function: str, **more: object) -> Dataset:
    return load(Synthetic.model_validate({"kind": "synthetic", "function": function, **more}), HERE)
