"""Windows of the groups of a table, and their split by two moments. Nothing here imports numpy.

No window has rows of two groups. The parts are divided in time, at the same moments for all groups. Test windows forecast moments
from a border on. Held-out windows forecast only moments before it, and from an earlier border on. All moments of training
windows, seen or forecast, are before that one. Windows across a border are left out. A border is the latest one with as many
windows as asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from partrain.data.tables.series_rows import SeriesRows
from partrain.errors import InputMissing
from partrain.number_format import counted


class WindowShape(NamedTuple):
    """Sizes of windows, in rows."""

    lead: int
    """Rows before the first window of a series."""
    window: int
    steps: int
    stride: int

    @property
    def span(self) -> int:
        """Rows that an item sees or forecasts."""
        return self.window + self.steps


@dataclass
class GroupWindows:
    """The windows of one group, by number."""

    rows: SeriesRows
    first: int
    """The row, counted after the lead, at which the first window begins."""
    starts: list[float] = field(default_factory=list)
    """The first moment that each window forecasts."""
    ends: list[float] = field(default_factory=list)
    """The last moment that each window forecasts."""
    training: range = range(0)
    held_out: range = range(0)
    tests: range = range(0)

    @property
    def stay(self) -> list[int]:
        """Windows to train on or to hold out."""
        return [*self.training, *self.held_out]

    def seen(self, shape: WindowShape) -> slice:
        """Return the rows, counted after the lead, that training windows see or forecast."""
        stop = self.first + (len(self.training) - 1) * shape.stride + shape.span
        return slice(self.first, stop if self.training else self.first)


class GroupSplit(NamedTuple):
    """The groups with windows, and the others."""

    groups: Sequence[GroupWindows]
    too_short: Sequence[SeriesRows]

    def count(self, part: str) -> int:
        """Return the number of windows in a part: `training`, `held_out`, `tests` or `stay`."""
        return sum(len(getattr(group, part)) for group in self.groups)


def split_groups(where: str, rows: Iterable[SeriesRows], shape: WindowShape, validation: int, tests: int) -> GroupSplit:
    """Lay windows over each group, and split them by time.

    Args:
        where: Name of the file, for messages.
        rows: The groups.
        shape: Sizes of the windows.
        validation: Windows to hold out, at least.
        tests: Windows to test on, at least.

    Raises:
        InputMissing: there are too few windows.
    """
    groups = list(rows)
    origin = min(group.moments[0] for group in groups)
    laid = [_laid(group, shape, origin) for group in groups]
    split = GroupSplit([group for group in laid if group.starts], [group.rows for group in laid if not group.starts])
    longest = max(group.count for group in groups)
    if not split.groups:
        wanted = shape.lead + shape.span
        raise InputMissing(
            f"{where}: too short: the longest of {counted(len(groups), 'group')} has {longest:,} rows, one window takes {wanted:,}"
        )
    stay = [len(group.starts) for group in split.groups]
    if tests:
        border = _border([group.starts for group in split.groups], tests, where, "test items")
        for group in split.groups:
            group.tests = range(bisect_left(group.starts, border), len(group.starts))
        stay = [bisect_left(group.ends, border) for group in split.groups]
    before = stay
    if validation:
        border = _border(
            [group.starts[:count] for group, count in zip(split.groups, stay, strict=True)], validation, where, "held-out items"
        )
        before = [bisect_left(group.ends, border) for group in split.groups]
        for group, count in zip(split.groups, stay, strict=True):
            group.held_out = range(min(bisect_left(group.starts, border), count), count)
    for group, count in zip(split.groups, before, strict=True):
        group.training = range(count)
    if not any(before):
        asked = [f"{count:,} to {what}" for count, what in ((validation, "hold out"), (tests, "test on")) if count]
        windows = counted(sum(len(group.starts) for group in split.groups), "window")
        raise InputMissing(f"{where}: too short: {windows} of all groups, and none lies before the newest {' and '.join(asked)}")
    return split


def _laid(rows: SeriesRows, shape: WindowShape, origin: float) -> GroupWindows:
    """Lay windows over a group. The windows of all groups begin at the same moments, `stride` apart."""
    first = -round(rows.moments[0] - origin) % shape.stride
    targets = range(shape.lead + first + shape.window, rows.count - shape.steps + 1, shape.stride)
    starts, ends = ([rows.moments[at + after] for at in targets] for after in (0, shape.steps - 1))
    return GroupWindows(rows, first, starts, ends)


def _border(starts: Iterable[Sequence[float]], asked: int, where: str, what: str) -> float:
    """Return the latest border, halfway between two moments, from which at least `asked` windows forecast."""
    newest = sorted((start for some in starts for start in some), reverse=True)
    if len(newest) < asked:
        raise InputMissing(f"{where}: too short: {counted(len(newest), 'window')} for {asked:,} {what}")
    return newest[asked - 1] - 0.5
