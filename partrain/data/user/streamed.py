"""The items of a stream that are read before training: the first ones, the held-out items and the test items."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

from partrain.data.base import named_fields
from partrain.data.user.packed import Columns, PackedItems, UnequalItems
from partrain.data.user.shard import Source, first_items, form_of
from partrain.errors import UserCodeFailed

FIRST_ITEMS = 16
"""Number of items whose content enters the fingerprint of a stream."""


def streamed(source: Source, validation: int) -> tuple[dict[str, PackedItems], dict[str, Any]]:
    """Return the held-out items and the test items, by the prefix of their arrays, and a description of the stream.

    Raises UserCodeFailed if the stream does not give the same items each time.
    """
    what = f"[dataset] name: `{source.name}`"
    firsts = first_items(source, FIRST_ITEMS)
    if not firsts:
        raise UserCodeFailed(f"{what}: its stream is empty")
    first = _alike(PackedItems.of(firsts, f"`{source.name}`"))
    rows = _rows(first)
    form = replace(form_of(source, first), unsharded=_is_unsharded(source))
    _check_repeated(source, rows)
    parts = {"": first}
    if validation:
        parts[""] = _packed(_taken(source, "validation", validation), source, "validation")
    if (test := _attribute(source, "test")) is not None:
        parts["test_"] = _packed(test, source, "test")
    for items in parts.values():
        if items is not first:
            _unify(first, items)
    first.count = 0  # an empty array of held-out items has the forms of the first items
    total = hashlib.sha256(named_fields(form))
    for row in rows:
        total.update(row)
    return parts, asdict(form) | {"first": total.hexdigest()}


def _check_repeated(source: Source, rows: list[bytes]) -> None:
    """Raise UserCodeFailed if the stream does not repeat its first items, once more with some of them skipped if it can skip."""
    skip = int(source.skips and len(rows) > 1)
    again = first_items(source, len(rows) - skip, skip)
    repeated = _rows(PackedItems.of(again, f"`{source.name}`")) if again else []
    differing = [number for number, (row, other) in enumerate(zip(rows[skip:], repeated, strict=False), skip) if row != other]
    if len(repeated) < len(rows) - skip:
        differing.append(skip + len(repeated))
    if differing:
        how = f"with skip = {skip}" if skip else "again with the same arguments"
        raise UserCodeFailed(
            f"[dataset] name: `{source.name}`: `stream`, called {how}, gives another item {differing[0]} than before: items must follow from"
            " rank, size, seed and pass_number, or a run could not be resumed"
        )


def _is_unsharded(source: Source) -> bool:
    """Return whether two workers would get the same first items, if they are several."""
    with suppress(UserCodeFailed):  # it may not serve two: workers report their own failures
        shards = [first_items(source, FIRST_ITEMS, rank=rank, size=2) for rank in range(2)]
        first, second = ([[part.tobytes() for part in (*item.inputs, item.target)] for item in shard] for shard in shards)
        return len(first) > 1 and first == second
    return False


def _packed(data: Any, source: Source, name: str) -> PackedItems:
    """Wrap the items of an attribute."""
    return _alike(PackedItems(data, f"`{source.name}`, `{name}`", held=not hasattr(data, "__getitem__"), on_item=source.on_item))


def _alike(items: PackedItems) -> PackedItems:
    if items.unequal:
        raise UserCodeFailed(
            f"[dataset] name: {items.what}: its items have unequal lengths, and a stream needs one shape: pad them"
        )
    return items


def _unify(first: PackedItems, items: PackedItems) -> None:
    """Require that items have the forms of the stream's first items."""
    shapes = first.inputs
    try:
        first.unify(items)
    except UnequalItems:
        first.inputs = ()
    if first.inputs != shapes:
        raise UserCodeFailed(f"[dataset] name: {items.what}: its items are not as long as the items of the stream: pad them")


def _rows(items: PackedItems) -> list[bytes]:
    """Return the content of each item."""
    return [row.tobytes() + other.tobytes() for rows, targets in items.blocks() for row, other in zip(rows, targets, strict=True)]


def _attribute(source: Source, name: str) -> Any:
    """Return an attribute of the data set, or its result if it is a function; None if it is missing."""
    value = getattr(source.data, name, None)
    value = value() if callable(value) else value
    if value is None:
        return None
    if hasattr(value, "__len__") and hasattr(value, "__getitem__") and not isinstance(value, dict):
        return value
    if hasattr(value, "inputs") and hasattr(value, "targets"):
        return Columns(value.inputs, value.targets)
    if hasattr(value, "__iter__"):
        return value
    raise UserCodeFailed(
        f"[dataset] name: `{source.name}`, `{name}` is of type {type(value).__name__}: expected items, or an object with `inputs` and `targets`"
    )


def _taken(source: Source, name: str, count: int) -> list[Any]:
    """Return the first items of an attribute."""
    held = _attribute(source, name)
    what = f"[dataset] name: `{source.name}`"
    if held is None:
        raise UserCodeFailed(
            f"{what}: `validation` = {count} holds out items, and a stream gives them as attribute `{name}`, which there is not: add it, or set validation = 0"
        )
    items = (
        [held[number] for number in range(min(count, len(held)))] if hasattr(held, "__getitem__") else list(islice(held, count))
    )
    if len(items) < count:
        raise UserCodeFailed(f"{what}: its `{name}` has {len(items):,} items, fewer than `validation` = {count:,}")
    return items
