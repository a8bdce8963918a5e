"""The process that runs a user's data set: item by item, checked, and written to a pipe.

Each message is a line of JSON. The first lists the arrays to come and their task. Then come blocks of arrays, their bytes behind
the line, and an empty message at the end. An error message can replace any of them.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import pickle
import random
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import current_process
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from partrain.config import usercode
from partrain.data.base import first_bad
from partrain.errors import Failure, UserCodeFailed

if TYPE_CHECKING:
    from partrain.data.user.section import UserData

_BLOCK = 1 << 20
"""Bytes of inputs written at a time."""
_PR_SET_PDEATHSIG = 1
_TASKS = {"label": "classification", "numbers": "regression", "tokens": "language"}
"""Task for each form of targets."""


def main() -> None:
    """Run the process: the section comes on stdin, items go to stdout, prints of user code to stderr."""
    section, folder, parent = pickle.load(sys.stdin.buffer)
    current_process().name = "partrain dataset"  # a user's script that trains must not train here
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the coordinator handles them, and this process ends with it
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        try:
            _stream(_parts(section, folder), out)
        except Failure as failure:
            _send(out, failed=failure.message, detail=failure.detail)
        except BaseException as error:
            users = _failure(f"[dataset] name: `{section.name}`", error)
            _send(out, failed=users.message, detail=users.detail)


def _failure(where: str, error: BaseException) -> UserCodeFailed:
    """Describe an exception of user code."""
    text = f"{type(error).__name__}: {error}".rstrip(": \n")
    return UserCodeFailed(f"{where}: {text.splitlines()[0]}", usercode.frames(error) + text)


def _parts(section: UserData, folder: Path) -> dict[str, UserItems]:
    """Make training and test items, by the prefix of their arrays."""
    _seed()
    usercode.find("dataset", section, folder)
    _seed()
    data = usercode.make("dataset", section, folder, object, "data set")
    parts = {"": UserItems(data, f"`{section.name}`")}
    test = getattr(data, "test", None)
    if callable(test):
        test = test()
    if test is not None:
        parts["test_"] = UserItems(test, f"`{section.name}`, `test`")
        for role in ("input", "target"):
            own, first = getattr(parts["test_"], role), getattr(parts[""], role)
            if own != first:
                raise UserCodeFailed(f"[dataset] name: {parts['test_'].what}: its {role}s are {own}, those to train on {first}")
    return parts


def _seed() -> None:
    """Seed Python's draws, numpy's, and torch's if it is imported, so that each run draws the same."""
    random.seed(0)
    np.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


def _stream(parts: dict[str, UserItems], out: IO[bytes]) -> None:
    kinds = {"inputs": parts[""].input, "targets": parts[""].target}
    arrays = {
        f"{prefix}{role}": (kind.dtype, (items.count, *kind.stored))
        for prefix, items in parts.items()
        for role, kind in kinds.items()
    }
    _send(out, arrays=arrays, task=_TASKS[kinds["targets"].name])
    for prefix, items in parts.items():
        for pair in items.blocks():
            for role, block in zip(kinds, pair, strict=True):
                _send(out, array=f"{prefix}{role}", bytes=block.nbytes)
                out.write(block.data)
    _send(out)


def _send(out: IO[bytes], **content: Any) -> None:
    out.write(json.dumps(content).encode() + b"\n")
    out.flush()


@dataclass(frozen=True)
class ItemForm:
    """Form that all inputs, or all targets, of a data set share."""

    name: str
    """Name of the form: `bytes`, `numbers`, `tokens` or `label`."""
    shape: tuple[int, ...]
    """Shape as user code gives it."""

    def __str__(self) -> str:
        return f"{self.name} {self.shape}"

    @property
    def dtype(self) -> str:
        """Type in the buffer."""
        return {"bytes": "uint8", "numbers": "float32"}.get(self.name, "int64")

    @property
    def stored(self) -> tuple[int, ...]:
        """Shape in the buffer: a single number becomes a vector of one, a label does not."""
        return self.shape or (() if self.name == "label" else (1,))


def _input_form(array: NDArray[Any], where: str) -> ItemForm:
    letter = array.dtype.kind
    if letter not in "fiub":
        raise UserCodeFailed(f"{where} is no array of numbers, but of {array.dtype}")
    if not array.size:
        raise UserCodeFailed(f"{where} holds no numbers: its shape is {array.shape}")
    return ItemForm("bytes" if array.dtype == "uint8" else "tokens" if letter in "iu" else "numbers", array.shape)


def _target_form(array: NDArray[Any], where: str, first: ItemForm) -> ItemForm:
    """Determine the form of a target; `first` is the form of the inputs."""
    if array.dtype.kind == "f" and array.ndim < 2:
        return ItemForm("numbers", array.shape)
    if array.dtype.kind in "iub" and array.ndim == 0:
        return ItemForm("label", ())
    if array.dtype.kind in "iu" and first == ItemForm("tokens", array.shape):
        return ItemForm("tokens", array.shape)
    raise UserCodeFailed(
        f"{where} is {array.dtype} {array.shape}: expected one whole number as the label of a class, one or a row of float"
        " numbers, or as many whole numbers as there are tokens in the input"
    )


class UserItems:
    """Items of a user's data set, in order."""

    def __init__(self, data: Any, what: str) -> None:
        """Wrap `data`: a sequence of items, or an object with arrays `inputs` and `targets`."""
        self.what = what
        lacking = [name for name in ("__len__", "__getitem__") if not hasattr(data, name)]
        self._whole: tuple[NDArray[Any], NDArray[Any]] | None = None
        if lacking and hasattr(data, "inputs") and hasattr(data, "targets"):
            self._whole = (
                _array(data.inputs, f"[dataset] name: {what}: `inputs`"),
                _array(data.targets, f"[dataset] name: {what}: `targets`"),
            )
            sizes = [array.shape[:1] for array in self._whole]
            if sizes[0] != sizes[1] or not sizes[0]:
                shapes = " and ".join(str(array.shape) for array in self._whole)
                raise UserCodeFailed(
                    f"[dataset] name: {what}: `inputs` and `targets` do not have one row for each item: {shapes}"
                )
        elif lacking:
            raise UserCodeFailed(
                f"[dataset] name: {what} is of type {type(data).__name__}, which has no {lacking[0]}: expected something with a length"
                " that gives an input and a target by number, or an object with arrays `inputs` and `targets`"
            )
        self._data = data
        self.count = len(self._whole[0] if self._whole else data)
        if not self.count:
            raise UserCodeFailed(f"[dataset] name: {what} is empty")
        first, second = self._item(0)
        self.input = _input_form(first, self._where(0, "input"))
        self.target = _target_form(second, self._where(0, "target"), self.input)

    def blocks(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield inputs and targets in the types of the buffer, some items at a time."""
        most = max(1, _BLOCK // (np.dtype(self.input.dtype).itemsize * max(1, math.prod(self.input.shape))))
        for start in range(0, self.count, most):
            numbers = range(start, min(start + most, self.count))
            inputs, targets = self._rows(numbers)
            yield self._kept(inputs, self.input, start, "input"), self._kept(targets, self.target, start, "target")

    def _rows(self, numbers: range) -> tuple[NDArray[Any], NDArray[Any]]:
        if self._whole:
            inputs, targets = (array[numbers.start : numbers.stop] for array in self._whole)
            return inputs, targets
        pairs = [self._alike(number, *self._item(number)) for number in numbers]
        return np.stack([one for one, _ in pairs]), np.stack([other for _, other in pairs])

    def _item(self, number: int) -> tuple[NDArray[Any], NDArray[Any]]:
        if self._whole:
            return self._whole[0][number, ...], self._whole[1][number, ...]  # arrays, also of objects
        where = f"[dataset] name: {self.what}: item {number}"
        try:
            item = self._data[number]
        except Exception as error:
            raise _failure(where, error) from None
        if not isinstance(item, tuple | list) or len(item) != 2:
            size = f" of {len(item)}" if isinstance(item, tuple | list) else ""
            raise UserCodeFailed(f"{where} is {type(item).__name__}{size}: expected an input and a target")
        return _array(item[0], f"{where}: its input"), _array(item[1], f"{where}: its target")

    def _alike(self, number: int, one: NDArray[Any], other: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Check that an item has the form of the first; UserCodeFailed if not."""
        kinds = _input_form(one, self._where(number, "input")), _target_form(other, self._where(number, "target"), self.input)
        for role, kind, first in (("input", kinds[0], self.input), ("target", kinds[1], self.target)):
            if kind != first:
                raise UserCodeFailed(f"{self._where(number, role)} is {kind}, that of item 0 {first}")
        return one, other

    def _kept(self, rows: NDArray[Any], kind: ItemForm, start: int, role: str) -> NDArray[Any]:
        with np.errstate(over="ignore", invalid="ignore"):
            kept = np.ascontiguousarray(rows, kind.dtype).reshape(len(rows), *kind.stored)
        bad = ~np.isfinite(kept) if kind.dtype == "float32" else kept < 0
        if bad.any():
            whole = "holds a negative number" if rows.dtype.kind != "u" else "holds a number beyond those of int64"
            wrong = "holds a number that is not finite" if kind.dtype == "float32" else whole
            item, at = first_bad(bad)
            raise UserCodeFailed(f"{self._where(start + item, role)} {wrong}{at}")
        return kept

    def _where(self, number: int, role: str) -> str:
        return f"[dataset] name: {self.what}: item {number}: its {role}"


def _array(value: Any, where: str) -> NDArray[Any]:
    """Convert a value to an array."""
    try:
        return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except (ValueError, TypeError) as error:
        raise UserCodeFailed(f"{where} is no array of numbers: {error}") from None
    except Exception as error:  # images may be decoded only here
        raise _failure(where, error) from None
