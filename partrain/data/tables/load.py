"""Items from the rows of a table: numbers, one-hot words, labels; standardized by the training items alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.data.base import HELD_OUT, WEIGHTS, Allocate, Dataset, DatasetInfo, Training, fingerprint_of, lay_out, views
from partrain.data.fetch import local_path
from partrain.data.standardize import safe_std
from partrain.data.tables.files import TableFile
from partrain.data.tables.labels import groups_of, labels_of, time_order, weights_of
from partrain.data.tables.schema import open_table, scan
from partrain.data.tables.sections import Tabular
from partrain.errors import InputMissing
from partrain.preprocess.numbers import NumberColumn
from partrain.preprocess.table import OTHERS, TableSchema, kinds_of
from partrain.preprocess.words import MISSING, UNSEEN, CategoryColumn
from partrain.tasks.kinds import CLASSIFICATION, REGRESSION, Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Pair = tuple[NDArray[Any], NDArray[Any]]
    """Inputs (n, features), NaN where a value is missing, and targets, (n,) int64 or (n, k), in double precision."""

RARE = 2
"""Training items from which a word has a code of its own."""


def load(section: Tabular, folder: Path, allocate: Allocate, training: Training) -> Dataset:
    """Read a table, and read or split off its test items; see `data.load`."""
    scanned = scan(section, folder)
    schema = scanned.schema
    table = open_table(section, local_path(section.path, folder))
    inputs, targets = read(table, schema)
    weights = weights_of(table, schema, section.sample_weight) if section.sample_weight else None
    if schema.time:
        rows = time_order(table.used_blocks(schema), schema.time)
        inputs, targets, weights = inputs[rows], targets[rows], None if weights is None else weights[rows]
    groups = groups_of(table, schema, section.group) if section.group else None
    parts = {"": (inputs, targets)}
    if scanned.asked:
        first, last = section.split_off(len(inputs), scanned.asked, targets if schema.classes else None, groups)
        weights, groups = None if weights is None else weights[first], None if groups is None else groups[first]
        parts = {"": (inputs[first], targets[first]), "test_": (inputs[last], targets[last])}
    elif section.test_path:
        parts["test_"] = read(open_table(section, local_path(section.test_path, folder)), schema)
    count, held_out = len(parts[""][0]), None
    if section.validation_path:
        more = read(open_table(section, local_path(section.validation_path, folder)), schema)
        parts[""] = np.concatenate([parts[""][0], more[0]]), np.concatenate([parts[""][1], more[1]])
        weights = None if weights is None else np.append(weights, np.ones(len(more[0]), np.float32))
        trained, held_out = np.arange(count), np.arange(count, count + len(more[0]))
    else:
        trained = training(count, parts[""][1] if schema.classes else None, section.gap, groups)
        held_out = None if groups is None or not section.held_out else np.setdiff1d(np.arange(count), trained)
    if schema.categories:
        schema = _without_rare_words(schema, parts[""][0][trained], [pair[0] for pair in parts.values()])
    codec = _codec(section, schema, parts[""][0][trained], parts[""][1][trained])
    slots = lay_out(
        {
            f"{prefix}{role}": ("int64" if array.dtype == np.int64 else "float32", array.shape)
            for prefix, pair in parts.items()
            for role, array in zip(("inputs", "targets"), pair, strict=True)
        }
        | {
            name: (str(array.dtype), array.shape)
            for name, array in ((WEIGHTS, weights), (HELD_OUT, held_out))
            if array is not None
        }
    )
    buffer = allocate(slots[-1].end)
    arrays = views(slots, buffer)
    for name, array in ((WEIGHTS, weights), (HELD_OUT, held_out)):
        if array is not None:
            arrays[name][:] = array
    for prefix, (numbers, answers) in parts.items():
        store(arrays[f"{prefix}inputs"], _filled(numbers, codec), str(table.path), schema.features)
        if schema.classes is None and "target_mean" in codec:
            answers = _standardized(answers, codec["target_mean"], codec["target_std"])
        store(arrays[f"{prefix}targets"], answers, str(table.path), schema.targets)
    outputs = len(schema.targets) if schema.classes is None else len(schema.classes)
    task: Kind = REGRESSION if schema.classes is None else CLASSIFICATION
    fingerprint = fingerprint_of(slots, buffer, codec)
    return DatasetInfo(slots, task, outputs, 1.0, fingerprint, gap=section.gap, codec=codec).open(buffer)


def row_numbers(section: Tabular, folder: Path) -> dict[str, NDArray[np.int64]]:
    """Return the number of the row behind each item, as `TableFile.locate` takes it: of items that stay (n,), and under "test_" of test items. Those of `validation_path` are the last that stay."""
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
        groups = groups_of(table, schema, section.group) if section.group else None
        first, last = section.split_off(len(numbers), scanned.asked, labels, groups)
        parts = {"": numbers[first], "test_": numbers[last]}
    for prefix, path in (("test_", section.test_path), ("", section.validation_path)):
        if path:
            more = open_table(section, local_path(path, folder)).used_blocks(schema)
            parts[prefix] = np.concatenate(
                [parts.get(prefix, numbers[:0]), *(np.array(block.positions, np.int64) for block in more)]
            )
    return parts


def read(table: TableFile, schema: TableSchema) -> Pair:
    """Read the rows of a table as numbers, without the rows to drop."""
    inputs, targets = [], []
    answers = _numbers(schema.targets)
    for block in table.used_blocks(schema):
        inputs.append(schema.read(block))
        targets.append(labels_of(block, schema.targets[0], schema.classes) if schema.classes else answers.read(block))
    if not inputs:
        raise InputMissing(f"{table.path}: holds no items")
    return np.concatenate(inputs), np.concatenate(targets)


def encode(codec: Mapping[str, Any], table: TableFile) -> NDArray[Any]:
    """Compute inputs (n, features) float32 for a network whose checkpoint has this codec; the table needs no targets.

    Raises:
        InputMissing: a column is missing, a cell is no number, or a word was not among those trained on.
    """
    schema = replace(schema_of(codec), targets=(), classes=None)
    for name in schema.inputs:
        table.require(name, "inputs")
    numbers = _all_inputs(table, schema)
    result = np.empty(numbers.shape, np.float32)
    store(result, _filled(numbers, codec), str(table.path), schema.features)
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
    """Read columns of numbers as (n, columns) float64; InputMissing where a cell holds none."""
    return _all_inputs(table, _numbers(names))


def _numbers(names: Iterable[str]) -> TableSchema:
    """Return the recipe for columns of numbers without holes."""
    return TableSchema(dict.fromkeys(names, NumberColumn()), (), None, "error")


def _all_inputs(table: TableFile, schema: TableSchema) -> NDArray[Any]:
    """Read (n, features) float64 of all rows, before they are standardized."""
    blocks = [schema.read(block) for block in table.blocks(schema.inputs)]
    return np.concatenate(blocks) if blocks else np.empty((0, schema.width))


def _without_rare_words(schema: TableSchema, trained: NDArray[Any], inputs: Sequence[NDArray[Any]]) -> TableSchema:
    """Return the schema without words that fewer than RARE training items have, and renumber the codes in all `inputs` in place.

    So the code of unseen words is trained on, and no word keeps an embedding that was never trained.
    """
    kinds = dict(schema.kinds)
    for at, (count, name) in enumerate(zip(schema.categories, schema.owners, strict=True)):
        if not count:
            continue
        often = np.bincount(trained[:, at].astype(np.int64), minlength=count) >= RARE
        first = count - len(kinds[name].stored)
        often[:first] = True
        renumbered = np.where(often, np.cumsum(often) - 1, UNSEEN - MISSING)
        for numbers in inputs:
            numbers[:, at] = renumbered[numbers[:, at].astype(np.int64)]
        kinds[name] = CategoryColumn(tuple(compress(kinds[name].stored, often[first:])))
    return replace(schema, kinds=kinds)


def _codec(section: Tabular, schema: TableSchema, inputs: NDArray[Any], targets: NDArray[Any]) -> dict[str, Any]:
    """Describe how rows become items, as JSON. Means and deviations are those of the given items, the training items."""
    numeric = np.array(schema.numeric)
    mean, std = moments(inputs, schema.features, section.path)
    codec: dict[str, Any] = {
        "form": "table",
        "inputs": list(schema.inputs),
        "one_hot": {},
        "features": schema.features,
        "targets": list(schema.targets),
        "classes": None if schema.classes is None else list(schema.classes),
        "missing": schema.missing,
        "fill": _fill(schema, inputs, mean).tolist(),
        "mean": np.where(numeric & section.standardise, mean, 0.0).tolist(),
        "std": np.where(numeric & section.standardise, std, 1.0).tolist(),
    }
    for name, kind in schema.kinds.items():
        if kind.key:
            codec.setdefault(kind.key, {})[name] = kind.stored
    codec |= {"cardinalities": list(schema.categories)} if schema.categories else {}
    codec |= {"missing_indicator": list(schema.indicators)} if schema.indicators else {}
    if section.standardise_target and schema.classes is None:
        mean, std = moments(targets, schema.targets, section.path)
        codec |= {"target_mean": mean.tolist(), "target_std": std.tolist()}
    return codec


def _fill(schema: TableSchema, inputs: NDArray[Any], mean: NDArray[Any]) -> NDArray[Any]:
    """Return the number (features,) that stands for a missing one: the mean, the median or a constant."""
    fill = mean.copy()
    for at, name in enumerate(schema.owners):
        how = schema.filling(name)
        if how == "median":
            fill[at] = np.nanmedian(inputs[:, at])
        elif not isinstance(how, str) and schema.numeric[at]:
            fill[at] = how
    return fill


def moments(numbers: NDArray[Any], names: Iterable[str], path: str) -> Pair:
    """Compute mean and divisor of each column over the values present; the divisor is 1 where a column is constant."""
    present = ~np.isnan(numbers)
    if empty := [name for name, some in zip(names, present.any(axis=0), strict=True) if not some]:
        raise InputMissing(f"{path}: column `{empty[0]}`: no training item has a value there: drop the column")
    with np.errstate(over="ignore"):
        mean = np.nanmean(numbers, axis=0)
        std = np.sqrt(np.nanmean((numbers - mean) ** 2, axis=0))
    if not (fine := np.isfinite(mean) & np.isfinite(std)).all():
        column = list(names)[int(fine.argmin())]
        raise InputMissing(f"{path}: column `{column}`: its numbers are too large for a mean and a deviation: scale the column")
    return mean, safe_std(mean, std)


def _filled(inputs: NDArray[Any], codec: Mapping[str, Any]) -> NDArray[Any]:
    """Fill in the numbers missing of inputs (n, features), and standardize them."""
    return _standardized(np.where(np.isnan(inputs), codec["fill"], inputs), codec["mean"], codec["std"])


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
