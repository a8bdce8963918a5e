"""The `[dataset]` tables of arrays and DataFrames in memory. Their keys are those of array files and of tables."""

from __future__ import annotations

from typing import Literal

from partrain.data.arrays.sections import ArraySection
from partrain.data.tables.sections import Tabular


class PythonArrays(ArraySection):
    """Arrays of a script, given as `dataset=(X, y)` or `dataset={"inputs": X, "targets": y, ...}`."""

    name: Literal["<arrays>"]
    booleans: bool = False
    """Targets were True and False, and so are the answers of `predict`."""


class PythonTable(Tabular):
    """DataFrames of a script, given as `dataset={"data": FRAME, "target": COLUMN, ...}` or `dataset=(FRAME, SERIES)`."""

    name: Literal["<dataframe>"]
    path: str = "DataFrame"
    """The name of the DataFrame in messages."""
