"""What is known of a table before numbers are made of it: one reading of the rows, without numpy.

How many there are, which words one-hot columns and targets hold, and whether targets are classes or numbers: so all faults that
concern names, words and the shape of the table are told by `validate`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from partrain.data.base import DatasetSpec, MappedFile
from partrain.data.fetch import local_path
from partrain.data.tables.files import CsvFile, ParquetFile, RowBlock, TableFile, is_missing
from partrain.data.tables.sections import Csv, Tabular
from partrain.errors import InputMissing
from partrain.tasks import Kind

Class = int | str
MAX_DIGITS = 18
"""Of a whole number that is a class; so many fit into 64 bits, whatever they are."""
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_DIGITS = re.compile(r"[+-]?[0-9]+")
"""Of these, `007`, `+1` and the like are names: there is another way to write the number."""


@dataclass(frozen=True)
class TableSchema:
    """How a row becomes an item."""

    inputs: tuple[str, ...]
    """Columns learnt from."""
    words: dict[str, tuple[str, ...]]
    """The words of each one-hot column."""
    targets: tuple[str, ...]
    classes: tuple[Class, ...] | None
    """The classes of the target, by label; None where targets are numbers."""
    missing: str

    @property
    def features(self) -> list[str]:
        """Names of an item's numbers: a column, or `column=word`."""
        return [name for column in self.inputs for name in self._of(column)]

    @property
    def width(self) -> int:
        """Numbers of an item."""
        return len(self.features)

    @property
    def used(self) -> tuple[str, ...]:
        """All columns that are read."""
        return (*self.inputs, *self.targets)

    def _of(self, column: str) -> list[str]:
        return [f"{column}={word}" for word in self.words[column]] if column in self.words else [column]


@dataclass(frozen=True)
class TableStats:
    """What is known of the files of a data set without making numbers of them."""

    schema: TableSchema
    rows: int
    """Rows of the file that count: those without a missing value, if others are dropped."""
    split: int
    """How many of them are test items."""
    test_rows: int
    """Those of the test file."""

    @property
    def items(self) -> int:
        return self.rows - self.split

    @property
    def test_items(self) -> int:
        return self.split or self.test_rows


def read_spec(section: Tabular, folder: Path) -> DatasetSpec:
    """Read the rows once, without making numbers of them; see `data.read_spec`."""
    known = scan(section, folder)
    classes = known.schema.classes
    outputs = len(known.schema.targets) if classes is None else len(classes)
    task: Kind = "regression" if classes is None else "classification"
    return DatasetSpec(known.items, known.test_items, (known.schema.width,), task, outputs)


def open_table(section: Tabular, path: Path) -> TableFile:
    """Open a file as the settings of a section say."""
    return CsvFile(path, section.separator, section.encoding) if isinstance(section, Csv) else ParquetFile(path)


def scan(section: Tabular, folder: Path) -> TableStats:
    """Read the rows once. The result is cached until a file changes."""
    files = [MappedFile.of(local_path(path, folder)) for path in (section.path, section.test_path) if path]
    return _scan(section.model_dump_json(exclude_unset=True), type(section), folder, tuple(files))


def parse_class(cell: Any, whole: bool) -> Class:
    """What a target cell names; `whole`: the classes are whole numbers, and it is one if it is written as they are."""
    if whole and _is_whole(cell) and not _is_large(cell):
        return int(cell)
    return str(cell).lower() if isinstance(cell, bool) else str(cell).strip()


def ordered_classes(cells: Collection[Any]) -> tuple[Class, ...]:
    """The different classes that target cells name, in the order of their labels: numbers by size, then words."""
    whole = all(map(_is_whole, cells))
    return tuple(sorted({parse_class(cell, whole) for cell in cells}, key=lambda one: (isinstance(one, str), one)))


def drop_missing(block: RowBlock, schema: TableSchema) -> RowBlock:
    """The rows that count."""
    if schema.missing != "drop":
        return block
    whole = [not any(map(is_missing, cells)) for cells in zip(*block.columns.values(), strict=True)]
    if all(whole):
        return block

    def those(cells: Sequence[Any]) -> list[Any]:
        return [cell for cell, keep in zip(cells, whole, strict=True) if keep]

    return RowBlock(those(block.positions), {name: those(cells) for name, cells in block.columns.items()})


@lru_cache(maxsize=32)
def _scan(text: str, kind: type[Tabular], folder: Path, files: tuple[MappedFile, ...]) -> TableStats:
    section = kind.model_validate_json(text)
    paths = [local_path(path, folder) for path in (section.path, section.test_path) if path]
    table = open_table(section, paths[0])
    columns = _columns(section, table)
    schema = TableSchema(columns, dict.fromkeys(section.one_hot, ()), tuple(section.target), None, section.missing)
    rows, found = _distinct_cells(table, schema)
    if not rows:
        raise InputMissing(f"{table.path}: holds no rows" + " without a missing value" * (section.missing == "drop"))
    words = {name: tuple(sorted({str(cell).strip() for cell in found[name]})) for name in section.one_hot}
    schema = TableSchema(columns, words, schema.targets, _classes(section, table, found, rows), section.missing)
    tested = _count_test_rows(section, paths[1], schema) if len(paths) > 1 else 0
    return TableStats(schema, rows, section.count_test_items(rows, str(table.path), "rows"), tested)


def _columns(section: Tabular, table: TableFile) -> tuple[str, ...]:
    """The input columns."""
    for key in ("target", "inputs", "drop", "one_hot"):
        for name in getattr(section, key) or []:
            table.require(name, key)
    left = [name for name in table.names if name not in (*section.target, *section.drop)]
    columns = tuple(section.inputs or left)
    if idle := [name for name in section.one_hot if name not in columns]:
        raise InputMissing(f"{table.header_location}: column `{idle[0]}` is both in `one_hot` and in `drop`")
    if not columns:
        raise InputMissing(f"{table.header_location}: no column is left to learn from beside `{section.target[0]}`")
    return columns


def _distinct_cells(table: TableFile, schema: TableSchema) -> tuple[int, dict[str, set[Any]]]:
    """The number of rows that count, and the different cells of targets and one-hot columns, none of them missing."""
    names = list(schema.used) if schema.missing == "drop" else [*schema.words, *schema.targets]
    found: dict[str, set[Any]] = {name: set() for name in (*schema.words, *schema.targets)}
    rows = 0
    for block in (drop_missing(block, schema) for block in table.blocks(names)):
        rows += len(block.positions)
        for name, cells in found.items():
            cells.update(block.columns[name])
    for name, cells in found.items():
        if any(map(is_missing, cells)):
            place = _locate_first(table, name, is_missing)
            raise InputMissing(f'{place}: column `{name}`: no value; fill it in, or set missing = "drop"')
    return rows, found


def _classes(section: Tabular, table: TableFile, found: dict[str, set[Any]], rows: int) -> tuple[Class, ...] | None:
    """The classes of the target in the order of their labels; None if it is a number."""
    cells = set().union(*(found[name] for name in section.target))
    whole = all(map(_is_whole, cells))
    digits = whole or all(map(_is_digits, cells))
    numbers = digits or all(map(_is_number, cells))
    if section.target_kind == "number" or len(section.target) > 1 or (section.target_kind == "auto" and numbers and not digits):
        for name in () if numbers else section.target:
            if any(not _is_number(cell) for cell in found[name]):
                place = _locate_first(table, name, lambda cell: not _is_number(cell))
                raise InputMissing(f"{place}: column `{name}`: holds a word, where targets are to be numbers")
        return None
    if section.target_kind == "auto" and not numbers and any(map(_is_number, cells)):
        name = section.target[0]
        place = _locate_first(table, name, lambda cell: not _is_number(cell))
        what = "holds a word where other targets are numbers"
        raise InputMissing(f'{place}: column `{name}`: {what}; correct it, or set target_kind = "class" if it is one')
    if whole and any(map(_is_large, cells)):
        what = f"a class of more than {MAX_DIGITS} digits; give classes smaller numbers, or words for names"
        raise InputMissing(f"{_locate_first(table, section.target[0], _is_large)}: column `{section.target[0]}`: {what}")
    classes = ordered_classes(cells)
    if section.target_kind == "auto" and len(classes) > max(20, rows // 2):
        many = f"{len(classes):,} different values in {rows:,} rows are hardly classes"
        raise InputMissing(f'{table.path}: column `{section.target[0]}`: {many}; set target_kind = "number" or "class"')
    if len(classes) < 2:
        raise InputMissing(f"{table.path}: column `{section.target[0]}`: all rows have the class `{classes[0]}`")
    return classes


def _count_test_rows(section: Tabular, path: Path, schema: TableSchema) -> int:
    """Rows of the test file, whose words and classes must be known."""
    table = open_table(section, path)
    for name in schema.used:
        table.require(name, "target" if name in schema.targets else "inputs")
    rows, found = _distinct_cells(table, schema)
    if not rows:
        raise InputMissing(f"{path}: holds no rows" + " without a missing value" * (section.missing == "drop"))
    for name in (*schema.words, *(schema.targets if schema.classes else ())):
        for cell in found[name]:
            if _unknown(name, schema, cell):
                at = _locate_first(table, name, partial(_unknown, name, schema))
                what = "class" if name in schema.targets else "word"
                raise InputMissing(f"{at}: column `{name}`: the {what} `{str(cell).strip()}` is not in {section.path}")
    return rows


def _unknown(name: str, schema: TableSchema, cell: Any) -> bool:
    """Whether a word or class was not there among the items for training."""
    if name in schema.words:
        return str(cell).strip() not in schema.words[name]
    assert schema.classes
    return parse_class(cell, isinstance(schema.classes[0], int)) not in schema.classes


def _locate_first(table: TableFile, name: str, is_it: Callable[[Any], bool]) -> str:
    """The place of the first row with such a cell."""
    rows: Iterator[tuple[int, Any]] = (
        pair for block in table.blocks([name]) for pair in zip(block.positions, block.columns[name], strict=True)
    )
    return table.locate(next(place for place, cell in rows if is_it(cell)))


def _is_whole(cell: Any) -> bool:
    """Whether a cell holds a whole number, written in the one way that there is."""
    if isinstance(cell, str):
        return _WHOLE.fullmatch(cell.strip()) is not None
    return isinstance(cell, int) and not isinstance(cell, bool)


def _is_digits(cell: Any) -> bool:
    """Whether a cell holds a whole number, or one written in another way, which is a name."""
    return _is_whole(cell) or (isinstance(cell, str) and _DIGITS.fullmatch(cell.strip()) is not None)


def _is_large(cell: Any) -> bool:
    """Whether a whole number has more digits than a class may have."""
    return len(str(cell).strip().lstrip("+-0")) > MAX_DIGITS


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return not isinstance(cell, bool) and "_" not in str(cell)
