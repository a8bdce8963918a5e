"""Items of a user's data set with several inputs, unequal lengths, or an unknown number: rows of bytes, see `byte_layout`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partrain.byte_layout import LENGTHS, lay_out_parts, part_view
from partrain.data.base import StreamForm, first_bad
from partrain.data.parts import refused_name
from partrain.data.user.forms import ItemForm, convert, failure, input_form, target_form
from partrain.errors import UserCodeFailed
from partrain.system.memory import memory_limits

_BLOCK = 1 << 20
"""Bytes of rows written at a time."""
_PADDED_TARGET = -100
"""Target of padding: `tasks.task.PADDING`."""


class UnequalItems(Exception):
    """Items differ in length from the first, or their number is unknown: they must be held until all are read."""


@dataclass(frozen=True)
class Item:
    """One item as arrays."""

    names: tuple[str, ...]
    """Names of the inputs; "" for each input of a tuple; empty for a single input."""
    inputs: tuple[NDArray[Any], ...]
    target: NDArray[Any]


class Columns:
    """Arrays, or a tuple or dict of arrays, and targets, as a sequence of items."""

    def __init__(self, inputs: Any, targets: Any) -> None:
        self.inputs, self.targets = inputs, targets
        some = list(inputs.values()) if isinstance(inputs, dict) else inputs if isinstance(inputs, tuple) else [inputs]
        self.sizes = [len(column) for column in (*some, targets)]

    def __len__(self) -> int:
        return self.sizes[-1]

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        if isinstance(self.inputs, dict):
            return {name: column[number] for name, column in self.inputs.items()}, self.targets[number]
        if isinstance(self.inputs, tuple):
            return tuple(column[number] for column in self.inputs), self.targets[number]
        return self.inputs[number], self.targets[number]


def has_several(item: Any) -> bool:
    """Return whether an item has several inputs: a dict or tuple of arrays before the target, or more than one array."""
    if not isinstance(item, tuple | list) or len(item) < 2:
        return False
    first = item[0]
    if len(item) > 2:
        return any(map(_is_array, item[:-1]))
    return isinstance(first, dict) or (isinstance(first, tuple) and any(map(_is_array, first)))


def _is_array(value: Any) -> bool:
    return bool(getattr(value, "ndim", 0)) or isinstance(value, list)


def parse(item: Any, where: str) -> Item:
    """Convert an item of a user's data set; UserCodeFailed if it is not one."""
    if not isinstance(item, tuple | list) or (len(item) != 2 and not has_several(item)):
        size = f" of {len(item)}" if isinstance(item, tuple | list) else ""
        raise UserCodeFailed(f"{where} is {type(item).__name__}{size}: expected an input and a target")
    *inputs, target = item
    parts: Any = inputs[0] if len(inputs) == 1 else tuple(inputs)
    wanted = convert(target, f"{where}: its target")
    if not has_several(item):
        return Item((), (convert(parts, f"{where}: its input"),), wanted)
    named = parts if isinstance(parts, dict) else dict(enumerate(parts))
    if not named:
        raise UserCodeFailed(f"{where}: its input is an empty {type(parts).__name__}: expected arrays")
    for name in parts if isinstance(parts, dict) else ():
        if fault := refused_name(name):
            raise UserCodeFailed(f"{where}: its input: {fault}; inputs by name are the arguments of the network's forward")
    names = tuple(parts) if isinstance(parts, dict) else ("",) * len(named)
    arrays = tuple(convert(value, f"{where}: its input {_shown(name)}") for name, value in named.items())
    return Item(names, arrays, wanted)


class PackedItems:
    """Items in order, with one input or several."""

    def __init__(self, data: Any, what: str, *, held: bool, on_item: Callable[[], None] = lambda: None) -> None:
        """`on_item` is called after each item.

        `held`: read and keep all items now. Only then may their lengths differ, or `data` be a mere iterable.
        """
        self.what, self.on_item = what, on_item
        self._data = data
        self._items: list[Item] | None = None
        if held:
            self._items = self._hold()
            count = len(self._items)
        elif not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
            raise UnequalItems
        else:
            count = len(data)
        if not count:
            raise UserCodeFailed(f"[dataset] name: {what} is empty")
        self.count: int = count
        self._compare(held=held)

    def _compare(self, *, held: bool) -> None:
        """Take the forms from the first item. If items are `held`, compare the others with them."""
        first = self._item(0)
        self.names = first.names
        self.inputs = tuple(self._form(0, position, value) for position, value in enumerate(first.inputs))
        self.target = target_form(first.target, f"{self.at(0)}: its target", self.inputs[0] if len(self.inputs) == 1 else None)
        self.unequal: frozenset[int] = frozenset()
        """Inputs, by position, whose lengths differ."""
        for number in range(1, self.count if held else 1):
            self.widen(number, self._items[number] if self._items else first)

    @classmethod
    def of(cls, items: list[Item], what: str) -> PackedItems:
        """Make a sequence of these items."""
        made = cls.__new__(cls)
        made.what, made.on_item, made._data, made._items, made.count = what, lambda: None, (), items, len(items)
        made._compare(held=True)
        return made

    @classmethod
    def with_forms(cls, form: StreamForm) -> PackedItems:
        """Make a sequence without items that has the forms of a stream."""
        made = cls.__new__(cls)
        made.what, made.on_item, made._data, made._items, made.count = "", lambda: None, (), None, 0
        made.unequal = frozenset()
        made.names = form.names
        made.inputs, made.target = tuple(ItemForm(*item_form) for item_form in form.inputs), ItemForm(*form.target)
        return made

    def unify(self, other: PackedItems) -> None:
        """Give training and test items the same forms; UserCodeFailed if that is impossible."""
        if self.names != other.names:
            raise UserCodeFailed(
                f"[dataset] name: {other.what}: its inputs are {_names(other)}, those to train on {_names(self)}"
            )
        if self._items is None and (self.inputs, self.target) != (other.inputs, other.target) and self._padded(other):
            raise UnequalItems
        for position, (own, its) in enumerate(zip(self.inputs, other.inputs, strict=True)):
            if own != its and not own.differs_in_length(its):
                raise UserCodeFailed(f"[dataset] name: {other.what}: its inputs are {its}, those to train on {own}")
            self._longest(position, its)
        if self.target.name != other.target.name or (self.target.name != "tokens" and self.target != other.target):
            raise UserCodeFailed(f"[dataset] name: {other.what}: its targets are {other.target}, those to train on {self.target}")
        self.unequal |= other.unequal
        other.inputs, other.target, other.unequal = self.inputs, self.target, self.unequal

    @property
    def packed(self) -> bool:
        """True if items become rows of bytes. Otherwise they have one input of one shape, an array."""
        return bool(self.names) or bool(self.unequal)

    def parts(self) -> list[dict[str, Any]]:
        """Return name, dtype, shape and `tokens` of each part of a row; empty if items are not rows."""
        if not self.packed:
            return []
        names = self.names or ("",)
        if self.unequal and len(names) > 1 and not names[0]:
            raise UserCodeFailed(
                f"[dataset] name: {self.what}: its inputs are a tuple, and their lengths differ: give a dict, so that the lengths get names"
            )
        columns = [
            {"name": name, "dtype": form.dtype, "shape": form.shape if form.name == "tokens" else form.shape or (1,), "tokens": form.name == "tokens"}
            for name, form in zip(names, self.inputs, strict=True)
        ]  # fmt: skip
        for position in sorted(self.unequal):
            name = f"{names[position]}_{LENGTHS}" if names[position] else LENGTHS
            columns.append({"name": name, "dtype": "int64", "shape": (), "tokens": False})
        return columns

    def items(self) -> Iterator[Item]:
        """Yield the items, each checked."""
        for number in range(self.count):
            yield self._checked(number)

    def blocks(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield inputs, or rows of bytes, and targets in the types of the buffer, some items at a time."""
        most = max(1, _BLOCK // max(1, Block(self, 1).rows.nbytes))
        for start in range(0, self.count, most):
            numbers = range(start, min(start + most, self.count))
            block = Block(self, len(numbers))
            for number in numbers:
                block.add(number, self._checked(number))
            yield block.rows, block.targets

    def _hold(self) -> list[Item]:
        """Read all items; UserCodeFailed if they exceed free memory, as with an endless iterator."""
        items: list[Item] = []
        size, free = 0, memory_limits().free
        for number, raw in self._read():
            items.append(parse(raw, self.at(number)))
            self.on_item()
            size += sum(array.nbytes for array in (*items[-1].inputs, items[-1].target))
            if size > free // 2:
                raise UserCodeFailed(
                    f"[dataset] name: {self.what}: its first {number + 1:,} items need {size / 2**30:,.1f} GiB, and items without a"
                    " known number, or of unequal length, are held in memory: end the iterator, or give __len__ and items of one shape"
                )
        return items

    def _read(self) -> Iterator[tuple[int, Any]]:
        """Yield the items and their numbers: by index if the data set has a length, else by iteration."""
        where = "its items"
        try:
            if hasattr(self._data, "__getitem__") and hasattr(self._data, "__len__"):
                for number in range(len(self._data)):
                    where = f"item {number}"
                    yield number, self._data[number]
            else:
                for number, item in enumerate(self._data):
                    where = f"item {number + 1}"
                    yield number, item
        except UserCodeFailed:
            raise
        except Exception as error:
            raise failure(f"[dataset] name: {self.what}: {where}", error) from None

    def _item(self, number: int) -> Item:
        if self._items is not None:
            return self._items[number]
        try:
            item = self._data[number]
        except Exception as error:
            raise failure(self.at(number), error) from None
        self.on_item()
        return parse(item, self.at(number))

    def _checked(self, number: int) -> Item:
        """Return an item that has the forms of the first; UnequalItems or UserCodeFailed otherwise."""
        item = self._item(number)
        if self._items is None:
            self.widen(number, item)
        return item

    def widen(self, number: int, item: Item) -> None:
        """Compare an item with the earlier ones, and include its lengths."""
        if item.names != self.names:
            raise UserCodeFailed(f"{self.at(number)}: its inputs are {list(item.names)}, and item 0 has {list(self.names)}")
        forms = [self._form(number, position, value) for position, value in enumerate(item.inputs)]
        for position, (form, first) in enumerate(zip(forms, self.inputs, strict=True)):
            if form == first:
                continue
            if not form.differs_in_length(first):
                which = f" {_shown(self.names[position])}" if self.names else ""
                raise UserCodeFailed(f"{self.at(number)}: its input{which} is {form}, and item 0 has {first}")
            if self._items is None:
                raise UnequalItems
            self._longest(position, form)
        own = forms[0] if len(forms) == 1 else None
        target = target_form(item.target, f"{self.at(number)}: its target", own)
        if target != self.target:
            if target.name != "tokens" or self.target.name != "tokens" or self._items is None:
                raise UserCodeFailed(f"{self.at(number)}: its target is {target}, and item 0 has {self.target}")
            self.target = replace(self.target, shape=self.inputs[0].shape)

    def _longest(self, position: int, form: ItemForm) -> None:
        own = self.inputs[position]
        if own.shape != form.shape:
            self.unequal |= {position}
            longest = replace(own, shape=(max(own.shape[0], form.shape[0]), *own.shape[1:]))
            self.inputs = (*self.inputs[:position], longest, *self.inputs[position + 1 :])
            if self.target.name == "tokens":
                self.target = replace(self.target, shape=longest.shape)

    def _padded(self, other: PackedItems) -> bool:
        pairs = zip(self.inputs, other.inputs, strict=True)
        return all(own == its or own.differs_in_length(its) for own, its in pairs)

    def _form(self, number: int, position: int, array: NDArray[Any]) -> ItemForm:
        return input_form(array, f"{self.at(number)}: its input")

    def at(self, number: int) -> str:
        """Name an item in words."""
        return f"[dataset] name: {self.what}: item {number}"


class Block:
    """Inputs, or rows of bytes, and targets of some items, in the types of the buffer."""

    def __init__(self, items: PackedItems, count: int) -> None:
        """Allocate space for `count` items of these forms."""
        self._items, self._count = items, 0
        parts, width = lay_out_parts([(item["name"], item["dtype"], item["shape"]) for item in items.parts()])
        form = items.inputs[0]
        shape, kind = ((width,), "uint8") if parts else (form.stored, form.dtype)
        self.rows = np.zeros((count, *shape), kind)
        self.targets = np.full((count, *items.target.stored), _PADDED_TARGET, items.target.dtype)
        self._places = [part_view(self.rows, part) for part in parts] or [self.rows]

    def add(self, number: int, item: Item) -> None:
        """Write the next item: item `number` of its source."""
        own, place = self._items, self._count
        for position, value in enumerate(item.inputs):
            self._write(
                self._places[position][place], value, number, f"input {_shown(own.names[position])}" if own.names else "input"
            )
        for extra, position in enumerate(sorted(own.unequal)):
            self._places[len(own.inputs) + extra][place] = len(item.inputs[position])
        self._write(self.targets[place : place + 1].reshape(own.target.stored), item.target, number, "target")
        self._count += 1

    def part(self, position: int) -> NDArray[Any]:
        """Return one input of all items, as a view."""
        return self._places[position]

    def _write(self, place: NDArray[Any], array: NDArray[Any], number: int, role: str) -> None:
        """Write an array into the first elements of its place, converted and checked."""
        with np.errstate(over="ignore", invalid="ignore"):
            kept = np.asarray(array).astype(place.dtype)
        if not kept.ndim and place.ndim:
            kept = kept.reshape(1)
        bad = ~np.isfinite(kept) if place.dtype == np.float32 else kept < 0
        if np.any(bad):
            wrong = "holds a number that is not finite" if place.dtype == np.float32 else "holds a negative number"
            at = first_bad(np.asarray(bad)[np.newaxis])[1]
            raise UserCodeFailed(f"{self._items.at(number)}: its {role} {wrong}{at}")
        if place.ndim:
            place[: len(kept)] = kept
        else:
            place[...] = kept


def _shown(name: object) -> str:
    return f"`{name}`" if isinstance(name, str) and name else str(name) if name != "" else ""


def _names(items: PackedItems) -> str:
    return ", ".join(map(_shown, items.names)) or "one array"
