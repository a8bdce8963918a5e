"""Data sets: the `[dataset]` table and what it loads.

Two steps keep big data in one place. `load` asks its caller for one buffer (shared memory, say) and reads everything straight into
it; the `DatasetInfo` it comes with is small, and `card.attach(buffer)` is the same data set in any process that has the buffer mapped.
`facts` reads headers only. Nothing here imports torch; numpy only once numbers are read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "AnyDataset",
    "ArrayField",
    "DataSection",
    "Dataset",
    "DatasetInfo",
    "DatasetSpec",
    "facts",
    "lay_out",
    "load",
    "views",
]


def _which(table: Any) -> str | None:
    """The tag of a `[dataset]` table, given as a table or as a section: a name with a colon is the user's own."""
    for key in ("kind", "name"):
        value = table.get(key) if isinstance(table, dict) else getattr(table, key, None)
        if value is not None:
            return "user" if key == "name" and ":" in str(value) else str(value)
    return None


DATASETS = {
    "mnist": "partrain.data.arrays.idx:Mnist",
    "idx": "partrain.data.arrays.idx:Idx",
    "synthetic": "partrain.data.generated.section:Synthetic",
    "csv": "partrain.data.tables.sections:Csv",
    "parquet": "partrain.data.tables.sections:Parquet",
    "npz": "partrain.data.arrays.sections:Npz",
    "npy": "partrain.data.arrays.sections:Npy",
    "hdf5": "partrain.data.arrays.sections:Hdf5",
    "mapped": "partrain.data.arrays.mapped:Mapped",
    "text": "partrain.data.text:TextSection",
    "series": "partrain.data.tables.series:Series",
    "images": "partrain.data.images:ImagesSection",
    "huggingface": "partrain.data.arrays.huggingface:HuggingFace",
    "user": "partrain.data.user.section:UserData",
}

AnyDataset = Annotated[DataSection, OneOf(DATASETS, _which)]


def facts(section: DataSection, folder: Path) -> DatasetSpec | None:
    """What headers and settings tell about a data set, see `DataSection.facts`; None also where a file has not been fetched yet."""
    return None if fetch.absent(section) else section.facts(folder)


def load(
    section: DataSection,
    folder: Path,
    allocate: Allocate | None = None,
    training: Training | None = None,
    report: fetch.Report | None = None,
    in_memory: bool = True,
) -> Dataset:
    """Fetch, read or generate a data set, all its arrays in one buffer; see `DataSection.load`.

    The same for every job seed, synthetic data included: runs that differ in their seed are to differ in initial weights and order
    of items, and to be judged on the same problem.

    Args:
        section: The `[dataset]` table.
        folder: Where its relative paths start from: the job's folder.
        allocate: Gives the buffer; default: ordinary memory of this process.
        training: Gives the indices of the items trained on; default: all.
        report: Told how the fetching of files goes; default: a line for each.
        in_memory: The buffer is memory, which there has to be enough of.
    """
    fetch.fetch(section, report)
    given = allocate or (lambda size: memoryview(bytearray(size)))

    def roomy(size: int) -> memoryview:
        if in_memory:
            require_memory(size, "[dataset]")
        return given(size)

    return section.load(folder, roomy, training or _all)


def _all(items: int, labels: NDArray[Any] | None = None, gap: int | None = None) -> NDArray[Any]:
    import numpy as np

    return np.arange(items)
