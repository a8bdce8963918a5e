"""Items with several inputs, or of unequal length: the rows of bytes that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from partrain.byte_layout import LENGTHS, InputPart, lay_out_parts, part_view

if TYPE_CHECKING:
    from numpy.typing import NDArray


def known_parts(descriptions: Sequence[dict[str, Any]], arrays: Sequence[NDArray[Any]]) -> tuple[InputPart, ...]:
    """Lay out parts, given as name, dtype, shape and `tokens`, and count the vocabulary of tokens in rows (n, bytes)."""
    parts, _ = lay_out_parts([(part["name"], part["dtype"], tuple(part["shape"])) for part in descriptions])
    counted = []
    for part, description in zip(parts, descriptions, strict=True):
        most = max(int(part_view(rows, part).max()) + 1 for rows in arrays) if description["tokens"] else None
        counted.append(replace(part, vocabulary=most))
    return tuple(counted)


def refused_name(name: object) -> str:
    """Return why a name cannot be an argument of `forward`, in words; "" if it can."""
    if not isinstance(name, str) or not name.isidentifier():
        return f"`{name}` is no name of an argument"
    return f"`{LENGTHS}` is the name of the lengths of padded items" * (name == LENGTHS)
