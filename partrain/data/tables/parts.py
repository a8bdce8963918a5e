"""A table in several files of a folder, as Spark and Dask write it."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from partrain.data.tables.files import TableFile
from partrain.errors import InputMissing
from partrain.preprocess.column import RowBlock

PART_ROWS = 1 << 40
"""Row numbers of each part begin at a multiple of this."""
_NUMBER = re.compile(r"[0-9a-f-]*[0-9][0-9a-f-]*")
"""A number in a name, or a UUID written by Spark."""


class TableParts(TableFile):
    """A folder with the parts of a table."""

    def __init__(self, path: Path, parts: Sequence[TableFile], null_values: Sequence[str] | None) -> None:
        self._parts = parts
        super().__init__(path, parts[0].advice, null_values)

    @property
    def header_location(self) -> str:
        return self._parts[0].header_location

    @cached_property
    def index(self) -> list[str]:
        return self._parts[0].index

    @cached_property
    def unusable(self) -> Mapping[str, str]:
        return ChainMap(*(dict(part.unusable) for part in self._parts))

    def locate(self, number: int) -> str:
        return self._parts[number // PART_ROWS].locate(number % PART_ROWS)

    def separator_advice(self) -> str | None:
        return self._parts[0].separator_advice()

    def _header(self) -> list[str]:
        first, *others = self._parts
        for other in others:
            if odd := [name for name in (*first.names, *other.names) if not (name in first.places and name in other.places)]:
                what = "no column" if odd[0] in first.places else "a column"
                has = "has" if odd[0] in first.places else "has not"
                raise InputMissing(f"{other.header_location}: {what} `{odd[0]}`, which {first.path.name} {has}")
        return first.names

    def _blocks(self, names: Sequence[str], *, dense: bool) -> Iterator[RowBlock]:
        for first, part in zip(range(0, PART_ROWS * len(self._parts), PART_ROWS), self._parts, strict=True):
            part.unreadable = None if self.unreadable is None else []
            for block in part.blocks(names, dense=dense):
                yield RowBlock(self, [first + number for number in block.positions], block.columns)
            if self.unreadable is not None and part.unreadable:
                self.unreadable += ((first + number, wrong) for number, wrong in part.unreadable)


def part_paths(folder: Path) -> list[Path]:
    """Return the files of a folder, ordered by the numbers in their names; [] unless their names differ only in numbers.

    Hidden files and markers such as `_SUCCESS` do not count, nor do empty files next to others.
    """
    files = [file for file in folder.iterdir() if file.name[0] not in "._"]
    if len({_NUMBER.sub("", file.name.lower()) for file in files}) != 1 or not all(map(Path.is_file, files)):
        return []
    files = [file for file in files if file.stat().st_size] or files
    return sorted(files, key=lambda file: [int(text) if text.isdigit() else text for text in re.split("([0-9]+)", file.name)])
