"""Rows of a table as items: columns are matched by name, errors give line and column."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from partrain.data.codec import Codec
from partrain.data.tables import load
from partrain.data.tables.dialect import Dialect
from partrain.data.tables.files import TableFile, cells_of
from partrain.data.tables.formats import open_file
from partrain.data.tables.labels import groups_of
from partrain.data.tables.typed_files import FrameTable
from partrain.errors import InputMissing
from partrain.inference.inputs.remarks import FAR, far_numbers
from partrain.inference.inputs.sample import Sample, Wanted, of_inputs
from partrain.inference.inputs.series import read_windows
from partrain.preprocess.cells import Class
from partrain.preprocess.column import CellFault, RowBlock
from partrain.preprocess.table import TableSchema
from partrain.preprocess.words import MISSING, UNSEEN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.network import TrainedNetwork


class _Converted(NamedTuple):
    """Converted rows of a table."""

    inputs: NDArray[Any]
    """In the network's form."""
    targets: NDArray[Any] | None = None
    """As in the file."""
    groups: Sequence[Class] = ()
    """The group name of each row, if requested."""


@dataclass(frozen=True)
class TableItems:
    """Items read from a table."""

    inputs: NDArray[Any]
    targets: NDArray[Any] | None
    rows: Sequence[int]
    """Number of each item's row, from 0 on."""
    columns: Mapping[str, list[Any]] = field(default_factory=dict)
    """Cells of the columns to copy into the answers."""
    groups: Sequence[Class] = ()
    """The group name of each item, if requested."""
    skipped: Sequence[str] = ()
    """The fault of each row that was left out, in the file's order."""
    remarks: Sequence[str] = ()
    """Columns whose values are unlike those trained on, in words."""


def open_table(network: TrainedNetwork, path: Path) -> TableFile:
    """Open a table in the text format given by the job."""
    return open_file(path, Dialect.of(network.loaded.job.dataset), advice="")


def read_items(network: TrainedNetwork, path: Path, kind: str, wanted: Wanted) -> tuple[Sample, NDArray[Any] | None]:
    """Read the rows of a table, or the windows of a series; see `DataForm.items`."""
    table = open_table(network, path)
    carry = wanted.carried(table)
    return of_table(network, table, labeled=wanted.targets, carry=carry, skip_bad=wanted.skip_bad, group=wanted.group)


def of_table(
    network: TrainedNetwork,
    table: TableFile,
    *,
    labeled: bool,
    carry: Sequence[str] = (),
    skip_bad: bool = False,
    group: str | None = None,
) -> tuple[Sample, NDArray[Any] | None]:
    """Return the rows of a table or the windows of a series as items, with their targets if `labeled`.

    `carry`, `skip_bad` and `group`: see `read_table`.
    """
    codec = network.codec
    more: dict[str, Any] = {}
    if codec.is_series:
        windows = read_windows(codec, table, labeled=labeled, reconstruct=not network.kind.targets)
        more |= {"remarks": windows.remarks, "groups": windows.groups}
        if windows.newest is not None:
            more["newest"] = torch.from_numpy(np.ascontiguousarray(windows.newest))
        named = {codec.stored["group"]: list(windows.groups)} if windows.groups else {}
        if windows.following:
            steps = codec.stored["steps"]
            repeated = {name: [group for group in groups for _ in range(steps)] for name, groups in named.items()}
            more["following"] = {**repeated, codec.stored["time"]: windows.following}
        elif named and not labeled:
            more["columns"] = named
        return of_inputs(network, windows.inputs, table.path, **more), windows.targets
    items = read_table(network, table, labeled=labeled, carry=carry, skip_bad=skip_bad, group=group)
    more = {"columns": items.columns, "groups": items.groups, "skipped": items.skipped, "remarks": items.remarks}
    return of_inputs(network, items.inputs, table.path, list(map(str, items.rows)), **more), items.targets


def read_table(
    network: TrainedNetwork,
    sheet: TableFile,
    *,
    labeled: bool,
    carry: Sequence[str] = (),
    skip_bad: bool = False,
    group: str | None = None,
) -> TableItems:
    """Read the rows of a table that is not a series.

    Args:
        network: The network that will answer them.
        sheet: The table.
        labeled: Also read the targets.
        carry: Columns whose cells are copied into the answers.
        skip_bad: Leave out rows that cannot be read, instead of raising InputMissing for the first.
        group: The column that names the group of each row, if groups are requested.
    """
    if group is not None:
        sheet.require(group, "group")
    if not skip_bad:
        try:
            inputs, targets, groups = _convert(network, sheet, labeled=labeled, group=group)
        except CellFault as fault:
            option = "" if isinstance(sheet, FrameTable) else "; --skip-bad leaves such rows out"
            raise InputMissing(f"{fault.message}{option}") from None
        columns = cells_of(sheet.blocks(carry), carry) if carry else {}
        every = range(len(inputs))
        return TableItems(inputs, targets, every, columns, groups, remarks=_remarks(network, sheet, inputs, every))
    for role in ("inputs", "targets") if labeled else ("inputs",):  # a missing column concerns all rows
        for name in network.codec.stored.get(role) or ():
            sheet.require(name, role)
    blocks: list[tuple[RowBlock, _Converted]] = []
    bad: list[tuple[int, str]] = []
    sheet.unreadable = bad
    for block in sheet.blocks(sheet.names):
        for part, converted in _sort_out(network, sheet, block, labeled=labeled, group=group):
            if isinstance(converted, str):
                bad.append((part.positions[0], converted))
            else:
                blocks.append((part, converted))
    bad.sort()
    if not blocks:
        raise InputMissing(f"{bad[0][1]} (no row can be read, and this is the first)" if bad else f"{sheet.path}: holds no items")
    kept = [position for part, _ in blocks for position in part.positions]
    number = {position: row for row, position in enumerate(sorted([*kept, *(position for position, _ in bad)]))}
    rows = [number[position] for position in kept]
    answers = [converted.targets for _, converted in blocks if converted.targets is not None]
    inputs = np.concatenate([converted.inputs for _, converted in blocks])
    return TableItems(
        inputs,
        np.concatenate(answers) if labeled else None,
        rows,
        cells_of((part for part, _ in blocks), carry),
        [name for _, converted in blocks for name in converted.groups],
        [fault for _, fault in bad],
        _remarks(network, sheet, inputs, rows),
    )


def _remarks(network: TrainedNetwork, sheet: TableFile, inputs: NDArray[Any], rows: Sequence[int]) -> list[str]:
    """Describe columns without any known word, and standardized columns with numbers far from training: another unit, say."""
    codec = network.codec
    if not codec.is_table or not len(inputs):
        return []
    schema, remarks = load.schema_of(codec.stored), []
    owners, names, scaled = np.array(schema.owners), np.array(schema.features), np.array(schema.numeric) & codec.scaled
    least, most = inputs.min(axis=0), inputs.max(axis=0)
    far = scaled & (np.maximum(-least, most) > FAR)
    for name, kind in schema.kinds.items():
        if kind.holds_words:
            features = most[(owners == name) & (names != f"{name} missing")]
            recognised = features > UNSEEN - MISSING if kind.codes else features > 0
            if not recognised.any() and (cells := _present(sheet, name)):
                place, cell = sheet.first(name, lambda cell: not sheet.is_missing(cell))
                words = f"none of {cells:,} words is known to the network; the first: `{str(cell).strip()[:60]}`"
                remarks.append(f"{place}: column `{name}`: {words}")
        elif (owned := (owners == name) & far).any():
            remarks += far_numbers(f"{sheet.path}: column `{name}`", inputs[:, owned], rows)
    return remarks


def _present(sheet: TableFile, name: str) -> int:
    """Count the cells of a column that hold a value."""
    return sum(not sheet.is_missing(cell) for block in sheet.blocks([name]) for cell in block.columns[name])


def _sort_out(
    network: TrainedNetwork, sheet: TableFile, block: RowBlock, *, labeled: bool, group: str | None
) -> Iterator[tuple[RowBlock, _Converted | str]]:
    """Yield converted rows, or one row and its fault, by bisection: a few bad rows cost few attempts."""
    try:
        yield block, _convert(network, sheet.part(block), labeled=labeled, group=group)
    except InputMissing as fault:
        count = len(block.positions)
        if count == 1:
            yield block, fault.message
            return
        for first in True, False:
            half = block.kept([(index < count // 2) == first for index in range(count)])
            yield from _sort_out(network, sheet, half, labeled=labeled, group=group)


def _convert(network: TrainedNetwork, sheet: TableFile, *, labeled: bool, group: str | None) -> _Converted:
    """Convert all rows of a table."""
    codec = network.codec
    if codec.is_table:
        inputs, targets = _labeled_rows(codec, sheet) if labeled else (load.encode(codec.stored, sheet), None)
        return _Converted(inputs, targets, [] if group is None else _groups(codec, sheet, group, labeled=labeled))
    width = math.prod(network.record.input)
    if labeled:
        raise InputMissing(
            f"{sheet.path}: the network was not trained on a table, so no column is known to be the target; use NPZ"
        )
    if len(sheet.names) != width:
        raise InputMissing(f"{sheet.header_location}: {len(sheet.names)} columns, the network takes {width} numbers")
    numbers = load.numbers_of(sheet, sheet.names)
    if not np.isfinite(numbers.astype(np.float32)).all():
        raise InputMissing(f"{sheet.path}: holds a number that float32 cannot")
    return _Converted(codec.standardize(numbers.reshape(len(numbers), *network.record.input)))


def _schema(codec: Codec, *, labeled: bool) -> TableSchema:
    """Return the recipe for reading rows with or without their targets."""
    schema = load.schema_of(codec.stored)
    return replace(schema, missing=codec.stored["missing"]) if labeled else replace(schema, targets=(), classes=None)


def _groups(codec: Codec, sheet: TableFile, group: str, *, labeled: bool) -> list[Class]:
    """Return the group name of each row that is an item."""
    numbers = dict[Class, int]()
    codes = groups_of(sheet, _schema(codec, labeled=labeled), group, numbers)
    names = list(numbers)
    return [names[code] for code in codes.tolist()]


def _labeled_rows(codec: Codec, sheet: TableFile) -> tuple[NDArray[Any], NDArray[Any]]:
    schema = _schema(codec, labeled=True)
    for name in schema.inputs:
        sheet.require(name, "inputs")
    for name in schema.targets:
        sheet.require(name, "target")
    inputs, targets = load.read(sheet, schema)
    return codec.standardize(inputs), targets
