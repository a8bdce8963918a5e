"""Descriptions of data sets and files: shapes, classes, ranges, faults, and items shared by training and evaluation."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.data.arrays.files import ARRAYS, ArraySource, arrays_of
from partrain.data.arrays.idx import idx
from partrain.data.base import Dataset, first_bad, items_of_block
from partrain.data.tables.files import INSPECT, TableFile
from partrain.data.tables.formats import SUFFIXES, format_of, open_file
from partrain.data.tables.labels import NoLabel
from partrain.display.text_table import aligned
from partrain.errors import InputMissing
from partrain.preprocess.cells import finite

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COLUMNS = 1000
"""Maximum number of values of an item that are shown one by one."""


def describe_dataset(dataset: Dataset, trained: NDArray[Any], held_out: NDArray[Any]) -> dict[str, Any]:
    """Describe a data set in figures; `trained` and `held_out` are indices of its items."""
    parts = {"training": (dataset.inputs, dataset.targets, trained), "validation": (dataset.inputs, dataset.targets, held_out)}
    if dataset.test_inputs is not None and dataset.test_targets is not None:
        parts["test"] = (dataset.test_inputs, dataset.test_targets, np.arange(len(dataset.test_inputs)))
    parts = {name: part for name, part in parts.items() if len(part[2])}
    columns, faults = _columns(dataset)
    faults = [remark] if (remark := dataset.remark()) else faults
    faults += [remark] if (remark := dataset.label_remark()) else []
    seen: dict[str, list[bytes]] = {"training": []}
    seen |= {name: _hashes(inputs, index) for name, (inputs, _, index) in parts.items()}
    fingerprints = set(seen["training"])
    shared = {
        name: sum(fingerprint in fingerprints for fingerprint in prints) for name, prints in seen.items() if name != "training"
    }
    faults += [f"{count:,} of the {name} items are also trained on" for name, count in shared.items() if count]
    if torn := _contradictions(seen["training"], dataset.targets, trained):
        faults.append(f"{torn:,} different items to train on come with more than one target")
    return {
        "task": dataset.task,
        "stream": dataset.stream is not None,
        "items": {name: len(index) for name, (_, _, index) in parts.items()},
        "inputs": _inputs(dataset),
        "outputs": dataset.outputs,
        "vocabulary": dataset.vocabulary,
        "classes": _classes(dataset, parts),
        "columns": columns,
        "repeated": len(seen["training"]) - len(fingerprints),
        "overlap": shared,
        "faults": faults,
        "fingerprint": dataset.fingerprint,
    }


def _inputs(dataset: Dataset) -> dict[str, Any]:
    facts = {"shape": list(dataset.item_shape), "dtype": str(dataset.inputs.dtype), "scale": dataset.scale}
    if dataset.parts:
        forms = {part.name or str(number): f"{part.dtype} {part.shape}" for number, part in enumerate(dataset.parts)}
        facts |= {"dtype": dataset.parts[0].dtype, "parts": forms}
    return facts


def describe_file(path: Path) -> dict[str, Any]:
    """Describe a table or a file of arrays in figures, without a job."""
    if path.suffix == ".idx" or "ubyte" in path.name:
        return {"arrays": [_array("", idx(path))]}
    if kind := ARRAYS.get(path.suffix.lower()):
        arrays = {name: array for name, array in arrays_of(path, kind).items() if array.shape or kind != "hdf5"}
        return {"arrays": [_array(name, array) for name, array in arrays.items()]}
    if format_of(path) is None:
        what = f"{path}: by its name neither a table ({', '.join(SUFFIXES)}) nor arrays ({', '.join(ARRAYS)}, .idx)"
        raise InputMissing(f"{what}: pass a job file instead")
    return _table(open_file(path, advice=INSPECT))


def _classes(dataset: Dataset, parts: dict[str, tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]) -> list[dict[str, Any]]:
    """Count the items of each class in each part."""
    if not dataset.kind.one_class:
        return []
    names = dataset.codec.get("classes") or range(dataset.outputs)
    counts = {name: np.bincount(targets[index], minlength=dataset.outputs) for name, (_, targets, index) in parts.items()}
    return [
        {"name": name} | {part: int(occurrences[label]) for part, occurrences in counts.items()}
        for label, name in enumerate(names)
    ]


def _columns(dataset: Dataset) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the range of each number of an item, or of all together, and faults.

    Standardized numbers are shown in their original units.
    """
    if dataset.vocabulary is not None or dataset.parts or not len(dataset.inputs):
        return [], []
    names, shift, spread = _names(dataset)
    stats, broken, where = _NumberStats(len(names)), 0, 0
    count, step = len(dataset.inputs if dataset.rows is None else dataset.rows), items_of_block(dataset.inputs)
    for first in range(0, count, step):
        some = slice(first, first + step)
        block = dataset.inputs[some if dataset.rows is None else dataset.rows[some]]
        block = (
            np.moveaxis(block, -1 if dataset.channel_scale else dataset.codec.get("axis", -1), -1)
            .reshape(-1, len(names))
            .astype(np.float64)
        )
        fine = np.isfinite(block).all(axis=1)
        where = where if broken or fine.all() else first + int(fine.argmin())
        broken += int((~np.isfinite(block)).sum())
        stats.add(block[fine])
    low, high, mean, std = stats.result()
    spread = spread * dataset.scale
    low, high, mean, std = low * spread + shift, high * spread + shift, mean * spread + shift, std * spread
    tiny = 1e-6 * np.maximum(abs(low), abs(high))  # rounding of zero when float32 is standardized and restored
    low, high, mean = (np.where(abs(value) < tiny, 0.0, value) for value in (low, high, mean))
    rows = zip(names, *(np.broadcast_to(value, len(names)).tolist() for value in (low, high, mean, std)), strict=True)
    columns = [dict(zip(("name", "min", "max", "mean", "std"), row, strict=True)) for row in rows]
    faults = [f"{broken:,} numbers of inputs are not finite, the first in item {where}"] if broken else []
    faults += [f"`{column['name']}` is the same for all items" for column in columns if column["min"] == column["max"]]
    return columns, faults


def _names(dataset: Dataset) -> tuple[list[str], NDArray[Any], NDArray[Any]]:
    """Return names, means and deviations of the numbers along the last axis of inputs; one name for all together."""
    codec, shape = dataset.codec, dataset.inputs.shape[1:]
    match codec.get("form"):
        case "table":
            return list(codec["features"]), np.asarray(codec["mean"]), np.asarray(codec["std"])
        case "series":
            names = list(codec["columns"])
            mean, deviation = (np.array([codec[key][name] for name in names]) for key in ("mean", "deviation"))
            return names, mean, deviation
    if "axis" in codec and not codec.get("by_batch"):
        what = "input" if len(shape) == 1 else "channel" if codec["axis"] == 1 else "column"
        return [f"{what} {index}" for index in range(len(codec["mean"]))], np.asarray(codec["mean"]), np.asarray(codec["std"])
    if len(shape) == 1 and shape[0] <= _COLUMNS:
        return [f"input {index}" for index in range(shape[0])], np.zeros(1), np.ones(1)
    return ["inputs"], np.zeros(1), np.ones(1)


class _NumberStats:
    """Minimum, maximum, mean and deviation of columns, block by block."""

    def __init__(self, width: int) -> None:
        self._low, self._high = np.full(width, np.inf), np.full(width, -np.inf)
        self._count, self._sum, self._squares = 0, np.zeros(width), np.zeros(width)

    def add(self, block: NDArray[Any]) -> None:
        if len(block):
            self._low, self._high = np.minimum(self._low, block.min(axis=0)), np.maximum(self._high, block.max(axis=0))
            self._count += len(block)
            self._sum += block.sum(axis=0)
            self._squares += (block**2).sum(axis=0)

    def result(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        mean = self._sum / max(self._count, 1)
        return self._low, self._high, mean, np.sqrt(np.maximum(self._squares / max(self._count, 1) - mean**2, 0))


def _hashes(inputs: NDArray[Any], index: NDArray[Any]) -> list[bytes]:
    """Hash the inputs of each item."""
    return [hashlib.blake2b(np.ascontiguousarray(inputs[item]).tobytes(), digest_size=16).digest() for item in index]


def _contradictions(prints: Sequence[bytes], targets: NDArray[Any], index: NDArray[Any]) -> int:
    """Count the distinct items that have more than one target."""
    if len(set(prints)) == len(prints):
        return 0
    first: dict[bytes, bytes] = {}
    torn = set()
    for fingerprint, item in zip(prints, index, strict=True):
        target = targets[item].tobytes()
        if first.setdefault(fingerprint, target) != target:
            torn.add(fingerprint)
    return len(torn)


def _array(name: str, source: ArraySource) -> dict[str, Any]:
    """Describe one array of a file: shape, type and range."""
    if source.unsupported:
        return {"name": name, "dtype": source.unsupported, "shape": list(source.shape), "mapped": False}
    if source.texts is not None:
        try:
            codes = source.whole(np.int64)
        except NoLabel as error:
            return {"name": name, "dtype": "text", "shape": list(source.shape), "mapped": False, "fault": error.message}
        counts = zip(source.texts, np.bincount(codes.reshape(-1)).tolist(), strict=True)
        words = dict(sorted(counts, key=lambda pair: -pair[1])[:10])
        return {"name": name, "dtype": "text", "shape": list(source.shape), "mapped": False, "words": words}
    if source.offset is None or not source.shape:
        numbers = source.whole(source.dtype)
    else:
        numbers = np.memmap(source.path, source.dtype, "r", source.offset, source.shape)
    facts = {"name": name, "dtype": str(numbers.dtype), "shape": list(source.shape), "mapped": source.offset is not None}
    ends: list[Any] = []
    broken: dict[str, int] = {}
    numbers = np.atleast_1d(numbers)
    step = items_of_block(numbers)
    for first in range(0, len(numbers), step):
        block = numbers[first : first + step]
        fine = np.isfinite(block)
        if not fine.all():
            broken = {"first": first + first_bad(~fine)[0]} | broken
            broken["not finite"] = broken.get("not finite", 0) + int((~fine).sum())
            block = block[fine]
        ends += [block.min(), block.max()] if block.size else []
    span = {"min": min(ends).item(), "max": max(ends).item()} if ends else {}
    return facts | span | {key: broken[key] for key in ("not finite", "first") if key in broken}


def _table(table: TableFile) -> dict[str, Any]:
    """Describe each column of a table: range or most frequent words, missing values, and faults."""
    cells = {name: Counter[Any]() for name in table.names}
    for block in table.blocks(table.names):
        for name, counts in cells.items():
            counts.update(block.columns[name])
    faults = [f"{table.header_location}: {parted}"] if (parted := table.separator_advice()) else []
    columns = []
    for name, counts in cells.items():
        words, numbers, odd = Counter[str](), Counter[float](), list[Any]()
        for cell, count in counts.items():
            if not table.is_missing(cell):
                words[str(cell).strip()] += count
                try:
                    numbers[finite(cell)] += count
                except (TypeError, ValueError):
                    odd.append(cell)
        count, others = numbers.total(), words.total() - numbers.total()
        column: dict[str, Any] = {"name": name, "missing": counts.total() - words.total(), "different": len(words)}
        if count > others:
            mean = sum(number * times for number, times in numbers.items()) / count
            columns.append(column | {"min": min(numbers), "max": max(numbers), "mean": mean})
        else:
            columns.append(column | {"words": dict(words.most_common(10))})
        if 0 < others < count:
            place, cell = table.first(name, partial(eq, odd[0]))
            what = f"{others:,} of {words.total():,} cells {'is' if others == 1 else 'are'} no finite number"
            faults.append(f"`{name}`: {what}: {place}: {str(cell).strip()!r}")
    return {"rows": cells[table.names[0]].total(), "columns": columns, "faults": faults}


def render(facts: dict[str, Any]) -> Iterator[str]:
    """Format a description as lines of text."""
    if "task" in facts:
        yield f"task: {facts['task']}, {facts['outputs']} outputs" + (
            f", {facts['vocabulary']} tokens" * bool(facts["vocabulary"])
        )
        counts = ["a stream to train on"] * facts["stream"] + [f"{count:,} {name}" for name, count in facts["items"].items()]
        yield "items: " + ", ".join(counts)
        inputs = facts["inputs"]
        if "parts" in inputs:
            yield "inputs: " + ", ".join(f"{name} {form}" for name, form in inputs["parts"].items())
        else:
            yield f"inputs: {inputs['dtype']} {tuple(inputs['shape'])}" + f", times {inputs['scale']:.6g}" * (
                inputs["scale"] != 1
            )
    for key in ("rows", "repeated"):
        if facts.get(key):
            yield f"{key}: {facts[key]:,}" + " of the items to train on are copies of others" * (key == "repeated")
    for key in ("classes", "columns", "arrays"):
        if facts.get(key):
            yield f"{key}:"
            yield from (f"  {line}" for line in _table_of(facts[key]))
    for fault in facts.get("faults", ()):
        yield f"fault: {fault}"
    if "fingerprint" in facts:
        yield f"fingerprint: {facts['fingerprint']}"


def _table_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Lay out rows by key, under the keys."""
    heads = list(dict.fromkeys(key for row in rows for key in row))
    return aligned([heads, *([_shown(row.get(key)) for key in heads] for row in rows)])


def _shown(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case dict():
            return ", ".join(f"{key} ({count:,})" for key, count in value.items())
    return str(value)
