"""The parts of the screen as lines of styled text: list of runs, curves, and one run with its workers. Independent of Textual."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from partrain.display.live_table import (
    UNICODE,
    Glyphs,
    Line,
    activity_cell,
    fact_lines,
    facts_line,
    fit_line,
    printable,
    progress_line,
)
from partrain.number_format import clock, count, counted, number, size
from partrain.record.run_state import RunState
from partrain.record.worker_state import WorkerState
from partrain.watch.plot import Plot, PlotCurve
from partrain.watch.track import Track
from partrain.watch.watched import RunRow

STATUS_STYLES = {
    "training": "green", "starting": "cyan", "stopping": "yellow", "reading": "dim", "waiting": "dim", "reached": "bold green", "finished": "",
    "done": "", "not-reached": "yellow", "stopped": "yellow", "killed": "bold red", "failed": "bold red", "diverged": "bold red",
}  # fmt: skip
SORTS: dict[str, tuple[Callable[[RunRow], float | str], str]] = {
    "newest": (lambda row: -row.started, "newest first"),
    "name": (lambda row: row.name, "by name"),
    "loss": (lambda row: float("inf") if row.loss is None else row.loss, "lowest loss first"),
    "accuracy": (lambda row: 0.0 if row.accuracy is None else -row.accuracy, "highest accuracy first"),
    "rate": (lambda row: 0.0 if row.rate is None else -row.rate, "fastest first"),
}
"""Orders of the list: the key of a row, and the order in words."""
SCALES: dict[str, tuple[str, Callable[[float], str]]] = {
    "seconds": ("time", clock),
    "rounds": ("rounds", count),
    "items": ("item-iterations", count),
}
"""Horizontal axes by the field of a point: name, and format of the end."""
CURVE_STYLES = ("yellow", "magenta", "green", "blue", "red", "orange")
"""Colors of overlaid runs; the highlighted one is cyan."""
CURSOR = " on #26384a"
"""Background style of the highlighted run, in addition to its text style."""
COMPUTING, MIXING, WAITING = "█", "▒", "░"
ASCII_SIGNS = "#=."


class ListColumn(NamedTuple):
    """A column of the list after the names."""

    title: str
    width: int
    cell: Callable[[RunRow], str]
    rank: int
    """The order in which columns are dropped if they do not fit: the highest first."""
    left: bool = False


COLUMNS = (
    ListColumn("status", 11, lambda row: printable(row.status), 0, left=True),
    ListColumn("round", 13, lambda row: _round(row), 3),
    ListColumn("loss", 8, lambda row: number(row.loss), 1),
    ListColumn("accuracy", 8, lambda row: number(row.accuracy), 2),
    ListColumn("items/s", 8, lambda row: count(row.rate, 8), 4),
    ListColumn("time", 8, lambda row: "-" if row.seconds is None else clock(row.seconds), 6),
    ListColumn("rule", 9, lambda row: printable(row.rule), 5, left=True),
)
NAME = 12
"""Minimum number of characters of a name."""


@dataclass
class Marks:
    """Marks in the list: the highlighted run, and the overlaid ones."""

    highlighted: str | None = None
    """Folder of a run."""
    overlaid: list[str] = field(default_factory=list)

    def style(self, folder: str) -> str:
        """Return the color of a run's curve."""
        return CURVE_STYLES[self.overlaid.index(folder) % len(CURVE_STYLES)] if folder in self.overlaid else "cyan"

    def mark(self, folder: str) -> str:
        """Return the character at the end of a run's curve: its number among the overlaid runs."""
        return str(self.overlaid.index(folder) + 1)[-1] if folder in self.overlaid else ""


def title_line(root: str, rows: Sequence[RunRow], marks: Marks, sort: str, width: int) -> Line:
    """Lay out the first line: the watched folder, and the names of the overlaid runs, or else the number of runs."""
    root = shortened(printable(root), max(width // 3, 8))
    line: Line = [("partrain watch", "bold cyan"), (f"  {root}", "bold")]
    names = {row.folder: printable(row.name) for row in rows}
    for folder in marks.overlaid:
        line += [(f"  {marks.mark(folder)} ", f"bold {marks.style(folder)}"), (names.get(folder, "")[-24:], "dim")]
    if not marks.overlaid:
        training = sum(row.status in ("training", "starting", "stopping") for row in rows)
        many = f"{counted(len(rows), 'run')}, {training} training"
        line.append((f"  {many}, {SORTS[sort][1]}", "dim"))
    return cut_line(line, width)


def heights_of(height: int, listed: int, workers: int) -> tuple[int, int, int]:
    """Divide lines among list, curves and run: the list gets what it needs, up to a quarter."""
    listed = min(listed, max(height * 3 // 11, 3))
    bottom = min(workers + 6, max(height - listed - 8, 6)) if workers else 2
    curves = max(height - listed - bottom, 0)
    return listed, curves, height - listed - curves


def first_shown(rows: Sequence[RunRow], marks: Marks, room: int) -> int:
    """Return the position of the first run shown in this many lines, with the highlighted one in the middle."""
    place = next((index for index, row in enumerate(rows) if row.folder == marks.highlighted), 0)
    return max(0, min(place - room // 2, len(rows) - room))


def list_lines(rows: Sequence[RunRow], marks: Marks, width: int, height: int) -> list[Line]:
    """Lay out titles and runs in this many lines; only the runs around the highlighted one if not all fit."""
    room = max(height - 1, 0)
    first = first_shown(rows, marks, room)
    columns, name = list(COLUMNS), max((len(printable(row.name)) for row in rows), default=3)
    wanted = min(max(name, NAME), max(width // 3, NAME))
    while columns and 4 + wanted + sum(column.width + 2 for column in columns) > width:
        columns.remove(max(columns, key=lambda column: column.rank))
    wide = min(max(name, NAME), max(width - 4 - sum(column.width + 2 for column in columns), 1))
    lines: list[Line] = [[("    " + "run".ljust(wide) + "".join("  " + _fit(column, column.title) for column in columns), "dim")]]
    for row in rows[first : first + room]:
        lines.append(_list_line(row, marks, columns, wide, width))
    return [cut_line(line, width) for line in lines][:height]


def _list_line(row: RunRow, marks: Marks, columns: Sequence[ListColumn], wide: int, width: int) -> Line:
    chosen = row.folder == marks.highlighted
    over = CURSOR if chosen else ""
    symbol = marks.mark(row.folder)
    line: Line = [(">" if chosen else " ", f"bold{over}"), (f" {symbol or ' '} ", f"bold {marks.style(row.folder)}{over}")]
    line.append((shortened(printable(row.name), wide).ljust(wide), f"bold{over}" if chosen else ""))
    for column in columns:
        style = STATUS_STYLES.get(row.status, "") if column.title == "status" else ""
        line.append((f"  {_fit(column, column.cell(row))}", style + over))
    if chosen:
        line.append((" " * (width - sum(len(text) for text, _ in line)), over))
    return line


def _round(row: RunRow) -> str:
    if row.round is None:
        return "-"
    both = f"{row.round:,}/{row.goal:,}" if row.goal and row.goal >= row.round else f"{row.round:,}"
    return both if len(both) <= 13 else count(row.round, 13)


def _fit(column: ListColumn, text: str) -> str:
    text = text[: column.width]
    return text.ljust(column.width) if column.left else text.rjust(column.width)


def shortened(text: str, width: int) -> str:
    """Cut the middle out of a text: names of runs differ at both ends."""
    if len(text) <= width:
        return text
    tail = (width - 2) * 2 // 3
    return (text[: max(width - 2 - tail, 0)] + ".." + text[len(text) - tail :])[:width]


def curve_lines(tracks: Sequence[tuple[Track, str, str]], scale: str, *, log: bool, width: int, height: int) -> list[Line]:
    """Draw judged loss and accuracy of runs side by side, each run with its color and mark; the last one is on top."""
    curves = [(track.points(), style, symbol) for track, style, symbol in tracks]
    ends = [getattr(point, scale) for points, _, _ in curves for point in points[-1:]]
    name, text = SCALES[scale]
    end = f"{text(max(ends))} {name}" if ends else name
    both = any(point.accuracy == point.accuracy for points, _, _ in curves for point in points[-1:]) and width >= 50
    gap = 2
    wide = (width - gap) // 2 if both else width

    def plot(title: str, what: str, *, log: bool) -> Plot:
        shown = [
            PlotCurve([(getattr(point, scale), getattr(point, what)) for point in points], style, symbol)
            for points, style, symbol in curves
        ]
        return Plot(title, shown, end, log)

    left = plot("judged loss", "loss", log=log).lines(wide, height)
    if not both:
        return left
    right = plot("judged accuracy", "accuracy", log=False).lines(width - gap - wide, height)
    return [[*_padded(row, wide + gap), *other] for row, other in zip(left, right, strict=True)]


def run_lines(state: RunState, now: float, width: int, height: int, glyphs: Glyphs = UNICODE) -> list[Line]:
    """Lay out progress, newest fault, judgement, conditions, checkpoint, and a row for each worker."""
    dot = f" {glyphs.dot} "
    head: list[Line] = [progress_line(state, now, width, glyphs)]
    workers = len(state.workers)
    if (faults := state.tallies["fault"]).count:
        head.append([("fault   ", "dim"), (f"{faults.count}{dot}{printable(faults.newest)}"[: width - 8], "red")])
    facts = fact_lines(state, now, width, glyphs)
    head += [facts[label] for label in ("judged", "until") if label in facts]
    if saved := state.commit:
        head.append(facts_line("saved", [f"round {saved.round:,}", size(saved.bytes)], dot))
    head = head[: max(height - 1 - min(workers, 4), 1)]
    return [fit_line(line, width, glyphs) for line in head] + worker_lines(state, width, height - len(head), glyphs)


def worker_lines(state: RunState, width: int, height: int, glyphs: Glyphs = UNICODE) -> list[Line]:
    """Lay out a row for each worker, with bars of its seconds; only the slowest workers if not all fit."""
    if height < 2 or not state.workers:
        return []
    slow = state.slowdowns()
    workers = [worker for _, worker in sorted(state.workers.items())]
    shown = workers
    if len(workers) > height - 1:
        shown = sorted(workers, key=lambda worker: (not worker.lost, -slow.get(worker.rank, 0.0), worker.rank))[: height - 2]
    wide = max(min(width - 44, 80), 0)
    bar = 0 if wide < 8 else wide
    names = (" computing ", " mixing ", " waiting") if bar >= 32 else ("comp ", "mix ", "wait")
    signs = (COMPUTING, MIXING, WAITING) if glyphs is UNICODE else ASCII_SIGNS
    legend: Line = []
    for sign, name, style in zip(signs, names, ("green", "blue", "dim"), strict=True):
        legend += [(sign, style), (name, "dim")]
    legend = _padded(cut_line(legend, bar), bar)
    title: Line = [(f"{'#':>3} {'device':<7} {'state':<9} ", "dim"), *legend, (f" {'wait':>4} {'items/s':>8} {'loss':>7}", "dim")]
    lines: list[Line] = [cut_line(title, width)]
    for worker in shown:
        lines.append(cut_line(_worker_line(state, worker, slow.get(worker.rank, 1.0), bar, glyphs), width))
    if len(shown) < len(workers):
        lines.append([(f"and {len(workers) - len(shown)} more workers, which are no slower"[:width], "dim")])
    return lines


def _worker_line(state: RunState, worker: WorkerState, slowdown: float, bar: int, glyphs: Glyphs) -> Line:
    doing, style = activity_cell(state.activity(worker), 1.0 if state.status or worker.lost else slowdown)
    recent = worker.recent() if state.status is None else None
    compute, wait, mix = recent.spent if recent else worker.spent
    total = max(compute + mix + wait, 1e-9)
    first, second = (max(0, min(round(bar * part / total), bar)) for part in (compute, compute + mix))
    signs = (COMPUTING, MIXING, WAITING) if glyphs is UNICODE else ASCII_SIGNS
    cells = (first, second - first, bar - second if compute + mix + wait > 0 else 0)
    pieces = [sign * many for sign, many in zip(signs, cells, strict=True)]
    line: Line = [(f"{worker.rank:>3} {printable(worker.device)[:7]:<7} ", ""), (f"{doing[:9]:<9} ", style)]
    line += list(zip(pieces, ("green", "blue", "dim"), strict=True))
    padding = " " * (bar - sum(map(len, pieces)))
    rate = worker.rate() if state.status is None else worker.items / max(state.clock.train, 1e-9)
    line.append((f"{padding} {wait / total:>4.0%} {count(rate, 8):>8} {number(worker.numbers.get('loss'))[:7]:>7}", ""))
    return line


def _padded(line: Line, width: int) -> Line:
    return [*line, (" " * (width - sum(len(text) for text, _ in line)), "")]


def cut_line(line: Line, width: int) -> Line:
    """Cut a line to a width."""
    kept: Line = []
    for text, style in line:
        if width > 0:
            kept.append((text[:width], style))
        width -= len(text)
    return kept
