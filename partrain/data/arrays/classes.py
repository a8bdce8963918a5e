"""Classes selected from arrays: `[dataset] classes`. The items of other classes are left out, and labels run from 0 in the order given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from partrain.config.problems import did_you_mean
from partrain.data.arrays.files import ArraySource
from partrain.data.base import WEIGHTS, WrongSetting
from partrain.errors import InputMissing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.preprocess.cells import Class

MAX_SHOWN = 20
"""Maximum number of classes in a message."""


def select_classes(
    arrays: Mapping[str, ArraySource], classes: Sequence[Class] | None, names: Sequence[str] | None = None
) -> dict[str, ArraySource]:
    """Reduce arrays, by role, to the items of some classes. Reads the labels, and the inputs once they are asked for.

    Args:
        arrays: The arrays of all items.
        classes: The classes, in the order of their new labels; None: keep all as they are.
        names: Names of the file's labels, if it stores them.

    Raises:
        WrongSetting: targets are not labels, or no training item belongs to one of the classes.
        InputMissing: no test item belongs to any of the classes.
    """
    selected = dict(arrays)
    if classes is None:
        return selected
    import numpy as np

    for prefix in ("", "test_"):
        if (targets := arrays.get(f"{prefix}targets")) is None:
            continue
        labels, number_of = _labels(targets), _numbers(targets, names)
        if not prefix and (lacking := [name for name in classes if not (labels == number_of(name)).any()]):
            raise _unknown(lacking[0], targets, names, labels)
        new = np.full(len(labels), -1)
        for label, name in enumerate(classes):
            new[labels == number_of(name)] = label
        rows = np.flatnonzero(new >= 0)
        if not len(rows):
            raise InputMissing(f"{targets.where}: no test item is of a class that `classes` names")
        inputs = arrays[f"{prefix}inputs"]
        selected[f"{prefix}targets"] = _reduced(targets, rows, "<i8", _writer(new[rows]))
        selected[f"{prefix}inputs"] = _reduced(inputs, rows, inputs.dtype, _reader(inputs, rows))
        if not prefix and (weights := arrays.get(WEIGHTS)):
            selected[WEIGHTS] = _reduced(weights, rows, weights.dtype, _reader(weights, rows))
    return selected


def _labels(targets: ArraySource) -> NDArray[Any]:
    """Read labels (n,), or the codes of texts."""
    whole = targets.texts is not None or targets.kind in "iub"
    if not whole or targets.shape[1:] not in ((), (1,)):
        problem = f"`classes` selects classes, but these targets are no labels: {targets.where}"
        raise WrongSetting("classes", problem, "remove it")
    return targets.whole("int64").reshape(-1)


def _numbers(targets: ArraySource, names: Sequence[str] | None) -> Callable[[Class], int]:
    """Return the function that gives the number of a class in the file; -1 if the file lacks it."""

    def number(name: Class) -> int:
        if targets.texts is not None:
            return targets.texts.get(str(name), -1)
        if isinstance(name, str):
            return list(names).index(name) if names and name in names else -1
        return name

    return number


def _unknown(name: Class, targets: ArraySource, names: Sequence[str] | None, labels: NDArray[Any]) -> WrongSetting:
    """Make the error for a class that no item has."""
    others = list(targets.texts or names or map(str, sorted(set(labels.tolist()))))
    near = did_you_mean(str(name), others) if isinstance(name, str) else ""
    shown = ", ".join(others[:MAX_SHOWN]) + ", ..." * (len(others) > MAX_SHOWN)
    problem = f"`classes`: no item has the class {name!r}: {targets.where}".replace("'", '"')
    return WrongSetting("classes", problem, f'did you mean "{near}"?' if near else f"there are {shown}")


def _reduced(array: ArraySource, rows: NDArray[Any], dtype: str, read: Callable[[NDArray[Any]], None]) -> ArraySource:
    """Describe some rows of an array. They are in memory, not in the file as they are."""
    shape = (len(rows), *array.shape[1:])
    return replace(array, dtype=dtype, shape=shape, offset=None, read=read, checksum=None, texts=None, digests=None)


def _writer(labels: NDArray[Any]) -> Callable[[NDArray[Any]], None]:
    def read(target: NDArray[Any]) -> None:
        target[...] = labels.reshape(target.shape)

    return read


def _reader(inputs: ArraySource, rows: NDArray[Any]) -> Callable[[NDArray[Any]], None]:
    def read(target: NDArray[Any]) -> None:
        import numpy as np

        every = inputs.whole(target.dtype)
        np.take(every.reshape(-1, *target.shape[1:]), rows, axis=0, out=target)

    return read
