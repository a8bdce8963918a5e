"""The schema of a table, and its rows counted: one pass over the rows, without numpy.

The pass finds the words of one-hot columns and targets, and decides if targets are classes or numbers. So `validate` reports
the first fault of each column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from partrain.data.base import Class, DatasetSpec, MappedFile, WrongContent, WrongSetting
from partrain.data.fetch import local_path
from partrain.data.tables.files import CsvFile, ParquetFile, RowBlock, TableFile, is_missing
from partrain.data.tables.sections import Csv, Tabular
from partrain.errors import InputMissing
from partrain.tasks import Kind

MAX_DIGITS = 18
"""Most digits of an integer class: all such integers fit into 64 bits."""
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_DIGITS = re.compile(r"[+-]?[0-9]+")
"""Texts such as `007` and `+1` match this only: they are names, because the number has another spelling."""


@dataclass(frozen=True)
class TableSchema:
    """Recipe from a row to an item."""

    inputs: tuple[str, ...]
    """Columns of inputs."""
    words: dict[str, tuple[str, ...]]
    """Words of each one-hot column."""
    targets: tuple[str, ...]
    classes: tuple[Class, ...] | None
    """Classes of the target, by label; None where targets are numbers."""
    missing: str
    selected: tuple[Class, ...] | None = None
    """Classes whose rows are used; None: all rows."""

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
    """Schema and counts of the files of a data set, found without making numbers of them."""

    schema: TableSchema
    rows: int
    """Rows of the file, without those to drop for a missing value."""
    split: int
    """Number of them that become test items."""
    test_rows: int
    """Rows of the test file."""

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
    """Parse the class in a target cell. `whole`: the classes are integers, and an integer in usual spelling is one."""
    if whole and _is_whole(cell) and not _is_large(cell):
        return int(cell)
    return str(cell).lower() if isinstance(cell, bool) else str(cell).strip()


def ordered_classes(cells: Collection[Any]) -> tuple[Class, ...]:
    """Return the distinct classes of target cells in the order of their labels: numbers by size, then words."""
    whole = all(map(_is_whole, cells))
    return tuple(sorted({parse_class(cell, whole) for cell in cells}, key=lambda one: (isinstance(one, str), one)))


def used_rows(block: RowBlock, schema: TableSchema) -> RowBlock:
    """Remove rows of classes that are not selected, and rows with a missing value, where the schema asks for it."""
    whole = [True] * len(block.positions)
    if schema.selected is not None:
        names = set(map(str, schema.selected))
        whole = [is_missing(cell) or parse_class(cell, False) in names for cell in block.columns[schema.targets[0]]]
    if schema.missing == "drop":
        rows = zip(whole, *block.columns.values(), strict=True)
        whole = [chosen and not any(map(is_missing, cells)) for chosen, *cells in rows]
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
    chosen = None if section.classes is None else tuple(section.classes)
    schema = TableSchema(columns, dict.fromkeys(section.one_hot, ()), tuple(section.target), None, section.missing, chosen)
    rows, found = _distinct_cells(table, schema)
    if not rows:
        raise _no_rows(table.path, section)
    if chosen is not None:
        _require_classes(chosen, found[section.target[0]], f"{table.path}: column `{section.target[0]}`")
    words = {name: tuple(sorted({str(cell).strip() for cell in found[name]})) for name in section.one_hot}
    classes = _classes(section, table, found, rows)
    if chosen is not None:
        classes = _in_given_order(classes, chosen, f"{table.path}: column `{section.target[0]}`")
    schema = TableSchema(columns, words, schema.targets, classes, section.missing, chosen)
    tested = _count_test_rows(section, paths[1], schema) if len(paths) > 1 else 0
    return TableStats(schema, rows, section.count_test_items(rows, str(table.path), "rows"), tested)


def _no_rows(path: Path, section: Tabular) -> InputMissing:
    which = " of these `classes`" * bool(section.classes) + " without a missing value" * (section.missing == "drop")
    return InputMissing(f"{path}: holds no rows{which}")


def _require_classes(chosen: tuple[Class, ...], cells: set[Any], where: str) -> None:
    """Raise WrongSetting for a class that no cell has."""
    there = {parse_class(cell, False) for cell in cells}
    if lacking := [one for one in chosen if str(one) not in there]:
        raise WrongSetting("classes", f"`classes`: no row has the class {lacking[0]}: {where}", "name classes of that column")


def _in_given_order(classes: tuple[Class, ...] | None, chosen: tuple[Class, ...], where: str) -> tuple[Class, ...]:
    """Return the classes found in the order of those `chosen`. WrongSetting if targets are numbers."""
    if classes is None:
        raise WrongSetting("classes", f"`classes` selects classes, but these targets are numbers: {where}", "remove it")
    by_name = {str(one): one for one in classes}
    return tuple(by_name[str(one)] for one in chosen)


def _columns(section: Tabular, table: TableFile) -> tuple[str, ...]:
    """Return the input columns."""
    faults: list[tuple[Sequence[str], str]] = []
    for key in ("target", "inputs", "drop", "one_hot"):
        for name in getattr(section, key) or []:
            try:
                table.require(name, key)
            except WrongContent as wrong:
                faults += wrong.faults
    if faults:
        raise WrongContent(*faults)
    left = [name for name in table.names if name not in (*section.target, *section.drop)]
    columns = tuple(section.inputs or left)
    if idle := [name for name in section.one_hot if name not in columns]:
        message = f"{table.header_location}: column `{idle[0]}` is both in `one_hot` and in `drop`"
        raise WrongContent((["drop"], message))
    if not columns:
        raise InputMissing(f"{table.header_location}: no column is left to learn from beside `{section.target[0]}`")
    return columns


def _distinct_cells(table: TableFile, schema: TableSchema) -> tuple[int, dict[str, set[Any]]]:
    """Count the rows, and collect the distinct cells of targets and one-hot columns.

    Raises:
        WrongContent: columns lack values, or hold words where numbers are needed: the first fault of each column.
    """
    found: dict[str, set[Any]] = {name: set() for name in (*schema.words, *schema.targets)}
    numeric = [name for name in schema.inputs if name not in found]
    faults: dict[str, tuple[Sequence[str], str]] = {}
    rows = 0
    for block in (used_rows(block, schema) for block in table.blocks(schema.used)):
        rows += len(block.positions)
        for name, cells in found.items():
            cells.update(block.columns[name])
        for name in numeric:
            if name not in faults and (fault := _first_fault(table, block, name, schema.missing == "mean")):
                faults[name] = fault
    for name, cells in found.items():
        if any(map(is_missing, cells)):
            message = f'{_locate_first(table, name, is_missing)}: column `{name}`: no value; fill it in, or set missing = "drop"'
            faults[name] = ["missing"], message
    if faults:
        raise WrongContent(*(faults[name] for name in schema.used if name in faults))
    return rows, found


def _first_fault(table: TableFile, block: RowBlock, name: str, holes: bool) -> tuple[Sequence[str], str] | None:
    """Return the first fault of a column of numbers, if there is one."""
    cells = block.columns[name]
    try:
        if math.isfinite(sum(map(float, cells))) and not (isinstance(cells[0], str) and "_" in "".join(cells)):
            return None
    except (TypeError, ValueError):
        pass
    for place, cell in zip(block.positions, cells, strict=True):
        if message := cell_fault(cell, table, place, name, holes):
            return ["missing"] if is_missing(cell) else ["one_hot", "inputs", "drop"], message
    return None


def cell_fault(cell: Any, table: TableFile, place: int, name: str, holes: bool) -> str:
    """Return the message for a cell that is no finite number, "" if it is one; missing values may be `holes`."""
    where = f"{table.locate(place)}: column `{name}`"
    if is_missing(cell):
        advice = ', or set missing = "drop", or "mean" for numeric inputs' * bool(table.way)
        return "" if holes else f"{where}: no value; fill it in{advice}"
    text = str(cell)
    try:
        number = float("_" if "_" in text else cell)
    except (TypeError, ValueError):
        advice = "; list the column in `one_hot` if it holds words, or in `drop`" * bool(table.way)
        return f"{where}: `{text[:60]}` is no number{advice}"
    return "" if math.isfinite(number) else f"{where}: `{text}` is no finite number"


def _classes(section: Tabular, table: TableFile, found: dict[str, set[Any]], rows: int) -> tuple[Class, ...] | None:
    """Return the classes of the target in the order of their labels; None if it is a number."""
    cells = set().union(*(found[name] for name in section.target))
    whole = all(map(_is_whole, cells))
    digits = whole or all(map(_is_digits, cells))
    numbers = digits or all(map(_is_number, cells))
    if section.target_kind == "number" or len(section.target) > 1 or (section.target_kind == "auto" and numbers and not digits):
        for name in () if numbers else section.target:
            if any(not _is_number(cell) for cell in found[name]):
                place = _locate_first(table, name, lambda cell: not _is_number(cell))
                raise WrongContent(
                    (["target_kind", "target"], f"{place}: column `{name}`: holds a word, but targets must be numbers")
                )
        return None
    if section.target_kind == "auto" and not numbers and any(map(_is_number, cells)):
        name = section.target[0]
        place = _locate_first(table, name, lambda cell: not _is_number(cell))
        what = "holds a word where other targets are numbers"
        message = f'{place}: column `{name}`: {what}; correct it, or set target_kind = "class" if it is one'
        raise WrongContent((["target"], message))
    if whole and any(map(_is_large, cells)):
        what = f"a class of more than {MAX_DIGITS} digits; give classes smaller numbers, or words for names"
        place = _locate_first(table, section.target[0], _is_large)
        raise WrongContent((["target"], f"{place}: column `{section.target[0]}`: {what}"))
    classes = ordered_classes(cells)
    if section.target_kind == "auto" and len(classes) > max(20, rows // 2):
        many = f"{len(classes):,} different values in {rows:,} rows are hardly classes"
        message = f'{table.path}: column `{section.target[0]}`: {many}; set target_kind = "number" or "class"'
        raise WrongContent((["target"], message))
    if len(classes) < 2:
        message = f"{table.path}: column `{section.target[0]}`: all rows have the class `{classes[0]}`"
        raise WrongContent((["target"], message))
    return classes


def _count_test_rows(section: Tabular, path: Path, schema: TableSchema) -> int:
    """Count the rows of the test file, and check that its words and classes are known."""
    table = open_table(section, path)
    for name in schema.used:
        table.require(name, "target" if name in schema.targets else "inputs")
    rows, found = _distinct_cells(table, schema)
    if not rows:
        raise _no_rows(path, section)
    for name in (*schema.words, *(schema.targets if schema.classes else ())):
        for cell in found[name]:
            if _unknown(name, schema, cell):
                at = _locate_first(table, name, partial(_unknown, name, schema))
                what = "class" if name in schema.targets else "word"
                message = f"{at}: column `{name}`: the {what} `{str(cell).strip()}` is not in {section.path}"
                raise WrongContent((["test_path"], message))
    return rows


def _unknown(name: str, schema: TableSchema, cell: Any) -> bool:
    """Tell if a word or class does not occur in the training file."""
    if name in schema.words:
        return str(cell).strip() not in schema.words[name]
    assert schema.classes
    return parse_class(cell, isinstance(schema.classes[0], int)) not in schema.classes


def _locate_first(table: TableFile, name: str, is_it: Callable[[Any], bool]) -> str:
    """Return the location of the first row whose cell meets a condition."""
    rows: Iterator[tuple[int, Any]] = (
        pair for block in table.blocks([name]) for pair in zip(block.positions, block.columns[name], strict=True)
    )
    return table.locate(next(place for place, cell in rows if is_it(cell)))


def _is_whole(cell: Any) -> bool:
    """Tell if a cell holds an integer in its usual spelling."""
    if isinstance(cell, str):
        return _WHOLE.fullmatch(cell.strip()) is not None
    return isinstance(cell, int) and not isinstance(cell, bool)


def _is_digits(cell: Any) -> bool:
    """Tell if a cell holds an integer in any spelling."""
    return _is_whole(cell) or (isinstance(cell, str) and _DIGITS.fullmatch(cell.strip()) is not None)


def _is_large(cell: Any) -> bool:
    """Tell if an integer has more digits than a class may have."""
    return len(str(cell).strip().lstrip("+-0")) > MAX_DIGITS


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return not isinstance(cell, bool) and "_" not in str(cell)
