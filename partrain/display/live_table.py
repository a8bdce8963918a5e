"""The layout of the live table: lines of styled text, fitted to a width and a height. Independent of rich.

`display.LiveDisplay` draws these lines on the terminal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, islice
from typing import Any, NamedTuple

from partrain.number_format import clock, count, number, size, tenths
from partrain.record.numbers import Heading, RoundNumber
from partrain.record.result import decides
from partrain.record.round_record import ACTIVITIES, NUMBERS
from partrain.record.run_state import RunState
from partrain.record.worker_state import CELLS, WorkerState

FLASH_S = 1.5
"""Seconds for which a new best result is highlighted."""
VERY_SLOW = 2.0
"""Slowdown factor from which a slow worker is red instead of yellow."""
Line = list[tuple[str, str]]
"""Pieces of text, each with its style."""


class Glyphs(NamedTuple):
    """Characters of bars and sparklines."""

    done: str
    left: str
    levels: str
    dot: str


UNICODE = Glyphs("━", "─", "▁▂▃▄▅▆▇█", "·")
ASCII = Glyphs("=", "-", "_.-:=+*#", "|")


class Column(NamedTuple):
    """A column of fixed width; `cell` gives text and style."""

    over: str
    title: str
    width: int
    cell: Callable[[ShownWorker], tuple[str, str]]
    left: bool = False


class ShownWorker(NamedTuple):
    """The data that a worker's cells show."""

    worker: WorkerState
    activity: str
    slowdown: float
    all_items: int
    glyphs: Glyphs


FIRST = (
    Column("", "#", 3, lambda at: (str(at.worker.rank), "dim")),
    Column("", "device", 7, lambda at: (at.worker.device, ""), left=True),
    Column(
        "",
        "state",
        9,
        lambda at: activity_cell(at.activity, at.slowdown if at.activity == ACTIVITIES["compute"] else 1.0),
        left=True,
    ),
)
AFTER = {
    "items": (
        Column("", "share", 5, lambda at: (f"{at.worker.items / max(at.all_items, 1):.0%}", "")),
        Column("", "items/s", 8, lambda at: (count(at.worker.rate(), 8), "")),
        Column("", "wait", 4, lambda at: (f"{at.worker.waiting():.0%}", "")),
    ),
    "loss": (
        Column("", "", CELLS, lambda at: (sparkline(at.worker.curve.resampled(), at.glyphs.levels), "cyan"), left=True),
    ),
}  # fmt: skip
"""Columns computed from several numbers, by the number that they follow."""


def _column(name: str, of: RoundNumber, heading: Heading) -> Column:
    """Return the column for a number of a round."""
    text: Callable[[Any], str] = tenths if of.activity else count if of.whole else number
    return Column(*heading, lambda at: (text(at.worker.numbers.get(name)), ""))


COLUMNS = (
    *FIRST,
    *(
        column
        for name, declared in NUMBERS.items()
        if declared.column
        for column in (_column(name, declared, declared.column), *AFTER.get(name, ()))
    ),
)
LEAST_JUDGED = 6
"""Number of judgements from which a curve is drawn: with fewer, its bars are too wide."""
ACTIVITY_STYLES = {"computing": "green", "mixing": "blue", "starting": "cyan", "stopped": "yellow", "lost": "bold red"}
"""Styles of activities; all others are dim."""


def frame(state: RunState, now: float, width: int, height: int, glyphs: Glyphs = UNICODE, folder: str = "") -> list[Line]:
    """Lay out the display: no line longer than `width`, no more lines than `height`. `now` is Unix time in seconds."""
    facts = fact_lines(state, now, width, glyphs, folder).values()
    head = [fit_line(line, width, glyphs) for line in [progress_line(state, now, width, glyphs), [], *facts, []]]
    lines = head + _table(state, width, height - len(head) - 2, glyphs)
    return (lines + _curve(state, width, min(height - len(lines), 12), glyphs))[: max(height, 1)]


def _curve(state: RunState, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Draw the judged losses as bars of several lines, on a logarithmic scale as in a sparkline, if there is room."""
    values, rows, cells = state.judged_losses.resampled(), height - 2, min(width, 120) - 10
    if len(values) < LEAST_JUDGED or rows < 3 or cells < 20:
        return []
    wide = [values[cell * len(values) // cells] for cell in range(cells)]
    heights = levels_of(wide, rows * len(glyphs.levels) - 1)
    lines: list[Line] = [[], [("judged loss"[:width], "dim")]]
    for row in range(rows - 1, -1, -1):
        edge = max(values) if row == rows - 1 else min(values) if row == 0 else None
        steps = [level + 1 - row * len(glyphs.levels) for level in heights]
        bars = "".join(glyphs.levels[min(step, len(glyphs.levels)) - 1] if step > 0 else " " for step in steps)
        lines.append([(f"{'' if edge is None else number(edge):>8}  ", "dim"), (bars.rstrip(), "cyan")])
    return lines


def _table(state: RunState, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Lay out two lines of titles, and a line per worker in `height` lines; drop columns that do not fit, from the right."""
    gap = "  " if width >= 80 else " "
    ends = accumulate(column.width + len(gap) for column in COLUMNS)
    columns = [column for column, end in zip(COLUMNS, ends, strict=True) if end - len(gap) <= width]
    lines: list[Line] = [
        [(gap.join(_fit(column, column.over) for column in columns), "dim")],
        [(gap.join(_fit(column, column.title) for column in columns), "dim")],
    ]
    workers = [worker for _, worker in sorted(state.workers.items())]
    shown = workers if len(workers) <= height else workers[: max(height - 1, 0)]
    slowdowns = state.slowdowns()
    for worker in shown:
        at = ShownWorker(worker, state.activity(worker), slowdowns.get(worker.rank, 1.0), state.item_iterations, glyphs)
        cells = [(column, *column.cell(at)) for column in columns]
        lines.append([(_fit(column, text) + gap, style) for column, text, style in cells])
    if len(shown) < len(workers):
        lines.append([(f"and {len(workers) - len(shown)} more workers"[:width], "dim")])
    return [_trimmed(line) for line in lines]


def _fit(column: Column, text: str) -> str:
    text = text[: column.width]
    return text.ljust(column.width) if column.left else text.rjust(column.width)


def fit_line(line: Line, width: int, glyphs: Glyphs) -> Line:
    """Keep the pieces that fit, from the left: half a number would be another number. Only the first piece may be cut.

    If no other piece fits, the second one's number may appear alone.
    """
    kept: Line = [(text[:width], style) for text, style in line[:1]]
    used = sum(len(text) for text, _ in kept)
    for text, style in line[1:]:
        used += len(text)
        if used > width:
            room = width - used + len(text)
            numbers = (word for word in text.split() if len(word) <= room and any(map(str.isdigit, word)))
            kept += [(word, style) for word in islice(numbers, 1) if len(kept) == 1]
            break
        kept.append((text, style))
    return kept[:-1] if kept and kept[-1][0].strip() == glyphs.dot else kept


def _trimmed(line: Line) -> Line:
    """Remove spaces at the end of a line."""
    return [*line[:-1], *((text.rstrip(), style) for text, style in line[-1:])]


def activity_cell(activity: str, slowdown: float) -> tuple[str, str]:
    """Return text and style of a worker's activity, or of its slowdown if that is above 1: others wait for it."""
    if slowdown > 1:
        return f"slow {slowdown:.1f}x", "bold red" if slowdown >= VERY_SLOW else "yellow"
    return activity, ACTIVITY_STYLES.get(activity, "dim")


def fact_lines(state: RunState, now: float, width: int, glyphs: Glyphs = UNICODE, folder: str = "") -> dict[str, Line]:
    """Return the facts of a run as labelled lines, by label: other stop conditions, judged network, totals, last checkpoint, run folder, faults."""
    dot, saved = f" {glyphs.dot} ", state.commit
    standing, judged, best = state.standing(), state.judged, state.best
    facts = {
        "until": [condition.show(standing) for condition in state.conditions() if condition.name != "rounds"],
        "judged": [f"{name} {number(value)}" for name, value in judged.scores.items()] if judged else ["-"],
        "so far": [
            f"{count(state.item_iterations):>10} item-iterations",
            f"{count(state.rate()):>10} items/s",
            clock(state.clock.train),
            *([] if (lr := state.merged("lr")) is None else [f"lr {number(lr)}"]),
        ],
        "saved": [f"round {saved.round}", f"{size(saved.bytes)} in {saved.seconds:.3g} s"] if saved else ["-"],
        "folder": [folder if len(folder) <= width - 8 else "..." + folder[-max(width - 11, 1) :]] if folder else [],
    }
    lines = {label: facts_line(label, texts, dot) for label, texts in facts.items() if texts}
    if judged and best:
        style = "bold reverse green" if now - best.t < FLASH_S else "green"
        by = state.start.stop.get("patience_by") or decides(best.scores)
        lines["judged"] += [(dot, ""), (f"best {by} {number(best.scores.get(by))}", style), (f" in round {best.round}", style)]
    for label, kind in (
        ("replays", "replay"),
        ("exclude", "exclusion"),
        ("spikes", "spike"),
        ("balance", "balance"),
        ("faults", "fault"),
    ):
        if (tally := state.tallies[kind]).count:
            text = _cut(f"{tally.count}{dot}{printable(tally.newest)}", width - 8)
            lines[label] = [(f"{label:<8}", "dim"), (text, "red" if kind == "fault" else "yellow")]
    return lines


def _cut(text: str, width: int) -> str:
    """Cut the end of a sentence that is longer than `width`."""
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."


def progress_line(state: RunState, now: float, width: int, glyphs: Glyphs = UNICODE) -> Line:
    """Lay out name, rule and round, with the end or the progress of the run."""
    goal = state.start.stop.get("rounds")
    rounds = f"{state.round:>{len(str(goal))}}/{goal}" if goal else str(state.round)
    line: Line = [
        (printable(state.start.name), "bold"),
        (f" {glyphs.dot} {printable(state.start.rule)}", ""),
        (f" {glyphs.dot} round {rounds}", ""),
    ]
    fraction, eta = state.fraction(), state.eta(now)
    if state.status is not None:
        return [*line, (f"  {state.status}", "bold"), (f" ({state.reason})" if state.reason != state.status else "", "")]
    if fraction is not None:
        cells = 20 if width >= 80 else 8
        done = int(cells * fraction)
        line += [(f"  {glyphs.done * done}", "green"), (glyphs.left * (cells - done), "dim")]
        line += [(f" {math.floor(100 * fraction):>3}%", ""), (f"  ETA {clock(eta) if eta is not None else '-'}", "")]
    return line


def facts_line(label: str, facts: Sequence[str], dot: str) -> Line:
    """Lay out a labelled line, each fact a piece."""
    return [(f"{label:<8}", "dim"), *((fact if place == 0 else dot + fact, "") for place, fact in enumerate(facts))]


def printable(text: str) -> str:
    """Put a text on one line, in characters of known width: it may come from any exception."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    return plain.encode("ascii", "backslashreplace").decode()


def sparkline(values: list[float], levels: str = UNICODE.levels) -> str:
    """Draw a character per value, on a logarithmic scale if all are positive: losses fall by orders of magnitude."""
    return "".join(levels[level] for level in levels_of(values, len(levels) - 1))


def levels_of(values: list[float], highest: int) -> list[int]:
    """Map values to levels from 0 to `highest`, on a logarithmic scale if all are positive."""
    if not values:
        return []
    heights = [math.log(value) for value in values] if min(values) > 0 else values
    low, high = min(heights), max(heights)
    scale = highest / (high - low) if high > low else 0.0
    return [round((height - low) * scale) for height in heights]
