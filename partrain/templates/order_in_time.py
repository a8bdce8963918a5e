"""Time stamps of a table, and the order of its rows in time, for `partrain init --from`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from partrain.data.tables.files import TableFile, cells_of
from partrain.data.tables.time_stamps import moment_of, parse_stamp
from partrain.errors import InputMissing
from partrain.preprocess.cells import is_number
from partrain.preprocess.column import RowBlock
from partrain.templates.assemble import listed, names_in
from partrain.templates.column_facts import ColumnFacts
from partrain.templates.units import NONE

FEWEST_MOMENTS = 10
"""Number of different time stamps from which a table is split by time."""
OLDER = 0.7
"""Share of the rows to train on."""
NAMES = {"time", "date", "datetime", "timestamp", "year", "month", "week", "day", "hour", "t", "ds"}
"""Names of columns whose numbers are time stamps."""
FEW_FALLS = 100
"""Number of rows of which at most one may be older than its predecessor, in a table in the order of time."""
PARTS = ("year", "quarter", "month", "week", "day", "hour")
"""Names of columns that hold parts of dates."""
MOST_AGES, OLDEST, REPEATED = 60, 1000, 3
"""Whole numbers below `OLDEST`, at most `MOST_AGES` different ones, each in `REPEATED` rows on average, are ages or parts of dates."""
SPLIT = "the newest 15 % are the test rows, the 15 % before them are held out (`time`; --time none)"
"""Effect of a column of times, for notes."""
EPOCH = (631_152_000, 4_102_444_800)
"""Seconds since 1970 of the years 1990 to 2099."""


def time_of(
    file: TableFile, columns: Mapping[str, ColumnFacts], targets: Sequence[str], asked: str | None
) -> tuple[list[str], list[str]]:
    """Return the column that gives the order of the rows (empty without one), and notes on it; or columns of parts of dates.

    In a panel, the rows of each unit, named by another column, may be in order instead. Of several columns, the one with the most
    different moments comes first.
    """
    if asked == NONE and NONE not in file.places:
        return [], []
    if asked is not None and len(names := names_in(asked, file)) > 1:
        if wrong := next((name for name in names if columns[name].missing or not _has_stamps(columns[name], name)), None):
            raise InputMissing(f"{file.header_location}: --time: column `{wrong}` has cells that are no time stamps")
        return names, [f"{listed(f'`{name}`' for name in names)} are the time of a row (--time): {SPLIT}"]
    others = {name: facts for name, facts in columns.items() if name not in targets}
    stamped = with_stamps(others, asked)
    parts = [name for name, facts in others.items() if name.strip().lower() in PARTS and facts.numbers and not facts.missing]
    time, notes = _ordered(file, others, targets, stamped, asked)
    if len(parts) > 1 and asked is None and time in (None, *parts):
        parts.sort(key=lambda name: PARTS.index(name.strip().lower()))
        together, more = _parts_ordered(file, targets, parts)
        if together or time is None:
            return together, more
    if not notes and (ages := next((facts for facts in others.values() if _is_named(facts) and _are_ages(facts)), None)):
        what = f"{len(ages.different)} numbers that rows repeat, like ages"
        notes.append(f"`{ages.name}`: {what}, so rows are split at random; --time {ages.name} splits by them")
    return [] if time is None else [time], notes


def _parts_ordered(file: TableFile, targets: Sequence[str], parts: list[str]) -> tuple[list[str], list[str]]:
    """Return columns of parts of dates, the longest part first, if they give the order of the rows, else []; and a note."""
    shown = listed(f"`{name}`" for name in parts)
    if parts[0].strip().lower() != PARTS[0]:
        return [], [f"{shown} are parts of dates, and no column holds the year: rows are split at random"]
    moments = moments_in(file, targets, parts)
    for ordered, order in (moments, ""), (moments[::-1], ", the newest first"):
        falls = sum(after < before for before, after in pairwise(ordered))
        if falls <= len(moments) // FEW_FALLS:
            return parts, [f"{'most' if falls else 'the'} rows are in the order of {shown}{order}: {SPLIT}"]
    return [], [f"rows are split at random, although {shown} hold dates; --time {','.join(parts)} tests on the newest"]


def moments_in(file: TableFile, targets: Sequence[str], time: Sequence[str]) -> list[tuple[float | int, ...]]:
    """Return numbers for sorting the rows with all targets in time."""
    cells = cells_of((with_targets(file, targets, block) for block in file.blocks([*targets, *time])), time)
    return list(zip(*([moment_of(parse_stamp(cell)) for cell in cells[name]] for name in time), strict=True))


def _ordered(
    file: TableFile, columns: Mapping[str, ColumnFacts], targets: Sequence[str], stamped: Sequence[str], asked: str | None
) -> tuple[str | None, list[str]]:
    """Return the column of time stamps that gives the order of the rows, or None, and notes on it."""
    units = [name for name, facts in columns.items() if 1 < len(facts.different) <= facts.rows // 3]
    names = list(dict.fromkeys([*stamped, *units, *targets]))
    blocks = [with_targets(file, targets, block) for block in file.blocks(names)] if stamped else []
    cells, places = cells_of(blocks, names), [position for block in blocks for position in block.positions]
    unsorted = list[str]()
    for name in stamped:
        random, facts = f"rows are split at random, although `{name}` holds times", columns[name]
        if facts.missing:
            place, _ = file.first(name, file.is_missing)
            if name == asked:
                raise InputMissing(f"{place}: --time: column `{name}` has no value")
            if len(facts.different) >= FEWEST_MOMENTS and facts.missing <= facts.rows // 2:
                unsorted.append(f"{random}: {place} has none; fill it in for a split by time")
            continue
        if name == asked:
            return name, [f"`{name}` is the time of a row (--time): {SPLIT}"]
        stamps = list(map(parse_stamp, cells[name]))
        if len(facts.different) < FEWEST_MOMENTS or len({isinstance(stamp, float) for stamp in stamps}) > 1:
            continue
        moments = list(map(moment_of, stamps))
        for ordered, order in (moments, ""), (moments[::-1], ", the newest first"):
            falls = [row for row, (before, after) in enumerate(pairwise(ordered), 1) if after < before]
            if not falls:
                return name, [f"the rows are in the order of `{name}`{order}: {SPLIT}"]
            for unit in units:
                kinds = cells[unit] if not order else cells[unit][::-1]
                if (
                    unit != name
                    and len(falls) < len(columns[unit].different)
                    and all(kinds[row] != kinds[row - 1] for row in falls)
                ):
                    return name, [f"the rows of each `{unit}` are in the order of `{name}`{order}: {SPLIT}"]
            place = file.locate(places[falls[0] if not order else -falls[0]])
            if len(falls) <= len(moments) // FEW_FALLS:
                return name, [f"most rows are in the order of `{name}`{order} ({place} is not): {SPLIT}"]
            unsorted.append(f"{random}: {place} is out of order; --time {name} tests on the newest")
    if asked is not None:
        raise InputMissing(f"{file.header_location}: --time: column `{asked}` has cells that are no time stamps")
    return None, unsorted[:1]


def with_targets(file: TableFile, targets: Sequence[str], block: RowBlock) -> RowBlock:
    """Return the rows of a block that have all targets."""
    present = [block.columns[name].mapped(lambda cell: not file.is_missing(cell)) for name in targets]
    return block.kept(list(map(all, zip(*present, strict=True))))


def later_classes(file: TableFile, target: str, time: Sequence[str], frequent: Collection[str]) -> set[str]:
    """Return the learned classes that only newer rows have: they could not be learned."""
    cells = cells_of((with_targets(file, [target], block) for block in file.blocks([target])), [target])[target]
    pairs = zip(moments_in(file, [target], time), (str(cell).strip() for cell in cells), strict=True)
    texts = [text for _, text in sorted(pairs, key=lambda pair: pair[0])]
    learned = set(frequent)
    while True:  # fewer rows are left, so other rows are the older ones
        texts = [text for text in texts if text in learned]
        if (older := set(texts[: int(len(texts) * OLDER)])) == learned:
            return set(frequent) - learned
        learned = older


def with_stamps(columns: Mapping[str, ColumnFacts], asked: str | None) -> list[str]:
    """Return the columns that may hold time stamps, the one with the most different stamps first."""
    names = [name for name, facts in columns.items() if _has_stamps(facts, asked)]
    return sorted(names, key=lambda name: len(columns[name].different), reverse=True)


def _has_stamps(column: ColumnFacts, asked: str | None) -> bool:
    """Return whether a column may hold time stamps. Numbers count only by the column's name, or if the user asks for them."""
    if asked is not None and column.name != asked:
        return False
    if column.numbers:
        by_name = _is_named(column) and not _are_ages(column)
        return column.name == asked or by_name or epoch_unit(column.different) is not None
    try:
        return bool(list(map(parse_stamp, column.different)))
    except (TypeError, ValueError):
        return False


def _is_named(column: ColumnFacts) -> bool:
    return column.name.strip().lower() in NAMES


def _are_ages(column: ColumnFacts) -> bool:
    """Return whether a column holds few whole numbers, which rows repeat: ages, or parts of dates."""
    numbers = column.different
    few = 1 < len(numbers) <= min(MOST_AGES, column.rows // REPEATED)
    return few and column.whole and all(abs(int(text)) < OLDEST for text in numbers)


def epoch_unit(stamps: Collection[str]) -> int | None:
    """Return 1 for seconds since 1970, 1000 for milliseconds; None for other numbers."""
    for unit in (1, 1000):
        within = (EPOCH[0] <= float(stamp) / unit < EPOCH[1] for stamp in stamps if is_number(stamp))
        if next(within, False) and all(within):
            return unit
    return None
