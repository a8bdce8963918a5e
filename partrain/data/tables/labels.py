"""Labels of arrays of texts (codes while they are read) and of table cells. Weights and order of a table's rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.data.base import check_weights
from partrain.data.tables.group_cells import group_codes
from partrain.data.tables.time_stamps import moments_of
from partrain.errors import InputMissing
from partrain.preprocess.cell_columns import Cells
from partrain.preprocess.cells import Class, is_missing, ordered_classes, parse_class
from partrain.preprocess.column import RowBlock
from partrain.preprocess.numbers import NumberColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.data.tables.files import TableFile
    from partrain.preprocess.table import TableSchema

UNTRAINED = "is not one that was trained on"


class NoLabel(InputMissing):
    """A text that does not name a class."""


def encode_labels(texts: NDArray[Any], codes: dict[str, int], where: str, first: int) -> NDArray[Any]:
    """Return a code for each text (n, ...): str or UTF-8 bytes, stripped of white space.

    Args:
        texts: The texts.
        codes: The code of each text met before; new texts are added.
        where: Location of the texts, for messages.
        first: Index of the first item among them.
    """
    different, inverse = np.unique(texts.reshape(-1), return_inverse=True)
    numbers = np.empty(len(different), np.int64)
    for index, text in enumerate(different.tolist()):
        try:
            name = (text.decode() if isinstance(text, bytes) else str(text)).strip()
            wrong = "has no label" if is_missing(name) else ""
        except UnicodeDecodeError:
            name, wrong = "", "has a label that is not UTF-8"
        if wrong:
            item = first + int((inverse == index).argmax()) * len(texts) // len(inverse)
            raise NoLabel(f"{where}: item {item} {wrong}")
        numbers[index] = codes.setdefault(name, len(codes))
    return numbers[inverse].reshape(texts.shape)


def named_classes(codes: Mapping[str, int], where: str, items: int) -> tuple[Class, ...]:
    """Return the classes of `items` labels, in order; InputMissing if they are implausible."""
    classes = ordered_classes(codes)
    if len(classes) < 2:
        raise InputMissing(f"{where}: all {items:,} items have the class `{classes[0]}`: there is nothing to tell apart")
    if len(classes) > max(20, items // 2):
        many = f"{len(classes):,} different texts in {items:,} items are hardly classes"
        raise InputMissing(f"{where}: {many}; if they are, number them from 0 on")
    return classes


def remap_labels(
    numbers: NDArray[Any], codes: Mapping[str, int], classes: Sequence[Class], where: str, lacking: str = UNTRAINED
) -> NDArray[Any]:
    """Turn codes (n,) of `encode_labels` into labels.

    InputMissing for a class that is not in `classes`; `lacking` ends the message.
    """
    labels: NDArray[Any] = _labels(Cells(list(codes)), classes)[numbers]
    if (unknown := labels < 0).any():
        item = int(unknown.argmax())
        raise InputMissing(f"{where}: item {item}: the class `{list(codes)[numbers[item]][:60]}` {lacking}")
    return labels


def labels_of(block: RowBlock, name: str, classes: Sequence[Class]) -> NDArray[Any]:
    """Return the label (n,) of each cell of a column; InputMissing for a cell that is not one of the classes."""
    labels = _labels(block.columns[name], classes)
    if (labels < 0).any():
        index = int(labels.argmin())
        cell = block.columns[name][index]
        wrong = "no value" if block.source.is_missing(cell) else f"the class `{str(cell).strip()[:60]}` {UNTRAINED}"
        raise InputMissing(f"{block.where(name, index)}: {wrong}")
    return labels


def _labels(cells: Cells, classes: Sequence[Class]) -> NDArray[Any]:
    """Return the label of each cell; -1 if it is not one of the classes."""
    whole, labels = all(isinstance(name, int) for name in classes), {name: label for label, name in enumerate(classes)}
    return np.asarray(cells.mapped(lambda cell: labels.get(parse_class(cell, whole=whole), -1)), np.int64)


def weights_of(table: TableFile, schema: TableSchema, name: str) -> NDArray[np.float32]:
    """Return the weight (n,) of each row that a schema uses, from a column. InputMissing for a cell that is not a weight."""
    blocks = list(table.used_blocks(schema, name))
    numbers = np.concatenate([np.asarray(NumberColumn().raw(block, name, holes=False), np.float32) for block in blocks])
    places = list(chain.from_iterable(block.positions for block in blocks))
    check_weights(numbers, lambda row: f"{table.locate(places[row])}: column `{name}`")
    return numbers


def groups_of(table: TableFile, schema: TableSchema, name: str, numbers: dict[Class, int]) -> NDArray[np.int64]:
    """Return the group number (n,) of each row that a schema uses, from a column. WrongContent for a cell without a value.

    `numbers` holds the number of each group, and new groups are added. Files that share it share their numbers.
    """
    groups = list[Any]()
    for block in table.used_blocks(schema, name):
        groups.append(np.asarray(group_codes(block, name, numbers), np.int64))
    result: NDArray[np.int64] = np.concatenate(groups)
    return result


def time_order(blocks: Iterable[RowBlock], time: Sequence[str]) -> NDArray[np.int64]:
    """Return the indices (n,) of rows from the oldest to the newest; rows of one moment stay in the order of the file.

    `time`: the column of time stamps, or the columns of the parts of a date, the longest part first.
    """
    moments = [[moments_of(block, name) for name in time] for block in blocks]
    return np.lexsort([np.concatenate(column) for column in zip(*moments, strict=True)][::-1])
