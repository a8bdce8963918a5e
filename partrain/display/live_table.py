"""The layout of the live table: lines of styled text, fitted to a width and a height. Free of rich.

`display.LiveDisplay` draws these lines on the terminal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from partrain.number_format import clock, count, number, size, tenths
from partrain.record.run_state import RunState
from partrain.record.worker_state import CELLS, WorkerState

FLASH_S = 1.5
"""Seconds for which a new best is highlighted."""
VERY_SLOW = 2.0
"""Factor from which a slow worker is red, not yellow."""
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
    cell: Callable[[Cells], tuple[str, str]]
    left: bool = False


class Cells(NamedTuple):
    """The data that a worker's cells show."""

    worker: WorkerState
    state: str
    slowdown: float
    all_items: int
    glyphs: Glyphs


COLUMNS = (
    Column("", "#", 3, lambda at: (str(at.worker.rank), "dim")),
    Column("", "device", 7, lambda at: (at.worker.device, ""), left=True),
    Column("", "state", 9, lambda at: _state(at), left=True),
    Column("", "iterations", 10, lambda at: (count(at.worker.iterations), "")),
    Column("item-", "iterations", 10, lambda at: (count(at.worker.item_iterations), "")),
    Column("", "share", 5, lambda at: (f"{at.worker.item_iterations / max(at.all_items, 1):.0%}", "")),
    Column("", "items/s", 8, lambda at: (count(at.worker.rate(), 8), "")),
    Column("", "wait", 4, lambda at: (f"{at.worker.waiting():.0%}", "")),
    Column("training", "loss", 8, lambda at: (number(at.worker.loss), "")),
    Column("", "", CELLS, lambda at: (sparkline(at.worker.curve.resampled(), at.glyphs.levels), "cyan"), left=True),
    Column("seconds", "computing", 9, lambda at: (tenths(at.worker.compute), "")),
    Column("seconds", "waiting", 8, lambda at: (tenths(at.worker.wait), "")),
    Column("seconds", "mixing", 8, lambda at: (tenths(at.worker.mix), "")),
    Column("distance", "to mean", 8, lambda at: (number(at.worker.distance), "")),
)
STATE_STYLES = {
    "training": "green",
    "waiting": "dim",
    "mixing": "blue",
    "starting": "cyan",
    "done": "dim",
    "stopped": "yellow",
    "lost": "bold red",
}


def frame(state: RunState, now: float, width: int, height: int, glyphs: Glyphs = UNICODE, folder: str = "") -> list[Line]:
    """Lay out the display: no line longer than `width`, no more lines than `height`. `now` is Unix time in seconds."""
    head = [fit_line(line, width, glyphs) for line in _header(state, now, width, glyphs, folder)]
    lines = head + _table(state, width, height - len(head) - 2, glyphs)
    return (lines + _curve(state, width, min(height - len(lines), 12), glyphs))[: max(height, 1)]


def _curve(state: RunState, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Draw the judged losses as bars of several lines, on a logarithmic scale as in a sparkline, where there is room."""
    values, rows, cells = state.judged_losses.resampled(), height - 2, min(width, 120) - 10
    if len(values) < 3 or rows < 3 or cells < 20:
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
        at = Cells(worker, state.activity(worker), slowdowns.get(worker.rank, 1.0), state.item_iterations, glyphs)
        cells = [(column, *column.cell(at)) for column in columns]
        lines.append([(_fit(column, text) + gap, style) for column, text, style in cells])
    if len(shown) < len(workers):
        lines.append([(f"and {len(workers) - len(shown)} more workers"[:width], "dim")])
    return [_trimmed(line) for line in lines]


def _fit(column: Column, text: str) -> str:
    text = text[: column.width]
    return text.ljust(column.width) if column.left else text.rjust(column.width)


def fit_line(line: Line, width: int, glyphs: Glyphs) -> Line:
    """Keep the pieces that fit, from the left: half a number would be another number. Only the first may be cut."""
    kept: Line = [(text[:width], style) for text, style in line[:1]]
    used = sum(len(text) for text, _ in kept)
    for text, style in line[1:]:
        used += len(text)
        if used > width:
            break
        kept.append((text, style))
    return kept[:-1] if kept and kept[-1][0].strip() == glyphs.dot else kept


def _trimmed(line: Line) -> Line:
    """Remove spaces at the end of a line."""
    return [*line[:-1], *((text.rstrip(), style) for text, style in line[-1:])]


def _state(at: Cells) -> tuple[str, str]:
    """Return text and style of a state; a worker that others wait for shows its slowdown."""
    if at.state == "training" and at.slowdown > 1:
        return f"slow {at.slowdown:.1f}x", "bold red" if at.slowdown >= VERY_SLOW else "yellow"
    return at.state, STATE_STYLES[at.state]


def _header(state: RunState, now: float, width: int, glyphs: Glyphs, folder: str) -> Iterator[Line]:
    """Lay out progress, other stop conditions, judged network, totals, last checkpoint, run folder and last fault."""
    dot = f" {glyphs.dot} "
    yield progress_line(state, now, width, glyphs)
    yield []
    standing = state.standing()
    others = [each.show(standing) for each in state.conditions() if each.name != "rounds"]
    if others:
        yield facts_line("until", others, dot)
    yield judged_line(state, now, dot)
    totals = [f"{count(state.item_iterations):>10} item-iterations", f"{count(state.rate()):>10} items/s"]
    rate = [] if state.lr is None else [f"lr {number(state.lr)}"]
    yield facts_line("so far", [*totals, clock(state.clock.train), *rate], dot)
    saved = state.commit
    yield facts_line("saved", [f"round {saved.round}", f"{size(saved.bytes)} in {saved.seconds:.3g} s"] if saved else ["-"], dot)
    if folder:
        fits = len(folder) <= width - 8
        yield facts_line("folder", [folder if fits else "..." + folder[-max(width - 11, 1) :]], dot)
    for label, times, newest, style in (
        ("replays", state.replays, state.replay, "yellow"),
        ("exclude", state.exclusions, state.exclusion, "yellow"),
        ("spikes", state.spikes, state.spike, "yellow"),
        ("faults", state.faults, state.fault, "red"),
    ):
        if times:
            yield [(f"{label:<8}", "dim"), (_cut(f"{times}{dot}{printable(newest)}", width - 8), style)]
    yield []


def _cut(text: str, width: int) -> str:
    """Cut the end of a sentence that is longer than `width`."""
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."


def progress_line(state: RunState, now: float, width: int, glyphs: Glyphs = UNICODE) -> Line:
    """Lay out name, rule, round, and how it ended or how far it is."""
    goal = state.stop.get("rounds")
    rounds = f"{state.round:>{len(str(goal))}}/{goal}" if goal else str(state.round)
    line: Line = [
        (printable(state.name), "bold"),
        (f" {glyphs.dot} {printable(state.rule)}", ""),
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


def judged_line(state: RunState, now: float, dot: str) -> Line:
    """Lay out the newest judgement and the best one."""
    judged, best = state.judged, state.best
    if judged is None:
        return facts_line("judged", ["-"], dot)
    scores = {"loss": judged.loss, **judged.metrics}
    line = facts_line("judged", [f"{name} {number(value)}" for name, value in scores.items()], dot)
    if best is not None:
        style = "bold reverse green" if now - best.t < FLASH_S else "green"
        value = number({"loss": best.loss, **best.metrics}.get(state.stop.get("patience_by") or "accuracy", best.loss))
        line += [(dot, ""), (f"best {value}", style), (f" in round {best.round}", style)]
    return line


def printable(text: str) -> str:
    """Put a text on one line, in characters of known width: it may come from any exception."""
    plain = "".join(each if each.isprintable() else " " for each in text)
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
