"""The `[dataset]` tables of arrays and DataFrames in memory, with the keys of array files and of tables."""

from __future__ import annotations

from typing import Literal

from partrain.data.arrays.sections import ArraySection
from partrain.data.documents import Documents
from partrain.data.tables.sections import InMemory, Tabular
from partrain.data.tables.series import Series


class PythonArrays(ArraySection):
    """Arrays of a script, given as `dataset=(X, y)` or `dataset={"inputs": X, "targets": y, ...}`."""

    name: Literal["<arrays>"]
    booleans: bool = False
    """Targets are True and False, and so are the answers of `predict`."""


class PythonTable(InMemory, Tabular):
    """DataFrames of a script, given as `dataset={"data": FRAME, "target": COLUMN, ...}` or `dataset=(FRAME, SERIES)`."""

    name: Literal["<dataframe>"]


class PythonSeries(InMemory, Series):
    """A DataFrame of a script whose rows follow one another in time, given with `kind = "series"`."""

    name: Literal["<series>"]
    kind: Literal["series"] = "series"


class PythonDocuments(InMemory, Documents):
    """A DataFrame of a script with a column of texts, given with `kind = "documents"`."""

    name: Literal["<documents>"]
    kind: Literal["documents"] = "documents"
