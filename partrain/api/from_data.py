"""`partrain.init`: the decisions of `partrain init --from`, for files, DataFrames and arrays, as arguments of `train`."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from partrain.api import session
from partrain.api.objects import with_column
from partrain.config.python_objects import FRAMES
from partrain.data.python.frames import as_frame, is_frame, to_polars
from partrain.errors import BadJob
from partrain.templates.assemble import Asked
from partrain.templates.from_arrays import memory_job
from partrain.templates.from_data import job_for
from partrain.templates.from_table import frame_job


def init(
    data: Any,
    target: str | Sequence[str] | None = None,
    *,
    kind: Literal["table", "series", "text"] | None = None,
    time: str | None = None,
    group: str | None = None,
    horizon: int | None = None,
    missing: Sequence[str] = (),
) -> dict[str, Any]:
    """Examine data, and return suitable arguments of `train`: tables of a job, to read and to change. Decisions go to stderr.

    Args:
        data: The path of a file or folder, a DataFrame, or `(X, y)` of arrays or of a DataFrame and a column.
        target: The column to predict, or several.
        kind: Read a table as items in any order, a series in time, or texts; default: recognised.
        time: The column of time stamps, whose newest rows are held out, "none" for no such column; default: recognised.
        group: The column of persons or machines, each of which stays in one part, or is a series with `kind="series"`, "none" for
            no such column; default: recognised.
        horizon: Rows of a series to forecast; default: at most a season.
        missing: Texts of missing values, instead of NA, N/A, nan, null and ?.

    Raises:
        Failure: The file does not exist, or its kind is unknown; the target is missing or not a column.

    Example: `trained = partrain.train(**partrain.init(frame, target="price"))`
    """
    targets = (target,) if isinstance(target, str) else tuple(target or ())
    asked = Asked(targets, kind, time, {}, tuple(missing) or None, group, horizon)
    if isinstance(data, str | os.PathLike):
        draft = job_for(Path(data), asked, Path.cwd())
        return _arguments(draft.text, draft.notes, {})
    if isinstance(data, Mapping) and "data" in data:
        targets = targets or _listed(data.get("target"))
        data, asked = data["data"], asked._replace(targets=targets)
    data = as_frame(data)
    if isinstance(data, tuple | list) and len(data) == 2 and is_frame(data[0]):
        column = str(getattr(data[1], "name", None) or "target")
        data, asked = with_column(data[0], data[1], column), asked._replace(targets=(column,))
    if is_frame(data):
        draft = frame_job(to_polars(data), asked)
        return _arguments(draft.text, draft.notes, {"data": data})
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise BadJob(f"init: a {type(data).__name__}; expected a path, a DataFrame with `target`, or (X, y)")
    if targets or kind or time or group or horizon or missing:
        raise BadJob("init: `target`, `kind`, `time`, `group`, `horizon` and `missing` concern tables, and these are arrays")
    X, y = map(np.asarray, data)
    draft = memory_job(X.shape, X.dtype.str, y)
    return _arguments(draft.text, draft.notes, {"inputs": data[0], "targets": data[1]})


def _listed(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


def _arguments(text: str, notes: Sequence[str], objects: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a job as arguments of `train`; `objects` replace the file in `[dataset]`."""
    for note in notes:
        session.warn(note)
    tables = tomllib.loads(text)
    if objects:
        keys = tables["dataset"]
        if keys.get("kind") not in FRAMES:
            del keys["kind"]
        tables["dataset"] = {**objects, **{key: value for key, value in keys.items() if key != "path"}}
    return tables
