"""Labels of the rows of a table, and the check that each class stays among the items to train on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.data.tables.files import RowBlock, TableFile
from partrain.data.tables.sections import Tabular
from partrain.errors import InputMissing
from partrain.preprocess.cells import Class, is_missing, parse_class
from partrain.preprocess.table import TableSchema

if TYPE_CHECKING:
    from numpy.typing import NDArray


def labels_of(table: TableFile, block: RowBlock, name: str, classes: Sequence[Class]) -> NDArray[Any]:
    """Return the label (n,) of each cell of a column; InputMissing for a cell that is none of the classes."""
    whole, numbers = isinstance(classes[0], int), {one: number for number, one in enumerate(classes)}
    cells = block.columns[name]
    labels = np.fromiter((numbers.get(parse_class(cell, whole=whole), -1) for cell in cells), np.int64, len(cells))
    if (labels < 0).any():
        at = int(labels.argmin())
        text = str(cells[at]).strip()[:60]
        wrong = "no value" if is_missing(cells[at]) else f"the class `{text}` is not one that was trained on"
        raise InputMissing(f"{table.locate(block.positions[at])}: column `{name}`: {wrong}")
    return labels


def check_split(section: Tabular, table: TableFile, schema: TableSchema, tests: int, locate: Callable[[Class], str]) -> None:
    """Draw the test rows as `load` does, and raise WrongContent for a class that only they have. `locate` returns its first row."""
    assert schema.classes is not None
    name = schema.targets[0]
    labels = np.concatenate([labels_of(table, block, name, schema.classes) for block in table.used_blocks(schema)])
    stay, tested = section.split_off(len(labels), tests, labels)
    section.check_classes(locate, schema.classes, labels[stay], labels[tested])
