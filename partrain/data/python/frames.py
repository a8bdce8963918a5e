"""DataFrames of pandas and polars, and values that can become one, as the tables that a job reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.config.python_objects import absent, current
from partrain.data.base import repeated
from partrain.errors import InputMissing

if TYPE_CHECKING:
    import polars

_CELLS = ("str", "int", "float", "bool", "datetime", "date", "time", "Timestamp")
"""Cell types in columns of objects."""
NAME, TEST_NAME = "DataFrame", "test DataFrame"
"""Names of a data set's DataFrames, as paths of its table and in messages."""


def is_frame(value: Any) -> bool:
    """Return whether a value is a DataFrame of pandas or polars. Neither is imported."""
    return hasattr(value, "columns") and hasattr(value, "dtypes") and hasattr(value, "__getitem__")


def is_series(value: Any) -> bool:
    """Return whether a value is a column of pandas or polars."""
    return hasattr(value, "to_numpy") and hasattr(value, "name") and not is_frame(value)


class Frames:
    """The DataFrames of a data set, by name."""

    def __init__(self, frame: Any, test: Any = None, unread: Collection[str] = ()) -> None:
        self.by_name = {NAME: to_polars(frame, unread)} | ({} if test is None else {TEST_NAME: to_polars(test, unread)})

    @classmethod
    def current(cls) -> Frames:
        """Return the DataFrames of the job that is being read or trained."""
        if not isinstance(frames := current().data, cls):
            raise absent("dataset")
        return frames


def as_frame(value: Any) -> Any:
    """Convert an Arrow table, a list of rows (dicts) or a Hugging Face `Dataset` to a polars DataFrame; keep other values.

    Raises InputMissing for rows that do not form a table, and for a `Dataset` with columns of lists or images.
    """
    if is_frame(value) or hasattr(value, "to_numpy"):
        return value
    if hasattr(value, "to_polars") and hasattr(value, "features"):
        frame = value.to_polars()
        if nested := [name for name in frame.columns if frame.schema[name].is_nested()]:
            advice = 'give arrays, dataset=(ds["x"], ds["label"]), or the folder of `save_to_disk` by kind="huggingface"'
            raise InputMissing(
                f"`{type(value).__name__}`: column `{nested[0]}` holds lists or images, and a table cannot: {advice}"
            )
        return frame
    is_rows = isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)
    if not is_rows and not hasattr(value, "__arrow_c_stream__"):
        return value
    import polars

    try:
        return polars.DataFrame(value, infer_schema_length=None)
    except (polars.exceptions.PolarsError, TypeError, ValueError) as error:
        raise InputMissing(f"`{type(value).__name__}`: is no table: {str(error).splitlines()[0]}") from None


def to_polars(frame: Any, unread: Collection[str] = ()) -> polars.DataFrame:
    """Convert a DataFrame. The columns `unread`, of any type, then have no values.

    Raises InputMissing for a column of objects that are neither words nor numbers.
    """
    import polars

    if isinstance(frame, polars.LazyFrame):
        return frame.collect()
    if isinstance(frame, polars.DataFrame):
        return frame.clone()  # cheap, and hides later changes that the caller makes in place
    names = [str(name) for name in frame.columns]
    if (twice := repeated(names)) is not None:
        raise InputMissing(f"DataFrame: two columns have the name `{twice}`")
    columns = ([None] * len(frame) if name in unread else _cells(frame.iloc[:, at], name) for at, name in enumerate(names))
    return polars.DataFrame([polars.Series(name, cells) for name, cells in zip(names, columns, strict=True)])


def _cells(column: Any, name: str) -> Any:
    """Return the cells of a column of pandas: numbers unchanged, words as texts, missing values as None."""
    missing = np.asarray(column.isna(), bool)
    kind = getattr(column.dtype, "kind", "O")
    if kind in "iufbM" and not missing.any() and isinstance(column.dtype, np.dtype):
        return column.to_numpy()
    cells = [None if gone else _plain(cell) for cell, gone in zip(column.tolist(), missing, strict=True)]
    kinds = {type(cell) for cell in cells if cell is not None}
    if odd := [kind for kind in kinds if kind.__name__ not in _CELLS]:
        raise InputMissing(f"DataFrame: column `{name}`: holds objects of type `{odd[0].__name__}`, not numbers or words")
    if str in kinds or len(kinds) > 1:
        convert = str if str in kinds or not kinds <= {int, float, bool} else float
        return [None if cell is None else convert(cell) for cell in cells]
    return cells


def _plain(cell: Any) -> Any:
    return cell.item() if isinstance(cell, np.generic) else cell


def add_column(frame: Any, name: str, cells: Any) -> Any:
    """Return a DataFrame with one more column."""
    if hasattr(frame, "assign"):
        return frame.assign(**{name: np.asarray(cells)})
    import polars

    return frame.with_columns(polars.Series(name, cells))
