"""Texts to classify: from a table's column, from .txt files in a folder, or a single one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from partrain.data.documents import documents_of, numbered, read_document
from partrain.data.folders import files_below
from partrain.data.tables.files import cells_of
from partrain.data.tables.formats import format_of
from partrain.errors import InputMissing
from partrain.inference.inputs.sample import Sample, Wanted
from partrain.inference.inputs.tables import open_table
from partrain.preprocess.texts import words_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.network import TrainedNetwork

COLUMN = "text"
"""Column of the texts in a table, for a network that was trained on text files."""


def read_items(network: TrainedNetwork, path: Path, kind: str, wanted: Wanted) -> tuple[Sample, NDArray[Any] | None]:
    """Read texts as items (n, bytes), and their classes; see `DataForm.items`."""
    if wanted.skip_bad:
        raise InputMissing(f"{path}: --skip-bad: any text can be read")
    codec, parts = network.codec.stored, network.record.parts
    classes: list[str] | None
    if format_of(path):
        table = open_table(network, path)
        texts = documents_of(table, codec["text"] or COLUMN)
        names = list(map(str, range(len(texts))))
        carried = wanted.carried(table)
        columns = cells_of(table.blocks(carried), carried) if carried else {}
        classes = None
        if wanted.targets:
            table.require(target := codec["target"] or "class", "target")
            classes = [str(cell).strip() for cell in cells_of(table.blocks([target]), [target])[target]]
    else:
        files = files_below(path, [".txt"]) if path.is_dir() else [path]
        if not files:
            raise InputMissing(f"{path}: a folder without .txt files")
        texts, columns = [words_of(read_document(file)) for file in files], {}
        names = [str(file.relative_to(path)) if path.is_dir() else file.name for file in files]
        classes = (
            [file.relative_to(path).parts[0] if path.is_dir() else file.parent.name for file in files] if wanted.targets else None
        )
    if not texts:
        raise InputMissing(f"{path}: holds no texts")
    items = torch.from_numpy(numbered(texts, codec["vocabulary"], parts))
    return Sample(items, None, names, columns), None if classes is None else np.array(classes)
