"""Time stamps of a table, and the order of its rows in time, for `partrain init --from`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from partrain.data.tables.files import TableFile, cells_of
from partrain.data.tables.time_stamps import parse_stamp
from partrain.errors import InputMissing
from partrain.preprocess.cells import is_number
from partrain.preprocess.column import RowBlock
from partrain.templates.column_facts import ColumnFacts

FEWEST_MOMENTS = 10
"""Different time stamps from which a table is split by time."""
OLDER = 0.7
"""Share of the rows that are trained on."""
NAMES = {"time", "date", "datetime", "timestamp", "year", "month", "week", "day", "hour", "t", "ds"}
"""Names of columns whose numbers are time stamps."""
EPOCH = (631_152_000, 4_102_444_800)
"""Seconds since 1970 of the years 1990 to 2099."""


def time_of(
    file: TableFile, columns: Mapping[str, ColumnFacts], targets: Sequence[str], asked: str | None
) -> tuple[str, str] | None:
    """Return the column that the rows are in the order of, in words, too; None if they are in none.

    The rows of each unit of a panel, as another column names them, may be in order, too.
    """
    stamped = [name for name, facts in columns.items() if has_stamps(facts, asked) and name not in targets and not facts.missing]
    units = [name for name, facts in columns.items() if name not in targets and 1 < len(facts.different) <= facts.rows // 3]
    names = list(dict.fromkeys([*stamped, *units, *targets]))
    cells = cells_of(map(partial(with_targets, file, targets), file.blocks(names)), names) if stamped else {}
    for name in stamped:
        if name == asked:
            return name, f"`{name}` is the time of a row (--time)"
        moments = [moment if isinstance(moment, float) else moment.isoformat() for moment in map(parse_stamp, cells[name])]
        if len(columns[name].different) < FEWEST_MOMENTS or len(set(map(type, moments))) > 1:
            continue
        for ordered, order in (moments, ""), (moments[::-1], ", the newest first"):
            falls = [row for row in range(1, len(ordered)) if ordered[row] < ordered[row - 1]]  # type: ignore[operator]
            if not falls:
                return name, f"the rows are in the order of `{name}`{order}"
            for unit in units:
                kinds = cells[unit] if not order else cells[unit][::-1]
                if (
                    unit != name
                    and len(falls) < len(columns[unit].different)
                    and all(kinds[row] != kinds[row - 1] for row in falls)
                ):
                    return name, f"the rows of each `{unit}` are in the order of `{name}`{order}"
    if asked is not None:
        raise InputMissing(f"{file.header_location}: --time: column `{asked}` has cells that are no time stamps")
    return None


def with_targets(file: TableFile, targets: Sequence[str], block: RowBlock) -> RowBlock:
    """Return the rows of a block that have all targets: the others are left out."""
    present = [block.columns[name].mapped(lambda cell: not file.is_missing(cell)) for name in targets]
    return block.kept(list(map(all, zip(*present, strict=True))))


def later_classes(file: TableFile, target: str, time: str, frequent: Collection[str]) -> set[str]:
    """Return the classes that only newer rows have, of those that are learned: nothing could be learned of them."""
    cells = cells_of(file.blocks([time, target]), [time, target])
    pairs = [
        (parse_stamp(stamp), str(cell).strip())
        for stamp, cell in zip(cells[time], cells[target], strict=True)
        if not file.is_missing(cell)
    ]
    texts = [text for _, text in sorted(pairs, key=lambda pair: pair[0])]
    learned = set(frequent)
    while True:  # fewer rows are left, of which others are the older ones
        texts = [text for text in texts if text in learned]
        if (older := set(texts[: int(len(texts) * OLDER)])) == learned:
            return set(frequent) - learned
        learned = older


def has_stamps(column: ColumnFacts, asked: str | None) -> bool:
    """Return whether a column may hold time stamps; numbers are such by the name of the column only, or where the user asks for them."""
    if asked is not None and column.name != asked:
        return False
    if column.numbers:
        return column.name == asked or column.name.strip().lower() in NAMES or epoch_unit(column.different) is not None
    try:
        return bool(list(map(parse_stamp, column.different)))
    except (TypeError, ValueError):
        return False


def epoch_unit(stamps: Collection[str]) -> int | None:
    """Return 1 for seconds since 1970, 1000 for milliseconds; None for other numbers."""
    for unit in (1, 1000):
        within = (EPOCH[0] <= float(stamp) / unit < EPOCH[1] for stamp in stamps if is_number(stamp))
        if next(within, False) and all(within):
            return unit
    return None
