"""The cells of a column that names groups, such as persons, machines or places. Nothing here imports numpy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from partrain.data.base import WrongContent
from partrain.preprocess.cells import Class, parse_class
from partrain.preprocess.column import RowBlock


def group_codes(block: RowBlock, name: str, numbers: dict[Class, int]) -> Sequence[int]:
    """Return the group number of each of some rows. `numbers` maps the groups met before; new ones are added.

    Raises WrongContent for a cell without a value.
    """
    cells = block.columns[name]
    if (hole := next((row for row, hole in enumerate(cells.mapped(block.source.is_missing)) if hole), None)) is not None:
        raise WrongContent((["group"], f"{block.where(name, hole)}: no value; fill it in, or delete the row"))
    return cells.mapped(lambda cell: numbers.setdefault(parse_class(cell, whole=True), len(numbers)))


def ordered_groups(names: Iterable[Class]) -> list[Class]:
    """Return group names in order: numbers before words."""
    return sorted(names, key=lambda name: (isinstance(name, str), name))
