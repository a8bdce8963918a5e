"""Data sets: the `[dataset]` table, and loading what it names.

`load` asks its caller for one buffer (shared memory, say) and reads everything straight into it. The small `DatasetInfo` of the
result can be pickled; `info.open(buffer)` gives the same data set in any process that has mapped the buffer.
`read_spec` reads headers only. Nothing here imports torch; numpy is imported only once numbers are read.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from partrain.config.python_objects import PYTHON
from partrain.config.section import OneOf
from partrain.data import fetch
from partrain.data.base import (
    Allocate,
    ArrayField,
    DataSection,
    Dataset,
    DatasetInfo,
    DatasetSpec,
    Training,
    lay_out,
    require_memory,
    views,
)
from partrain.data.channels import check_channels, with_channel_scale
from partrain.data.forms import IN_MEMORY, SECTIONS, DataForm, form_of
from partrain.preprocess.cells import Class

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "AnyDataset",
    "ArrayField",
    "DataSection",
    "Dataset",
    "DatasetInfo",
    "DatasetSpec",
    "groups_by_part",
    "lay_out",
    "load",
    "read_spec",
    "views",
]


def _tag(table: Any) -> str | None:
    """Return the kind of a `[dataset]` table, given as a table or as a section. A name with a colon is user code."""
    kind, name = ((table.get(key) if isinstance(table, dict) else getattr(table, key, None)) for key in ("kind", "name"))
    if kind is not None and str(name) not in IN_MEMORY:
        return str(kind)
    return None if name is None else "user" if ":" in str(name) or name == PYTHON else str(name)


AnyDataset = Annotated[
    DataSection,
    OneOf(
        SECTIONS,
        _tag,
        unlisted=IN_MEMORY,
    ),
]


def read_spec(section: DataSection, folder: Path) -> DatasetSpec | None:
    """Read headers: the facts about a data set that files and settings give, fast, without numpy.

    Args:
        section: The `[dataset]` table.
        folder: The job's folder; relative paths start here.

    Returns:
        None for a file that has not been fetched yet, and for user code, which must run first.

    Raises:
        InputMissing: a file is missing, or its header is damaged or does not fit the others.
        WrongSetting: a key does not go with what the files hold.
    """
    if fetch.missing_urls(section):
        return None
    spec: DatasetSpec | None = import_module(_form(section).headers).read_spec(section, folder)
    if spec and _by_channel(section):
        check_channels(section, spec)
    return spec


def load(
    section: DataSection,
    folder: Path,
    allocate: Allocate | None = None,
    training: Training | None = None,
    report: fetch.TransferReport | None = None,
    *,
    in_memory: bool = True,
) -> Dataset:
    """Fetch, read or generate a data set, with all its arrays in one buffer.

    The result is the same for every job seed, even for generated items. Runs that differ in their seed differ in initial weights
    and order of items, and are evaluated on the same problem.

    Args:
        section: The `[dataset]` table.
        folder: The job's folder; relative paths start here.
        allocate: Returns a buffer of a given size in bytes; default: ordinary memory of this process.
        training: Returns the indices of the training items; default: all.
        report: Receives the progress of downloads; default: print a line for each.
        in_memory: The buffer is memory: check that enough is free.

    Raises:
        InputMissing: a file is missing, damaged, or does not fit the others.
        WrongSetting: a key does not go with what the files hold.
    """
    fetch.fetch(section, report)
    new_buffer = allocate or (lambda size: memoryview(bytearray(size)))

    def checked(size: int) -> memoryview:
        if in_memory:
            require_memory(size, "[dataset]")
        return new_buffer(size)

    dataset: Dataset = import_module(_form(section).loader).load(section, folder, checked, training or _all)
    if _by_channel(section):
        return with_channel_scale(section, dataset, training or _all)
    return dataset


def groups_by_part(section: DataSection, folder: Path, dataset: Dataset) -> dict[str, list[Class]]:
    """Return the name of each item's group: of items that stay (n,), and under "test_" of test items.

    `dataset`: the items of a section with groups. Its files are read again for the names.
    """
    parts: dict[str, list[Class]] = import_module(_form(section).loader).groups_by_part(section, folder, dataset)
    return parts


def _by_channel(section: DataSection) -> bool:
    return getattr(section, "standardise", None) == "channel" or bool(getattr(section, "mean", None))


def _form(section: DataSection) -> DataForm:
    return form_of(_tag(section) or "")


def _all(
    items: int, labels: NDArray[Any] | None = None, gap: int | None = None, groups: NDArray[Any] | None = None
) -> NDArray[Any]:
    import numpy as np

    return np.arange(items)
