"""The process that runs a user's data set: it checks each item and writes it to a pipe.

Each message is a JSON table. The first lists the arrays to come and their task. Then come blocks of arrays, with their bytes
after the message, and an empty message at the end. Signs of life come between them. An error message can replace any of them.

The process of a worker's stream answers requests: see `training.stream_batches`.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from multiprocessing import current_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from partrain.byte_layout import lay_out_parts
from partrain.config import usercode
from partrain.data.base import first_bad
from partrain.data.user.forms import ItemForm, convert, failure, input_form, target_form
from partrain.data.user.packed import Columns, PackedItems, UnequalItems, has_several
from partrain.data.user.shard import Batch, Shard, Source, is_stream, seed_generators
from partrain.data.user.streamed import streamed
from partrain.data.user.work import Lengths, Share, Work
from partrain.errors import Failure, InputMissing, UserCodeFailed
from partrain.tasks.kinds import CLASSIFICATION, LANGUAGE, REGRESSION

if TYPE_CHECKING:
    from partrain.data.user.section import UserData

_BLOCK = 1 << 20
"""Bytes written at a time."""
BEAT_S = 1.0
"""Seconds between two signs of life while items take long."""
_TASKS = {"label": CLASSIFICATION, "numbers": REGRESSION, "tokens": LANGUAGE}
"""Task for each form of targets."""


def main(pipe: Connection, section: UserData, folder: Path, work: Work) -> None:
    """Run the process: items go to the pipe, prints of user code to stderr."""
    current_process().name = "partrain dataset"  # a user's script that trains must not train here
    with suppress(OSError):  # a script may have closed them
        os.dup2(2, 1)
    try:
        _make(section, folder, work, pipe)
    except UnequalItems:
        _send(pipe, unequal=True)
    except Failure as problem:
        _send(pipe, failed=problem.message, detail=problem.detail, missing=isinstance(problem, InputMissing))
    except BaseException as error:
        users = failure(f"[dataset] name: `{section.name}`", error)
        _send(pipe, failed=users.message, detail=users.detail, missing=False)


def _make(section: UserData, folder: Path, work: Work, out: Connection) -> None:
    """Make the data set, and do the requested work on it."""
    seed_generators(0)
    usercode.find("dataset", section, folder)
    seed_generators(0)
    data, on_item = usercode.make("dataset", section, folder, object, "data set"), _Beat(out)
    if isinstance(work, Lengths):
        source = Source(data, section.name, on_item)
        _send(out, lengths=[source.length(rank, work.size) for rank in range(work.size)])
    elif isinstance(work, Share):
        _serve(Shard(Source(data, section.name, on_item), *work[:5]), work, out)
    elif is_stream(data):
        parts, about = streamed(Source(data, section.name, on_item), section.validation)
        _write(parts, out, stream=about)
    else:
        _write(_parts(data, section, held=work.held, on_item=on_item), out)


def _serve(shard: Shard, work: Share, pipe: Connection) -> None:
    """Send batches on request, and prepare the next one meanwhile."""
    batches: Iterator[Batch] = iter(())
    ready: Batch | None = None
    with suppress(EOFError, ConnectionError):  # the worker has ended
        while True:
            if start := pipe.recv().get("start"):
                batches = shard.batches(start, work.length, whole_passes=work.whole_passes)
            elif ready:
                _send(pipe, cursor=ready.cursor, items=len(ready.targets))
                _send_array(pipe, ready.inputs)
                _send_array(pipe, ready.targets)
            ready = next(batches)


def _parts(data: Any, section: UserData, *, held: bool, on_item: Callable[[], None]) -> dict[str, UserItems | PackedItems]:
    """Make training and test items, by the prefix of their arrays.

    `held`: their number, or their lengths, are known only at the end.
    """
    parts = {"": _items(data, f"`{section.name}`", held=held, on_item=on_item)}
    test = getattr(data, "test", None)
    if callable(test):
        test = test()
    if test is not None:
        parts["test_"] = _items(test, f"`{section.name}`, `test`", held=held, on_item=on_item)
        own, tests = parts.values()
        if isinstance(own, PackedItems) and isinstance(tests, PackedItems):
            own.unify(tests)
            return parts
        if isinstance(own, UserItems) and isinstance(tests, UserItems) and own.input.differs_in_length(tests.input):
            raise UnequalItems
        if type(own) is not type(tests):
            raise (
                UnequalItems if not held else UserCodeFailed(f"[dataset] name: {tests.what}: other inputs than those to train on")
            )
        for role in ("input", "target"):
            tested, first = getattr(tests, role), getattr(own, role)
            if tested != first:
                raise UserCodeFailed(f"[dataset] name: {tests.what}: its {role}s are {tested}, those to train on {first}")
    return parts


def _items(data: Any, what: str, *, held: bool, on_item: Callable[[], None]) -> UserItems | PackedItems:
    """Wrap a user's data set. `on_item` is called after each item, before the items of a block are written."""
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        if hasattr(data, "inputs") and hasattr(data, "targets"):
            if isinstance(data.inputs, dict | tuple | list) and (isinstance(data.inputs, dict | tuple) or _unequal(data.inputs)):
                columns = Columns(data.inputs, data.targets)
                if len(set(columns.sizes)) > 1:
                    raise UserCodeFailed(
                        f"[dataset] name: {what}: `inputs` and `targets` do not have one row for each item: {columns.sizes} rows"
                    )
                return PackedItems(columns, what, held=held, on_item=on_item)
        elif hasattr(data, "__iter__"):
            return PackedItems(data, what, held=held, on_item=on_item)
        return UserItems(data, what, on_item)
    if held or (len(data) and has_several(_first(data, what))):
        return PackedItems(data, what, held=held, on_item=on_item)
    return UserItems(data, what, on_item)


def _unequal(inputs: list[Any]) -> bool:
    return len({np.shape(value)[:1] for value in inputs}) > 1


def _first(data: Any, what: str) -> Any:
    try:
        return data[0]
    except Exception as error:
        raise failure(f"[dataset] name: {what}: item 0", error) from None


def _write(parts: Mapping[str, UserItems | PackedItems], out: Connection, **more: Any) -> None:
    """Write the arrays of all parts. `more` goes with the first message."""
    first = parts[""]
    rows = first.parts() if isinstance(first, PackedItems) else []
    single = first.inputs[0] if isinstance(first, PackedItems) else first.input
    width = lay_out_parts([(row["name"], row["dtype"], row["shape"]) for row in rows])[1]
    kinds = {
        "inputs": ("uint8", (width,)) if rows else (single.dtype, single.stored),
        "targets": (first.target.dtype, first.target.stored),
    }
    arrays = {
        f"{prefix}{role}": (dtype, (items.count, *shape))
        for prefix, items in parts.items()
        for role, (dtype, shape) in kinds.items()
    }
    _send(out, arrays=arrays, task=_TASKS[first.target.name], parts=rows, **more)
    for prefix, items in parts.items():
        for pair in items.blocks():
            for role, block in zip(kinds, pair, strict=True):
                _send(out, array=f"{prefix}{role}", bytes=block.nbytes)
                _send_array(out, block)
    _send(out)


class _Beat:
    """A sign of life after an item, at most one every BEAT_S."""

    def __init__(self, out: Connection) -> None:
        self._out, self._sent = out, time.monotonic()

    def __call__(self) -> None:
        if time.monotonic() - self._sent > BEAT_S:
            self._sent = time.monotonic()
            _send(self._out, alive=True)


def _send(out: Connection, **content: Any) -> None:
    out.send_bytes(json.dumps(content).encode())


def _send_array(out: Connection, array: NDArray[Any]) -> None:
    content = array.reshape(-1).view(np.uint8).data
    for start in range(0, len(content), _BLOCK):
        out.send_bytes(content[start : start + _BLOCK])


class UserItems:
    """Items of a user's data set, in order."""

    def __init__(self, data: Any, what: str, on_item: Callable[[], None] = lambda: None) -> None:
        """Wrap `data`: a sequence of items, or an object with arrays `inputs` and `targets`. `on_item` is called after each item."""
        self.what, self.on_item = what, on_item
        lacking = [name for name in ("__len__", "__getitem__") if not hasattr(data, name)]
        self._whole: tuple[NDArray[Any], NDArray[Any]] | None = None
        if lacking and hasattr(data, "inputs") and hasattr(data, "targets"):
            self._whole = (
                convert(data.inputs, f"[dataset] name: {what}: `inputs`"),
                convert(data.targets, f"[dataset] name: {what}: `targets`"),
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
        self.input = input_form(first, self._where(0, "input"))
        self.target = target_form(second, self._where(0, "target"), self.input)

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
        return np.stack([row for row, _ in pairs]), np.stack([other for _, other in pairs])

    def _item(self, number: int) -> tuple[NDArray[Any], NDArray[Any]]:
        if self._whole:
            return self._whole[0][number, ...], self._whole[1][number, ...]  # arrays, even of objects
        where = f"[dataset] name: {self.what}: item {number}"
        self.on_item()
        try:
            item = self._data[number]
        except Exception as error:
            raise failure(where, error) from None
        if not isinstance(item, tuple | list) or len(item) != 2:
            size = f" of {len(item)}" if isinstance(item, tuple | list) else ""
            raise UserCodeFailed(f"{where} is {type(item).__name__}{size}: expected an input and a target")
        return convert(item[0], f"{where}: its input"), convert(item[1], f"{where}: its target")

    def _alike(self, number: int, row: NDArray[Any], other: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Check that an item has the form of the first; UserCodeFailed if not."""
        form = input_form(row, self._where(number, "input"))
        if form.differs_in_length(self.input):
            raise UnequalItems
        kinds = form, target_form(other, self._where(number, "target"), self.input)
        for role, kind, first in (("input", kinds[0], self.input), ("target", kinds[1], self.target)):
            if kind != first:
                raise UserCodeFailed(f"{self._where(number, role)} is {kind}, and item 0 has {first}")
        return row, other

    def _kept(self, rows: NDArray[Any], kind: ItemForm, start: int, role: str) -> NDArray[Any]:
        with np.errstate(over="ignore", invalid="ignore"):
            kept = np.ascontiguousarray(rows, kind.dtype).reshape(len(rows), *kind.stored)
        bad = ~np.isfinite(kept) if kind.dtype == "float32" else kept < 0
        if bad.any():
            whole = "holds a negative number" if rows.dtype.kind != "u" else "holds a number that int64 cannot hold"
            wrong = "holds a number that is not finite" if kind.dtype == "float32" else whole
            item, at = first_bad(bad)
            raise UserCodeFailed(f"{self._where(start + item, role)} {wrong}{at}")
        return kept

    def _where(self, number: int, role: str) -> str:
        return f"[dataset] name: {self.what}: item {number}: its {role}"
