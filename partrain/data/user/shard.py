"""A stream: training items that user code yields, one shard for each worker. This side runs the user's code.

    class Data:                                                       # [dataset] name = "own.py:Data"
        classes = 10                                                  # number of classes, where targets are labels
        vocabulary = 256                                              # number of tokens, where inputs are tokens
        def stream(self, rank, size, seed, pass_number, skip=0): ...  # yields (input, target) of the shard of worker `rank` of `size`
        def length(self, rank, size): ...                             # optional: items of that shard in each pass
        validation, test                                              # items to hold out, and test items, as in any user data set

`skip` is optional: with it, a shard begins after that many items. Without it, a resumed run draws these items again and drops
them. Python's, numpy's and torch's default generators are seeded before each pass.
"""

from __future__ import annotations

import hashlib
import inspect
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from partrain.data.base import StreamForm
from partrain.data.user.forms import failure
from partrain.data.user.packed import Block, Item, PackedItems, UnequalItems, parse
from partrain.data.user.work import Cursor
from partrain.errors import UserCodeFailed
from partrain.seeds import derive

CALL = "stream(rank=..., size=..., seed=..., pass_number=...)"


class Batch(NamedTuple):
    """The items of a batch, in the types of the buffer."""

    inputs: NDArray[Any]
    targets: NDArray[Any]
    cursor: Cursor
    """The position after the batch."""


def is_stream(data: Any) -> bool:
    """Return whether a user's data set is a stream. A data set with items by index is not a stream."""
    return callable(getattr(data, "stream", None)) and not hasattr(data, "__getitem__")


class Source:
    """A user's data set with a method `stream`."""

    def __init__(self, data: Any, name: str, on_item: Callable[[], None] = lambda: None) -> None:
        """Wrap `data`, which a job calls `name`. `on_item` is called after each item."""
        self.data, self.name, self.on_item = data, name, on_item
        parameters = inspect.signature(data.stream).parameters
        self.skips = "skip" in parameters
        """The method can skip items at the beginning."""
        named = {"rank", "size", "seed", "pass_number"}
        flexible = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        needed = {
            key
            for key, parameter in parameters.items()
            if parameter.default is parameter.empty and parameter.kind < parameter.VAR_KEYWORD
        }
        if (not flexible and not named <= parameters.keys()) or needed - named - {"skip"} - {"args"}:
            raise UserCodeFailed(
                f"[dataset] name: `{name}`: `stream` takes {', '.join(parameters) or 'no arguments'}, and is called as {CALL}"
            )

    def items(self, rank: int, size: int, seed: int, pass_number: int, skip: int = 0) -> Iterator[tuple[int, Item]]:
        """Yield the items of a shard in one pass after the first `skip`, and their numbers."""
        what = self.at(rank, pass_number)
        seed_generators(derive(seed, "stream", rank, pass_number))
        own = {"skip": skip} if self.skips and skip else {}
        number = skip if own else 0
        try:
            items = iter(self.data.stream(rank=rank, size=size, seed=seed, pass_number=pass_number, **own))
        except Exception as error:
            raise failure(what, error) from None
        while True:
            try:
                raw = next(items)
            except StopIteration:
                return
            except Exception as error:
                raise failure(f"{what}: item {number}", error) from None
            self.on_item()
            if number >= skip:
                yield number, parse(raw, f"{what}: item {number}")
            number += 1

    def length(self, rank: int, size: int) -> int | None:
        """Return the number of items of a shard in each pass; None if the class does not give it."""
        method = getattr(self.data, "length", None)
        if not callable(method):
            return None
        try:
            length = method(rank=rank, size=size)
        except Exception as error:
            raise failure(f"[dataset] name: `{self.name}`: `length`", error) from None
        if isinstance(length, bool) or not isinstance(length, int | np.integer) or length < 1:
            raise UserCodeFailed(
                f"[dataset] name: `{self.name}`: `length` gives {length!r} for worker {rank} of {size}: expected the items of its shard"
            )
        return int(length)

    def at(self, rank: int, pass_number: int) -> str:
        """Name a shard in one pass."""
        return f"[dataset] name: `{self.name}`: worker {rank}, pass {pass_number}"


class Shard:
    """The shard of one worker, batch by batch."""

    def __init__(self, source: Source, form: StreamForm, rank: int, size: int, seed: int, batch_size: int) -> None:
        self._source, self._form = source, form
        self._key = rank, size, seed
        self._batch_size = batch_size
        self._forms = PackedItems.with_forms(form)

    def batches(self, start: Cursor, length: int | None = None, *, whole_passes: bool = False) -> Iterator[Batch]:
        """Yield batches without end from a position.

        Args:
            start: The position; the item before it must be the same as before.
            length: Number of items of the shard in each pass; the items are then counted.
            whole_passes: The last batch of a pass may be short; otherwise batches run on into the next pass.
        """
        at, items = start, self._from(start)
        while True:
            wanted = self._batch_size
            if whole_passes and length is not None and at.drawn < length:
                wanted = min(wanted, length - at.drawn)
            block, filled = Block(self._forms, wanted), 0
            while filled < wanted:
                if (pair := next(items, None)) is None:
                    self._check_end(at, length)
                    at = Cursor(at.pass_number + 1)
                    if whole_passes and length is not None:
                        wanted = min(self._batch_size, length)
                        block = Block(self._forms, wanted)
                    items = self._from(at)
                    continue
                number, item = pair
                if length is not None and number >= length:
                    raise UserCodeFailed(f"{self._at(at)}: the stream gives more items than its `length`, {length:,}")
                with self._described(at):
                    self._forms.widen(number, item)
                    block.add(number, item)
                    self._check_range(block, filled, number)
                filled += 1
                at = Cursor(at.pass_number, number + 1)
            at = at._replace(digest=digest(block.rows[-1], block.targets[-1]))
            yield Batch(block.rows, block.targets, at)

    def _from(self, start: Cursor) -> Iterator[tuple[int, Item]]:
        """Yield the items after a position."""
        rank, size, seed = self._key
        items = self._source.items(rank, size, seed, start.pass_number, max(0, start.drawn - 1))
        if start.drawn:
            last, block = next(items, None), Block(self._forms, 1)
            if last is not None:
                with self._described(start):
                    self._forms.widen(*last)
                    block.add(*last)
            if last is None or digest(block.rows[0], block.targets[0]) != start.digest:
                raise UserCodeFailed(
                    f"{self._at(start)}: item {start.drawn - 1} is not the one that was trained on before: a resumed run needs the same items again, so their"
                    " order must follow from rank, size, seed and pass_number" + ", after `skip` too" * self._source.skips
                )
        return items

    def _check_end(self, at: Cursor, length: int | None) -> None:
        """Raise UserCodeFailed if a pass ends too early or too late."""
        ended = f"{self._at(at)}: the stream ended after {at.drawn:,} items"
        if not at.drawn:
            raise UserCodeFailed(f"{self._at(at)}: the stream gives no items: its shard is empty")
        if length is not None and at.drawn != length:
            raise UserCodeFailed(f"{ended}, and its `length` is {length:,}")
        if at.drawn < self._batch_size:
            advice = "lower `batch_size`, or give each worker more items"
            raise UserCodeFailed(f"{ended}, before a batch of {self._batch_size:,} was full: {advice}")

    def _check_range(self, block: Block, place: int, number: int) -> None:
        check_range(self._form, self._forms, block, place, number)

    @contextmanager
    def _described(self, at: Cursor) -> Iterator[None]:
        """Make errors name the worker and the pass."""
        self._forms.what = f"`{self._source.name}`: worker {self._key[0]}, pass {at.pass_number}"
        try:
            yield
        except UnequalItems:
            raise UserCodeFailed(
                f"{self._at(at)}: item {at.drawn}: its input is not as long as the input of item 0: pad it"
            ) from None

    def _at(self, at: Cursor) -> str:
        return self._source.at(self._key[0], at.pass_number)


def check_range(form: StreamForm, forms: PackedItems, block: Block, place: int, number: int) -> None:
    """Raise UserCodeFailed if a label or a token of the item at `place` exceeds the declared number."""
    for role, values, most, key in (
        ("target", block.targets[place], form.classes, "classes"),
        *(
            (f"input {name}".strip(), block.part(position)[place], most, "vocabulary")
            for position, (name, most) in enumerate(zip(forms.names or ("",), form.vocabulary, strict=True))
        ),
    ):
        if most is not None and int(values.max()) >= most:
            raise UserCodeFailed(f"{forms.at(number)}: its {role} holds {int(values.max())}, and `{key}` is {most}")


def first_items(source: Source, count: int, skip: int = 0, *, rank: int = 0, size: int = 1) -> list[Item]:
    """Return the first items of a shard with seed 0, by default of the whole stream."""
    return [item for _, item in islice(source.items(rank, size, 0, 0, skip), count)]


def form_of(source: Source, first: PackedItems) -> StreamForm:
    """Describe a stream by its first items and the attributes of its class."""
    data, what = source.data, f"[dataset] name: `{source.name}`"
    vocabulary = getattr(data, "vocabulary", None)
    tokens = []
    for name, part in zip(first.names or ("",), first.inputs, strict=True):
        most = vocabulary.get(name) if isinstance(vocabulary, dict) else vocabulary
        tokens.append(_declared(what, "vocabulary", most, "its inputs are tokens", "tokens") if part.name == "tokens" else None)
    classes = None
    if first.target.name == "label":
        classes = _declared(what, "classes", getattr(data, "classes", None), "its targets are labels", "classes")
    if first.target.name == "tokens":
        classes = tokens[0]
    return StreamForm(
        callable(getattr(data, "length", None)),
        first.names,
        tuple((part.name, part.shape) for part in first.inputs),
        (first.target.name, first.target.shape),
        classes,
        tuple(tokens),
    )


def _declared(what: str, key: str, value: Any, reason: str, of: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 2:
        hint = "" if value is None else f", and it is {value!r}"
        raise UserCodeFailed(
            f"{what}: {reason}, which a stream cannot count: set the attribute `{key}` to the number of {of}{hint}"
        )
    return int(value)


def digest(inputs: NDArray[Any], targets: NDArray[Any]) -> int:
    """Digest an item (63 bits)."""
    total = hashlib.blake2b(inputs.tobytes(), digest_size=8)
    total.update(targets.tobytes())
    return int.from_bytes(total.digest(), "little") >> 1


def seed_generators(seed: int) -> None:
    """Seed the generators of Python, numpy, and (if imported) torch, so that each run draws the same."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)
