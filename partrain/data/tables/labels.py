"""Labels that are texts: numbers in their place while they are read, then classes with names, in the order that tables' have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.data.tables.files import is_missing
from partrain.data.tables.schema import Class, ordered_classes, parse_class
from partrain.errors import InputMissing

if TYPE_CHECKING:
    from numpy.typing import NDArray


def encode_labels(texts: NDArray[Any], known: dict[str, int], where: str, first: int) -> NDArray[Any]:
    """A number for each of some texts (n, ...): str or UTF-8 bytes, space around them not counted.

    Args:
        texts: The texts.
        known: The number of each text met before; those of new ones are added.
        where: Place of the texts, in words.
        first: Which item is their first.
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
            raise InputMissing(f"{where}: item {item} {wrong}")
        numbers[index] = known.setdefault(name, len(known))
    return numbers[inverse].reshape(texts.shape)


def named_classes(known: Mapping[str, int], where: str, items: int) -> tuple[Class, ...]:
    """The classes of `items` labels, by label; InputMissing where they are hardly meant as such."""
    classes = ordered_classes(known)
    if len(classes) < 2:
        raise InputMissing(f"{where}: all {items:,} items have the class `{classes[0]}`: there is nothing to tell apart")
    if len(classes) > max(20, items // 2):
        many = f"{len(classes):,} different texts in {items:,} items are hardly classes"
        raise InputMissing(f"{where}: {many}; if they are, number them from 0 on")
    return classes


def remap_labels(numbers: NDArray[Any], known: Mapping[str, int], classes: Sequence[Class], where: str, source: str) -> None:
    """Turn numbers (n,) by `numbered` into labels in place; InputMissing for a class that is not among those of the `source`."""
    whole = isinstance(classes[0], int)
    labels = {one: label for label, one in enumerate(classes)}
    by_number = np.fromiter((labels.get(parse_class(name, whole), -1) for name in known), np.int64, len(known))
    numbers[:] = by_number[numbers]
    if (unknown := numbers < 0).any():
        name = next(name for name, label in zip(known, by_number, strict=True) if label < 0)
        raise InputMissing(f"{where}: item {int(unknown.argmax())}: the class `{name[:60]}` is not in {source}")
