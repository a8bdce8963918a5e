"""The schema of a table, and row counts: one pass over the rows, without numpy.

The pass finds the words of one-hot columns and targets, and decides whether targets are classes or numbers. So `validate`
reports the first fault of each column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import ref

from partrain.data.base import WEIGHTS, DatasetSpec, MappedFile, Remark, TargetNumbers, WrongContent, WrongSetting
from partrain.data.fetch import local_path
from partrain.data.tables.dialect import Dialect
from partrain.data.tables.files import UNNAMED, TableFile
from partrain.data.tables.formats import open_file
from partrain.data.tables.sections import HasNullValues, InMemory, Tabular
from partrain.data.tables.time_stamps import is_date, moments_of
from partrain.data.tables.typed_files import FrameTable
from partrain.errors import InputMissing
from partrain.number_format import counted
from partrain.preprocess.cells import (
    FEW_ROWS,
    MAX_DIGITS,
    MOST_CLASSES,
    Class,
    are_classes,
    is_digits,
    is_large,
    is_number,
    is_whole,
    numbers_rows,
    ordered_classes,
    parse_bool,
    parse_class,
)
from partrain.preprocess.column import CellFault
from partrain.preprocess.table import KINDS, OTHERS, TableSchema, kinds_of
from partrain.preprocess.words import places_of
from partrain.tasks import Kind
from partrain.tasks.kinds import CLASSIFICATION, REGRESSION

if TYPE_CHECKING:
    from partrain.data.python.frames import Frames

_KEYS = [kind.key for kind in KINDS]
"""Keys of a section that name columns of a kind."""
NO_NUMBERS = "holds a word, but targets must be numbers"


@dataclass(frozen=True)
class TableStats:
    """Schema and counts of the files of a data set, determined without converting cells to numbers."""

    schema: TableSchema
    rows: int
    """Rows of the file, without rows dropped for a missing value."""
    asked: int
    """Number of these rows to split off as test items."""
    split: int
    """Number of rows that become test items: the same number, unless whole groups are taken."""
    test_rows: int
    """Rows of the test file."""
    held_out_rows: int | None = None
    """Rows of the file of held-out items; None without such a file."""
    remarks: tuple[Remark, ...] = ()
    numbers: TargetNumbers | None = None
    """Facts about numeric targets."""

    @property
    def items(self) -> int:
        return self.rows - self.split + (self.held_out_rows or 0)

    @property
    def test_items(self) -> int:
        return self.split or self.test_rows


def read_spec(section: Tabular, folder: Path) -> DatasetSpec:
    """Read the rows once, without converting cells to numbers; see `data.read_spec`."""
    scanned = scan(section, folder)
    classes = scanned.schema.classes
    outputs = len(scanned.schema.targets) if classes is None else len(classes)
    task: Kind = REGRESSION if classes is None else CLASSIFICATION
    schema = scanned.schema
    return DatasetSpec(
        scanned.items,
        scanned.test_items,
        (schema.width,),
        task,
        outputs,
        categories=schema.categories,
        remarks=scanned.remarks,
        classes=classes or (),
        standardised=section.standardise_target and classes is None,
        numbers=scanned.numbers,
        weighted=section.sample_weight is not None,
        held_out=scanned.held_out_rows,
    )


def open_table(section: HasNullValues, path: Path) -> TableFile:
    """Open a file with the settings of a section."""
    dialect = Dialect.of(section)
    if isinstance(section, InMemory):
        return FrameTable(_frames().by_name[path.name], path.name, null_values=dialect.null_values)
    return open_file(path, dialect, kind=getattr(section, "kind", None))


def _frames() -> Frames:
    from partrain.data.python.frames import Frames  # imports numpy, which tables of files need only later

    return Frames.current()


def scan(section: Tabular, folder: Path) -> TableStats:
    """Read the rows once. The result is cached until a file changes; for DataFrames, until others are given."""
    paths = (local_path(path, folder) for path in (section.path, section.test_path, section.validation_path) if path)
    content = (ref(_frames()),) if isinstance(section, InMemory) else tuple(map(MappedFile.of, paths))
    return _scan(section.model_dump_json(exclude_unset=True), type(section), folder, content)


@lru_cache(maxsize=32)
def _scan(text: str, kind: type[Tabular], folder: Path, content: tuple[Hashable, ...]) -> TableStats:
    section = kind.model_validate_json(text)
    table = open_table(section, local_path(section.path, folder))
    columns, remarks = _columns(section, table)
    chosen = None if section.classes is None else tuple(section.classes)
    kinds = kinds_of(columns, lambda key: dict.fromkeys(getattr(section, key), ()))
    schema = TableSchema(
        kinds, tuple(section.target), None, section.missing, chosen, tuple(section.time), dict.fromkeys(section.missing_indicator)
    )
    contents = _contents(table, schema)
    if not contents.rows:
        raise _no_rows(table.path, section)
    if chosen is not None:
        _require_classes(chosen, contents.cells[section.target[0]], f"{table.path}: column `{section.target[0]}`")
    try:
        classes = _classes(section, table, contents)
    except WrongContent as wrong:
        raise WrongContent(
            *contents.faults.values(), *(fault for fault in wrong.faults if fault not in contents.faults.values())
        ) from None
    for name, stamps in contents.kinds_of_time.items():
        if len(stamps) > 1:
            raise WrongContent((["time"], f"{table.path}: column `{name}`: some time stamps are numbers, others dates"))
    if contents.faults:
        raise WrongContent(*(contents.faults[name] for name in schema.used if name in contents.faults))
    if section.sample_weight:
        _check_weights(table, schema, section.sample_weight)
    kinds = {name: kind.learned(contents.present(name)) if kind.learns else kind for name, kind in kinds.items()}
    if chosen is not None:
        classes = _in_given_order(classes, chosen, f"{table.path}: column `{section.target[0]}`")
    schema = replace(schema, kinds=kinds, classes=classes)
    remarks += _remarks(section, schema, table, contents)
    apart = dict[str, _Contents]()
    for key in ("test_path", "validation_path"):
        if path := getattr(section, key):
            apart[key], more = _check_other_rows(section, key, local_path(path, folder), schema)
            remarks += more
    tested, held_out = (apart[key].rows if key in apart else None for key in ("test_path", "validation_path"))
    if section.group and apart:
        _check_groups(section.group, schema, {"path": contents, **apart})
    asked = section.count_test_items(contents.rows, str(table.path), "rows")
    split = _count_test_rows(section, table, schema, contents, asked)
    numbers = None if classes else _target_numbers(schema, [contents, *apart.values()])
    return TableStats(schema, contents.rows, asked, split, tested or 0, held_out, tuple(remarks), numbers)


def _check_weights(table: TableFile, schema: TableSchema, name: str) -> None:
    """Raise WrongContent for a cell of the weights column that is not a weight."""
    from partrain.data.tables.labels import weights_of  # imports numpy, which most tables need only later

    try:
        weights_of(table, schema, name)
    except InputMissing as fault:
        raise WrongContent(([WEIGHTS], str(fault))) from None


def _check_groups(name: str, schema: TableSchema, files: Mapping[str, _Contents]) -> None:
    """Raise WrongContent for a group that occurs in two of the files; the keys of `files` name them."""
    import numpy as np  # which most tables need only later

    from partrain.data.tables.labels import groups_of

    numbers = dict[Class, int]()
    groups = [groups_of(file.table, schema, name, numbers) for file in files.values()]
    for (_, first, earlier), (key, second, later) in combinations(zip(files, files.values(), groups, strict=True), 2):
        if both := {*np.intersect1d(earlier, later).tolist()}:
            place, cell = second.table.first(name, partial(_has_number, numbers, both))
            rows = f"{counted(int(np.isin(later, [*both]).sum()), 'row')} of {counted(len(both), 'group')}"
            what = f"the group `{str(cell).strip()}` is also in {first.table.path} ({rows})"
            advice = f'move its rows into one of the files, or set drop = ["{name}"] instead of `group`'
            raise WrongContent(([key], f"{place}: column `{name}`: {what}; {advice}"))


def _has_number(numbers: Mapping[Class, int], wanted: Collection[int], cell: Any) -> bool:
    return numbers.get(parse_class(cell, whole=True)) in wanted


def _target_numbers(schema: TableSchema, tables: Sequence[_Contents]) -> TargetNumbers:
    """Return the facts about numeric targets, from their distinct cells."""
    cells = [cell for part in tables for name in schema.targets for cell in part.present(name)]
    truths = ((parse_bool(cell), cell) for cell in cells)
    numbers = [float(cell if truth is None else truth) for truth, cell in truths]
    return TargetNumbers(min(numbers), next((number for number in numbers if number not in (0, 1)), None))


def _count_test_rows(section: Tabular, table: TableFile, schema: TableSchema, contents: _Contents, asked: int) -> int:
    """Return the number of rows that become test items if `asked` ones are split off: as many, unless groups stay whole.

    Raises WrongContent for a class that only test rows have (without groups, no class with more rows than `asked` can be one), or
    for a row without a group.
    """
    name, rows = schema.targets[0], Counter[Class]()
    named = partial(parse_class, whole=bool(schema.classes) and isinstance((schema.classes or ())[0], int))
    for cell, count in contents.cells[name].items() if schema.classes else ():
        rows[named(cell)] += count
    if not section.group and min(rows.values(), default=contents.rows) > asked:
        return asked
    import numpy as np  # which most tables need only later

    from partrain.data.tables.labels import groups_of, labels_of, time_order

    groups, labels = groups_of(table, schema, section.group, {}) if section.group else None, None
    if not asked:
        return 0
    if schema.classes:
        labels = np.concatenate([labels_of(block, name, schema.classes) for block in table.used_blocks(schema)])
        if schema.time:
            labels = labels[time_order(table.used_blocks(schema), schema.time)]
    stay, tested = section.split_off(contents.rows, asked, labels, groups)
    if labels is not None:
        section.check_classes(
            lambda class_name: _where(table, name, lambda cell: named(cell) == class_name),
            schema.classes,
            labels[stay],
            labels[tested],
        )
    return len(tested)


def _no_rows(path: Path, section: Tabular) -> InputMissing:
    which = " of these `classes`" * bool(section.classes) + " without a missing value" * (
        "drop" in (section.missing if isinstance(section.missing, str) else section.missing.values())
    )
    return InputMissing(f"{path}: holds no rows{which}")


def _require_classes(chosen: tuple[Class, ...], cells: Collection[Any], where: str) -> None:
    """Raise WrongSetting for a class that no cell has."""
    present = {parse_class(cell, whole=False) for cell in cells}
    if lacking := [name for name in chosen if str(name) not in present]:
        raise WrongSetting("classes", f"`classes`: no row has the class {lacking[0]}: {where}", "name classes of that column")


def _in_given_order(classes: tuple[Class, ...] | None, chosen: tuple[Class, ...], where: str) -> tuple[Class, ...]:
    """Return the classes present, in the order of `chosen`. WrongSetting if targets are numbers."""
    if classes is None:
        raise WrongSetting("classes", f"`classes` selects classes, but these targets are numbers: {where}", "remove it")
    by_name = {str(name): name for name in classes}
    return tuple(by_name[str(name)] for name in chosen)


def _columns(section: Tabular, table: TableFile) -> tuple[tuple[str, ...], list[Remark]]:
    """Return the input columns, and remarks on columns left out by default."""
    faults: list[tuple[Sequence[str], str]] = []
    filled = [] if isinstance(section.missing, str) else [name for name in section.missing if name != OTHERS]
    named = [(key, getattr(section, key) or []) for key in ("target", "inputs", "drop", "time", *_KEYS)]
    single = [(key, [name]) for key in (WEIGHTS, "group") if (name := getattr(section, key)) is not None]
    for key, names in (*named, ("missing_indicator", section.missing_indicator), ("missing", filled), *single):
        for name in names:
            try:
                table.require(name, key)
            except WrongContent as wrong:
                faults += wrong.faults
    if faults:
        raise WrongContent(*faults)
    unused = {*section.target, *section.drop, section.sample_weight, section.group}
    left = [name for name in table.names if name not in unused]
    remarks = [Remark("path", f"{table.path}: {table.remark}", "save another one as a file of its own")] if table.remark else []
    named_by_key = {name for key in (*_KEYS, "missing_indicator", "time") for name in getattr(section, key)}
    for name in table.index if section.inputs is None else ():
        if name in left and name not in named_by_key:
            left.remove(name)
            what = "column 1 has no name, like" if name == table.names[0] and UNNAMED in name else f"column `{name}` is"
            message = f"{table.header_location}: {what} an index that pandas or R wrote: it is left out"
            remarks.append(Remark("path", message, f'drop = ["{name}"] says so, and `inputs` may name it `{name}`'))
    columns = dict.fromkeys(section.inputs or left)
    for key in (*_KEYS, "missing_indicator"):
        if idle := [name for name in getattr(section, key) if name not in columns]:
            message = f"{table.header_location}: column `{idle[0]}` is both in `{key}` and in `drop`"
            faults.append((["drop"], message))
    for column in [*section.target, *columns]:
        if held := table.unusable.get(column):
            message = f"{table.header_location}: column `{column}`: holds {held}, and a cell of a table is one value"
            faults.append(
                (["target"] if column in section.target else ["drop", "inputs"], f'{message}; leave it out: drop = ["{column}"]')
            )
    if faults:
        raise WrongContent(*faults)
    if not columns:
        raise InputMissing(f"{table.header_location}: no column is left to learn from except `{section.target[0]}`")
    return tuple(columns), remarks


@dataclass
class _Contents:
    """The facts about the rows of a file."""

    table: TableFile
    rows: int = 0
    cells: dict[str, Counter[Any]] = field(default_factory=dict)
    """Distinct cells of targets, of columns whose kind learns from them, and of columns that may number the rows."""
    faults: dict[str, tuple[Sequence[str], str]] = field(default_factory=dict)
    """The first fault of each column."""
    kinds_of_time: dict[str, set[bool]] = field(default_factory=dict)
    """By column of time stamps: contains True if some are dates, False if some are numbers."""

    def present(self, name: str) -> list[Any]:
        """Return the distinct cells of a column that have a value."""
        return [cell for cell in self.cells[name] if not self.table.is_missing(cell)]

    def words(self, name: str) -> list[Any]:
        """Return the distinct cells of a column that have a value and are not numbers."""
        return [cell for cell in self.present(name) if not is_number(cell)]


def _contents(table: TableFile, schema: TableSchema) -> _Contents:
    """Count the rows; collect distinct cells, and the first fault of each column: no value, or a word instead of a number."""
    texts = schema.words
    collected = [name for name, kind in schema.kinds.items() if kind.learns or numbers_rows(name)]
    contents = _Contents(table, cells={name: Counter() for name in (*collected, *schema.targets)})
    for block in table.used_blocks(schema):
        contents.rows += len(block.positions)
        for name in schema.time:
            moments_of(block, name)
            contents.kinds_of_time.setdefault(name, set()).update(map(is_date, block.columns[name].counts()))
        for name, cells in contents.cells.items():
            cells.update(block.columns[name].counts())
        for name in schema.inputs:
            if name not in texts and name not in contents.faults:
                try:
                    schema.raw(block, name)
                except CellFault as fault:
                    contents.faults[name] = fault.keys, fault.message
    for name in (*texts, *schema.targets):
        if not (name in texts and schema.may_miss(name)) and any(map(table.is_missing, contents.cells[name])):
            advice = 'fill it in, or set missing = "drop"' + f', or {{"{name}" = "category"}}' * (name in texts)
            contents.faults[name] = ["missing"], f"{_where(table, name, table.is_missing)}: no value; {advice}"
    return contents


def _remarks(section: Tabular, schema: TableSchema, table: TableFile, contents: _Contents) -> list[Remark]:
    """Return remarks on a target with a second possible reading, and on columns that number the rows."""
    remarks = []
    if section.target_kind == "auto" and schema.classes is None and len(schema.targets) == 1:
        cells = contents.cells[schema.targets[0]]
        if all(map(is_whole, cells)):
            many = f"{len(cells):,} different whole numbers are taken as numbers, a regression"
            message = f"{table.path}: column `{schema.targets[0]}`: {many}"
            remarks.append(Remark("target", message, 'target_kind = "number" says so, "class" makes them classes'))
    for name, kind in schema.kinds.items():
        cells, word = contents.cells.get(name, Counter()), kind.holds_words
        if len(cells) == contents.rows > FEW_ROWS and (word or (numbers_rows(name) and all(map(is_whole, cells)))):
            what = "another word" if word else "another number"
            message = (
                f"{table.header_location}: column `{name}` has {what} in each row, like a name of the row: nothing to learn from"
            )
            remarks.append(Remark("path", message, f'leave it out: drop = ["{name}"]'))
    return remarks


def _classes(section: Tabular, table: TableFile, contents: _Contents) -> tuple[Class, ...] | None:
    """Return the classes of the target in the order of their labels; None if it is a number."""
    cells = {cell for name in section.target for cell in contents.present(name)}
    if not cells:
        return None  # the missing value is reported separately
    whole = all(map(is_whole, cells))
    digits = whole or all(map(is_digits, cells))
    numbers = digits or all(map(is_number, cells))
    auto = section.target_kind == "auto"
    counts = Counter(str(cell).strip() for cell in contents.cells[section.target[0]].elements()) if whole and auto else Counter()
    many = whole and auto and not section.classes and not are_classes(len(cells), min(counts.values()))
    if section.target_kind == "number" or len(section.target) > 1 or (auto and numbers and (many or not digits)):
        for name in () if numbers else section.target:
            if words := contents.words(name):
                raise WrongContent((["target_kind", "target"], f"{_where(table, name, words.__contains__)}: {NO_NUMBERS}"))
        return None
    name = section.target[0]
    if auto and not numbers and any(map(is_number, cells)):
        what = 'holds a word where other targets are numbers; correct it, or set target_kind = "class" if it is one'
        raise WrongContent((["target"], f"{_where(table, name, contents.words(name).__contains__)}: {what}"))
    if whole and any(map(is_large, cells)):
        what = f"a class of more than {MAX_DIGITS} digits; give classes smaller numbers, or words for names"
        raise WrongContent((["target"], f"{_where(table, name, is_large)}: {what}"))
    classes = ordered_classes(cells)
    if auto and len(classes) > max(MOST_CLASSES, contents.rows // 2):
        many_words = f"{len(classes):,} different values in {contents.rows:,} rows are hardly classes"
        message = f'{table.path}: column `{name}`: {many_words}; set target_kind = "number" or "class"'
        raise WrongContent((["target"], message))
    if len(classes) < 2:
        raise WrongContent((["target"], f"{table.path}: column `{name}`: all rows have the class `{classes[0]}`"))
    return classes


def _check_other_rows(section: Tabular, key: str, path: Path, schema: TableSchema) -> tuple[_Contents, list[Remark]]:
    """Read the rows of the file that `key` names, check that its classes are known, and remark on unknown words."""
    table = open_table(section, path)
    faults = []
    for name in schema.used if section.group is None else (*schema.used, section.group):
        if name not in table.places:
            faults.append(f"{table.header_location}: no column `{name}`, which {section.path} has")
    if faults:
        raise WrongContent(*(([key], message) for message in faults))
    contents = _contents(table, schema)
    faults = [contents.faults[name][1] for name in schema.used if name in contents.faults]
    if unknown := _unknown(schema, contents):
        place, cell = table.first(name := schema.targets[0], unknown.__contains__)
        faults.append(f"{place}: column `{name}`: the class `{str(cell).strip()}` is not in {section.path}")
    for name in schema.targets if schema.classes is None else ():
        if numberless := contents.words(name):
            faults.append(f"{_where(table, name, numberless.__contains__)}: {NO_NUMBERS}")
    if faults:
        raise WrongContent(*(([key], message) for message in faults))
    if not contents.rows:
        raise _no_rows(path, section)
    remarks = []
    for name, words in schema.words.items():
        places = places_of(words)
        if unseen := [cell for cell in contents.present(name) if str(cell).strip() not in places]:
            place, cell = table.first(name, unseen.__contains__)
            rows = sum(contents.cells[name][cell] for cell in unseen)
            message = f"{place}: column `{name}`: the word `{str(cell).strip()[:60]}` is not in {section.path}, in {rows:,} rows"
            remarks.append(Remark(key, message, "words that were not trained on have their own category"))
    return contents, remarks


def _unknown(schema: TableSchema, contents: _Contents) -> list[Any]:
    """Return the classes of a file that are missing from the training file."""
    if not (classes := schema.classes):
        return []
    whole = isinstance(classes[0], int)
    return [cell for cell in contents.present(schema.targets[0]) if parse_class(cell, whole=whole) not in classes]


def _where(table: TableFile, name: str, is_it: Callable[[Any], bool]) -> str:
    """Return the location of the first cell of a column that meets a condition, for messages."""
    return f"{table.first(name, is_it)[0]}: column `{name}`"
