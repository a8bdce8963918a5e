"""Labels that are texts: codes while they are read, then classes with names, in the order of tables' classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.errors import InputMissing
from partrain.preprocess.cells import Class, is_missing, ordered_classes, parse_class

if TYPE_CHECKING:
    from numpy.typing import NDArray


def encode_labels(texts: NDArray[Any], known: dict[str, int], where: str, first: int) -> NDArray[Any]:
    """Return a code for each text (n, ...): str or UTF-8 bytes, stripped of white space.

    Args:
        texts: The texts.
        known: The code of each text met before; new texts are added.
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
            raise InputMissing(f"{where}: item {item} {wrong}")
        numbers[index] = known.setdefault(name, len(known))
    return numbers[inverse].reshape(texts.shape)


def named_classes(known: Mapping[str, int], where: str, items: int) -> tuple[Class, ...]:
    """Return the classes of `items` labels, in order; InputMissing where they are implausible."""
    classes = ordered_classes(known)
    if len(classes) < 2:
        raise InputMissing(f"{where}: all {items:,} items have the class `{classes[0]}`: there is nothing to tell apart")
    if len(classes) > max(20, items // 2):
        many = f"{len(classes):,} different texts in {items:,} items are hardly classes"
        raise InputMissing(f"{where}: {many}; if they are, number them from 0 on")
    return classes


def remap_labels(numbers: NDArray[Any], known: Mapping[str, int], classes: Sequence[Class], where: str, source: str) -> None:
    """Turn codes (n,) of `encode_labels` into labels in place; InputMissing for a class that the `source` has not."""
    whole = isinstance(classes[0], int)
    labels = {one: label for label, one in enumerate(classes)}
    by_number = np.fromiter((labels.get(parse_class(name, whole=whole), -1) for name in known), np.int64, len(known))
    numbers[:] = by_number[numbers]
    if (unknown := numbers < 0).any():
        name = next(name for name, label in zip(known, by_number, strict=True) if label < 0)
        raise InputMissing(f"{where}: item {int(unknown.argmax())}: the class `{name[:60]}` is not in {source}")
