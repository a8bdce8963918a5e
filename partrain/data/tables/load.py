"""Items from the rows of a table: numbers, one-hot words, labels; standardized by the training items alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.data.base import GROUP, HELD_OUT, WEIGHTS, Allocate, Dataset, DatasetInfo, Training, fingerprint_of, lay_out, views
from partrain.data.fetch import local_path
from partrain.data.standardize import safe_std
from partrain.data.tables.files import TableFile
from partrain.data.tables.labels import groups_of, labels_of, time_order, weights_of
from partrain.data.tables.schema import open_table, scan
from partrain.data.tables.sections import Tabular
from partrain.errors import InputMissing
from partrain.preprocess.cells import Class
from partrain.preprocess.numbers import NumberColumn
from partrain.preprocess.table import OTHERS, TableSchema, kinds_of
from partrain.preprocess.words import MISSING, UNSEEN, CategoryColumn
from partrain.tasks.kinds import CLASSIFICATION, REGRESSION, Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Pair = tuple[NDArray[Any], NDArray[Any]]
    """Inputs (n, features), NaN where a value is missing, and targets, (n,) int64 or (n, k), in double precision."""

BLOCK = 1 << 14
"""Number of rows processed at a time."""
RARE = 2
"""Number of training items from which a word has a separate code."""


@dataclass
class _TablePart:
    """The items of a part: some rows of arrays in double precision, which several parts share."""

    inputs: NDArray[Any]
    """(n, features), NaN where a value is missing."""
    targets: NDArray[Any]
    """(n,) int64 or (n, k)."""
    rows: NDArray[Any]
    """(m,): the rows that are its items, in order."""

    @classmethod
    def of(cls, inputs: NDArray[Any], targets: NDArray[Any]) -> _TablePart:
        """Take all rows."""
        return cls(inputs, targets, np.arange(len(inputs)))

    @property
    def labels(self) -> NDArray[Any]:
        """The targets of the part's items."""
        labels: NDArray[Any] = self.targets[self.rows]
        return labels

    def chosen(self, items: NDArray[Any]) -> _TablePart:
        """Return the part with some of the items."""
        return replace(self, rows=self.rows[items])


def load(section: Tabular, folder: Path, allocate: Allocate, training: Training) -> Dataset:
    """Read a table, and read or split off its test items; see `data.load`.

    The rows are held in memory once, in double precision; items are picked from them in blocks.
    """
    scanned = scan(section, folder)
    schema = scanned.schema
    table = open_table(section, local_path(section.path, folder))
    whole = _TablePart.of(*read(table, schema))
    weights = weights_of(table, schema, section.sample_weight) if section.sample_weight else None
    if schema.time:
        rows = time_order(table.used_blocks(schema), schema.time)
        whole, weights = whole.chosen(rows), None if weights is None else weights[rows]
    numbers = dict[Class, int]()
    groups = groups_of(table, schema, section.group, numbers) if section.group else None
    parts, tested = {"": whole}, None
    if scanned.asked:
        first, last = section.split_off(len(whole.rows), scanned.asked, whole.labels if schema.classes else None, groups)
        weights = None if weights is None else weights[first]
        groups, tested = (None, None) if groups is None else (groups[first], groups[last])
        parts = {"": whole.chosen(first), "test_": whole.chosen(last)}
    elif section.test_path:
        test_table = open_table(section, local_path(section.test_path, folder))
        parts["test_"] = _TablePart.of(*read(test_table, schema))
        tested = groups_of(test_table, schema, section.group, numbers) if section.group else None
    count, held_out = len(parts[""].rows), None
    if section.validation_path:
        held_out_table = open_table(section, local_path(section.validation_path, folder))
        more = read(held_out_table, schema)
        own = parts[""]
        parts[""] = _TablePart.of(np.concatenate([own.inputs[own.rows], more[0]]), np.concatenate([own.labels, more[1]]))
        weights = None if weights is None else np.append(weights, np.ones(len(more[0]), np.float32))
        if groups is not None and section.group:
            groups = np.append(groups, groups_of(held_out_table, schema, section.group, numbers))
        trained, held_out = np.arange(count), np.arange(count, count + len(more[0]))
    else:
        trained = training(count, parts[""].labels if schema.classes else None, section.gap, groups)
        held_out = None if groups is None or not section.held_out else np.setdiff1d(np.arange(count), trained)
    learned = parts[""].chosen(trained)
    if schema.categories:
        schema = _without_rare_words(schema, learned, {id(part.inputs): part.inputs for part in parts.values()}.values())
    medians = _medians(learned.labels) if section.target_transform and schema.classes is None else None
    if medians is not None:
        parts = {name: replace(part, targets=np.arcsinh(part.targets / medians)) for name, part in parts.items()}
        learned = parts[""].chosen(trained)
    codec = _codec(section, schema, learned) | ({} if medians is None else {"target_log": medians.tolist()})
    named = {WEIGHTS: weights, HELD_OUT: held_out, GROUP: groups, f"test_{GROUP}": tested}
    extras = {name: array for name, array in named.items() if array is not None}
    slots = lay_out(
        {
            f"{prefix}{role}": ("int64" if array.dtype == np.int64 else "float32", (len(part.rows), *array.shape[1:]))
            for prefix, part in parts.items()
            for role, array in (("inputs", part.inputs), ("targets", part.targets))
        }
        | {name: (str(array.dtype), array.shape) for name, array in extras.items()}
    )
    buffer = allocate(slots[-1].end)
    arrays = views(slots, buffer)
    for name, array in extras.items():
        arrays[name][:] = array
    for prefix, part in parts.items():
        _store_items(arrays[f"{prefix}inputs"], part.inputs, part.rows, codec, str(table.path), schema.features)
        answers = part.labels
        if schema.classes is None and "target_mean" in codec:
            answers = _standardized(answers, codec["target_mean"], codec["target_std"])
        store(arrays[f"{prefix}targets"], answers, str(table.path), schema.targets)
    outputs = len(schema.targets) if schema.classes is None else len(schema.classes)
    task: Kind = REGRESSION if schema.classes is None else CLASSIFICATION
    fingerprint = fingerprint_of(slots, buffer, codec)
    return DatasetInfo(slots, task, outputs, 1.0, fingerprint, gap=section.gap, codec=codec).open(buffer)


def row_numbers(section: Tabular, folder: Path) -> dict[str, NDArray[np.int64]]:
    """Return each item's row number, for `TableFile.locate`: of items that stay (n,), and under "test_" of test items.

    The rows of `validation_path` are the last of those that stay.
    """
    scanned = scan(section, folder)
    schema, table = scanned.schema, open_table(section, local_path(section.path, folder))
    blocks = list(table.used_blocks(schema))
    numbers = np.concatenate([np.array(block.positions, np.int64) for block in blocks])
    labels = np.concatenate([labels_of(block, schema.targets[0], schema.classes) for block in blocks]) if schema.classes else None
    if schema.time:
        rows = time_order(blocks, schema.time)
        numbers, labels = numbers[rows], None if labels is None else labels[rows]
    parts = {"": numbers}
    if scanned.asked:
        groups = groups_of(table, schema, section.group, {}) if section.group else None
        first, last = section.split_off(len(numbers), scanned.asked, labels, groups)
        parts = {"": numbers[first], "test_": numbers[last]}
    for prefix, path in (("test_", section.test_path), ("", section.validation_path)):
        if path:
            more = open_table(section, local_path(path, folder)).used_blocks(schema)
            parts[prefix] = np.concatenate(
                [parts.get(prefix, numbers[:0]), *(np.array(block.positions, np.int64) for block in more)]
            )
    return parts


def groups_by_part(section: Tabular, folder: Path, dataset: Dataset) -> dict[str, list[Class]]:
    """Return the name of each item's group, by the number in the data set; see `data.groups_by_part`."""
    assert section.group is not None
    schema, numbers = scan(section, folder).schema, dict[Class, int]()
    for path in (section.path, section.test_path, section.validation_path):  # the order in which `load` numbers them
        if path:
            groups_of(open_table(section, local_path(path, folder)), schema, section.group, numbers)
    names = list(numbers)
    codes = {"": dataset.group, "test_": dataset.test_group}
    return {part: [names[code] for code in some.tolist()] for part, some in codes.items() if some is not None}


def read(table: TableFile, schema: TableSchema) -> Pair:
    """Read the rows of a table as numbers, without the rows to drop."""
    inputs, targets = _Grown(schema.width), []
    answers = _numbers(schema.targets)
    for block in table.used_blocks(schema):
        inputs.add(schema.read(block))
        targets.append(labels_of(block, schema.targets[0], schema.classes) if schema.classes else answers.read(block))
    if not targets:
        raise InputMissing(f"{table.path}: holds no items")
    return inputs.array, np.concatenate(targets)


class _Grown:
    """An array (n, width) float64 that grows in place, so that memory never holds a second copy."""

    def __init__(self, width: int) -> None:
        self.array: NDArray[Any] = np.empty((0, width))

    def add(self, rows: NDArray[Any]) -> None:
        count = len(self.array)
        self.array.resize((count + len(rows), rows.shape[1]), refcheck=False)
        self.array[count:] = rows


def encode(codec: Mapping[str, Any], table: TableFile) -> NDArray[Any]:
    """Compute inputs (n, features) float32 for a network whose checkpoint has this codec; the table needs no targets.

    Raises:
        InputMissing: a column is missing, a cell is not a number, or a word was not in the training items.
    """
    schema = replace(schema_of(codec), targets=(), classes=None)
    for name in schema.inputs:
        table.require(name, "inputs")
    numbers = _all_inputs(table, schema)
    result = np.empty(numbers.shape, np.float32)
    _store_items(result, numbers, np.arange(len(numbers)), codec, str(table.path), schema.features)
    return result


def schema_of(codec: Mapping[str, Any]) -> TableSchema:
    """Return the recipe that a codec stores. Rows are never dropped for inputs: a cell without a value is then an error."""
    missing = codec["missing"]
    drops = missing if isinstance(missing, str) else {OTHERS: "error"} | missing
    if not isinstance(drops, str):
        drops = {name: "error" if how == "drop" and name not in codec["targets"] else how for name, how in drops.items()}
    return TableSchema(
        kinds_of(codec["inputs"], lambda key: codec.get(key, {})),
        tuple(codec["targets"]),
        None if codec["classes"] is None else tuple(codec["classes"]),
        drops,
        indicators=dict.fromkeys(codec.get("missing_indicator", ())),
    )


def numbers_of(table: TableFile, names: Sequence[str]) -> NDArray[Any]:
    """Read columns of numbers as (n, columns) float64; InputMissing for a cell that is not a number."""
    return _all_inputs(table, _numbers(names))


def _numbers(names: Iterable[str]) -> TableSchema:
    """Return the recipe for columns of numbers without missing values."""
    return TableSchema(dict.fromkeys(names, NumberColumn()), (), None, "error")


def _all_inputs(table: TableFile, schema: TableSchema) -> NDArray[Any]:
    """Read (n, features) float64 of all rows, before standardization."""
    numbers = _Grown(schema.width)
    for block in table.blocks(schema.inputs):
        numbers.add(schema.read(block))
    return numbers.array


def _without_rare_words(schema: TableSchema, learned: _TablePart, inputs: Iterable[NDArray[Any]]) -> TableSchema:
    """Return the schema without words in fewer than RARE training items, and renumber the codes in all `inputs` in place.

    So the code of unseen words is trained, and no word keeps an untrained embedding.
    """
    kinds = dict(schema.kinds)
    for at, (count, name) in enumerate(zip(schema.categories, schema.owners, strict=True)):
        if not count:
            continue
        often = np.bincount(learned.inputs[learned.rows, at].astype(np.int64), minlength=count) >= RARE
        first = count - len(kinds[name].stored)
        often[:first] = True
        renumbered = np.where(often, np.cumsum(often) - 1, UNSEEN - MISSING)
        for numbers in inputs:
            numbers[:, at] = renumbered[numbers[:, at].astype(np.int64)]
        kinds[name] = CategoryColumn(tuple(compress(kinds[name].stored, often[first:])))
    return replace(schema, kinds=kinds)


def _codec(section: Tabular, schema: TableSchema, learned: _TablePart) -> dict[str, Any]:
    """Describe how rows become items, as JSON. Means and deviations come from the training items."""
    numeric = np.array(schema.numeric)
    mean, std = moments(learned.inputs, learned.rows, schema.features, section.path)
    codec: dict[str, Any] = {
        "form": "table",
        "inputs": list(schema.inputs),
        "one_hot": {},
        "features": schema.features,
        "targets": list(schema.targets),
        "classes": None if schema.classes is None else list(schema.classes),
        "missing": schema.missing,
        "fill": _fill(schema, learned, mean).tolist(),
        "mean": np.where(numeric & section.standardise, mean, 0.0).tolist(),
        "std": np.where(numeric & section.standardise, std, 1.0).tolist(),
    }
    for name, kind in schema.kinds.items():
        if kind.key:
            codec.setdefault(kind.key, {})[name] = kind.stored
    codec |= {"cardinalities": list(schema.categories)} if schema.categories else {}
    codec |= {"missing_indicator": list(schema.indicators)} if schema.indicators else {}
    if section.standardise_target and schema.classes is None:
        mean, std = moments(learned.targets, learned.rows, schema.targets, section.path)
        codec |= {"target_mean": mean.tolist(), "target_std": std.tolist()}
    return codec


def _medians(targets: NDArray[Any]) -> NDArray[Any]:
    """Return the median of |y| of each target (n, k), or the mean if it is 0; 1 if all values are 0."""
    sizes = np.abs(targets)
    middle = np.median(sizes, axis=0)
    middle = np.where(middle > 0, middle, sizes.mean(axis=0))
    result: NDArray[Any] = np.where(middle > 0, middle, 1.0)
    return result


def _fill(schema: TableSchema, learned: _TablePart, mean: NDArray[Any]) -> NDArray[Any]:
    """Return the number (features,) that replaces a missing one: the mean, the median or a constant."""
    fill = mean.copy()
    for at, name in enumerate(schema.owners):
        how = schema.filling(name)
        if how == "median":
            fill[at] = np.nanmedian(learned.inputs[learned.rows, at])
        elif not isinstance(how, str) and schema.numeric[at]:
            fill[at] = how
    return fill


def moments(numbers: NDArray[Any], rows: NDArray[Any], names: Iterable[str], path: str) -> Pair:
    """Compute mean and divisor of each column over the present values in some rows; the divisor is 1 for a constant column."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, counts = _mean(numbers, rows, lambda block: block)
        std = np.sqrt(_mean(numbers, rows, lambda block: (block - mean) ** 2)[0])
    if not counts.all():
        empty = list(names)[int(counts.argmin())]
        raise InputMissing(f"{path}: column `{empty}`: no training item has a value there: drop the column")
    if not (fine := np.isfinite(mean) & np.isfinite(std)).all():
        column = list(names)[int(fine.argmin())]
        raise InputMissing(f"{path}: column `{column}`: its numbers are too large for a mean and a deviation: scale the column")
    return mean, safe_std(mean, std)


def _mean(numbers: NDArray[Any], rows: NDArray[Any], of: Callable[[NDArray[Any]], NDArray[Any]]) -> Pair:
    """Return the mean of each column over the present values in some rows, and their number.

    The sums go from row to row, as in numpy.
    """
    total, counts = np.zeros((0, numbers.shape[1])), np.zeros(numbers.shape[1], np.int64)
    for some in _blocks(rows, len(rows) if numbers.shape[1] == 1 else BLOCK):  # numpy adds a single column in pairs
        block = of(numbers[some])
        present = ~np.isnan(block)
        counts += present.sum(axis=0)
        total = np.concatenate([total, np.where(present, block, 0.0)]).sum(axis=0, keepdims=True)
    return total[0] / counts, counts


def _blocks(rows: NDArray[Any], size: int) -> Iterator[NDArray[Any]]:
    return (rows[start : start + size] for start in range(0, len(rows), max(size, 1)))


def _store_items(
    target: NDArray[Any], inputs: NDArray[Any], rows: NDArray[Any], codec: Mapping[str, Any], path: str, names: Sequence[str]
) -> None:
    """Fill in the missing numbers of some rows, standardize them, and store them in `target` (n, features)."""
    for start, some in zip(range(0, len(rows), BLOCK), _blocks(rows, BLOCK), strict=True):
        block = inputs[some]
        filled = np.where(np.isnan(block), codec["fill"], block)
        store(target[start : start + len(some)], _standardized(filled, codec["mean"], codec["std"]), path, names)


def _standardized(numbers: NDArray[Any], mean: Sequence[float], std: Sequence[float]) -> NDArray[Any]:
    with np.errstate(over="ignore"):  # `store` refuses what float32 cannot hold
        scaled: NDArray[Any] = (numbers - np.asarray(mean)) / np.asarray(std)
    return scaled


def store(target: NDArray[Any], numbers: NDArray[Any], path: str, names: Sequence[str]) -> None:
    """Fill `target`, (n, columns) float32 or labels (n,), with numbers; InputMissing for a column beyond float32."""
    with np.errstate(over="ignore"):
        target[:] = numbers
    if target.dtype == np.float32 and not np.isfinite(target).all():
        column = names[int((~np.isfinite(target)).any(axis=0).argmax())]
        raise InputMissing(f"{path}: column `{column}`: holds a number that float32 cannot")
