"""Data sets: the `[dataset]` table and what it loads.

Two steps keep big data in one place. `load` asks its caller for one buffer (shared memory, say) and reads everything straight into
it; the `Card` it comes with is small, and `card.attach(buffer)` is the same data set in any process that has the buffer mapped.
`facts` reads headers only. Nothing here imports torch; numpy only once numbers are read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, Tag

from partrain.data import fetch
from partrain.data.arrays import Hdf5, Npy, Npz
from partrain.data.base import Allocate, Card, DataSection, Dataset, Facts, Slot, Training, lay_out, views
from partrain.data.huggingface import HuggingFace
from partrain.data.idx import Idx, Mnist
from partrain.data.images import Images
from partrain.data.mapped import Mapped
from partrain.data.series import Series
from partrain.data.synthetic import Synthetic
from partrain.data.tabular import Csv, Parquet
from partrain.data.text import Text
from partrain.data.user import UserData

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["AnyDataset", "Card", "DataSection", "Dataset", "Facts", "Slot", "facts", "lay_out", "load", "views"]


def _which(table: Any) -> str | None:
    """The tag of a `[dataset]` table, given as a table or as a section: a name with a colon is the user's own."""
    for key in ("kind", "name"):
        value = table.get(key) if isinstance(table, dict) else getattr(table, key, None)
        if value is not None:
            return "user" if key == "name" and ":" in str(value) else str(value)
    return None


AnyDataset = Annotated[
    Annotated[Mnist, Tag("mnist")]
    | Annotated[Idx, Tag("idx")]
    | Annotated[Synthetic, Tag("synthetic")]
    | Annotated[Csv, Tag("csv")]
    | Annotated[Parquet, Tag("parquet")]
    | Annotated[Npz, Tag("npz")]
    | Annotated[Npy, Tag("npy")]
    | Annotated[Hdf5, Tag("hdf5")]
    | Annotated[Mapped, Tag("mapped")]
    | Annotated[Text, Tag("text")]
    | Annotated[Series, Tag("series")]
    | Annotated[Images, Tag("images")]
    | Annotated[HuggingFace, Tag("huggingface")]
    | Annotated[UserData, Tag("user")],
    Discriminator(_which),
]


def facts(section: DataSection, folder: Path) -> Facts | None:
    """What headers and settings tell about a data set, see `DataSection.facts`; None also where a file has not been fetched yet."""
    return None if fetch.absent(section) else section.facts(folder)


def load(
    section: DataSection,
    folder: Path,
    allocate: Allocate | None = None,
    training: Training | None = None,
    report: fetch.Report | None = None,
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
    """
    fetch.fetch(section, report)
    return section.load(folder, allocate or (lambda size: memoryview(bytearray(size))), training or _all)


def _all(items: int, labels: NDArray[Any] | None = None, gap: int | None = None) -> NDArray[Any]:
    import numpy as np

    return np.arange(items)
