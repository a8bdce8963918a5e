"""Texts to classify: of a table's column, of .txt files in a folder, or a single one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.data.documents import documents_of, numbered, read_document
from partrain.data.folders import files_below
from partrain.data.tables.files import cells_of
from partrain.data.tables.formats import format_of
from partrain.errors import InputMissing
from partrain.inference.inputs.tables import open_table
from partrain.preprocess.texts import words_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from partrain.inference.network import TrainedNetwork

COLUMN = "text"
"""Column of the texts in a table, for a network that was trained on files."""


def read_documents(
    network: TrainedNetwork, path: Path, *, labeled: bool, carry: Sequence[str] | None
) -> tuple[NDArray[Any], NDArray[Any] | None, list[str], dict[str, list[Any]]]:
    """Return items (n, bytes), their classes if `labeled`, their names, and the columns that answers carry (None: all)."""
    codec, parts = network.codec.stored, network.record.parts
    classes: list[str] | None
    if format_of(path):
        table = open_table(network, path)
        texts = documents_of(table, codec["text"] or COLUMN)
        names = list(map(str, range(len(texts))))
        carried = table.names if carry is None else list(carry)
        for name in carried:
            table.require(name, "--id")
        columns = cells_of(table.blocks(carried), carried) if carried else {}
        classes = None
        if labeled:
            table.require(target := codec["target"] or "class", "target")
            classes = [str(cell).strip() for cell in cells_of(table.blocks([target]), [target])[target]]
    else:
        files = files_below(path, [".txt"]) if path.is_dir() else [path]
        if not files:
            raise InputMissing(f"{path}: a folder without .txt files")
        texts, columns = [words_of(read_document(file)) for file in files], {}
        names = [str(file.relative_to(path)) if path.is_dir() else file.name for file in files]
        classes = [file.relative_to(path).parts[0] if path.is_dir() else file.parent.name for file in files] if labeled else None
    if not texts:
        raise InputMissing(f"{path}: holds no texts")
    return numbered(texts, codec["vocabulary"], parts), None if classes is None else np.array(classes), names, columns
