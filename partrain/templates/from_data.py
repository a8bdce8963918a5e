"""Write a job for a data file: examine the data, choose settings that train well, and explain them in comments."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

from partrain.data.arrays.files import ARRAYS
from partrain.data.forms import FORMS
from partrain.data.tables.formats import SUFFIXES as TABLES
from partrain.data.tables.formats import format_of
from partrain.errors import InputMissing
from partrain.templates.assemble import Asked, Draft


def job_for(path: Path, asked: Asked, folder: Path) -> Draft:
    """Write a job that trains on a file or folder. Paths in the job start from `folder`.

    Raises InputMissing if the kind of the data is unknown, or if the target is missing or not a column.
    """
    kinds = (None, "text", "images") if path.is_dir() else (None,)
    of_tables = asked.time or asked.group or asked.horizon or asked.dialect or asked.null_values is not None
    if not format_of(path) and (of_tables or asked.kind not in kinds):
        raise InputMissing(f"{path}: is no table ({', '.join(TABLES)}), and --kind, --separator and the like concern tables")
    shown = os.path.relpath(path, folder)
    for form in FORMS:
        draft: Draft | None = import_module(form.proposal).propose(path, shown, asked, folder) if form.proposal else None
        if draft:
            return draft
    raise InputMissing(
        f"{path}: expected a table ({', '.join(TABLES)}), arrays ({', '.join(ARRAYS)}), a text (.txt) or a folder of images"
    )
