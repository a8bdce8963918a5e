"""What a person sees of a run: a live table on a terminal, a plain line per round elsewhere, and the last lines.

The coordinator shares its cores with the workers, so nothing here runs by itself: events are fed, and `tick` draws, at
most four times a second. rich is imported only where there is a terminal. A reader who goes away, or who pauses the
terminal, never stops the training.
"""

from __future__ import annotations

import math
import os
import select
import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from partrain.view import CELLS, Condition, Event, Judgement, View, WorkerView

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment

REDRAW_S = 0.25
"""Seconds between two redraws, and between two writes of plain lines."""
IDLE_REDRAW_S = 1.0
"""The same while nothing happens: only clocks move."""
FLASH_S = 1.5
"""A new best stands out for so long."""
SLOW, VERY_SLOW = 1.2, 1.5
"""Computing time over that of the fastest worker, from which a worker is yellow, and red."""
BACKLOG_LINES = 10_000
"""Plain lines kept for a reader who is slow; older ones are left out (events.jsonl has them)."""
BITE = 4096
"""Characters written at a time to a pipe that has room: so much never blocks."""

Line = list[tuple[str, str]]
"""Pieces of text, each with its style."""


class Display:
    """A display that shows nothing, and the interface of the others. `view` is the state behind it."""

    def __init__(self, view: View) -> None:
        self.view = view

    def adopt(self, view: View) -> None:
        """Continue from the state of a run that is resumed."""
        self.view = view

    def feed(self, event: Event) -> None:
        """Take note of an event."""
        self.view.feed(event)

    def tick(self, now: float) -> None:
        """Show what is new, if it is time to. `now` is Unix time in seconds."""

    def close(self) -> None:
        """Show the last state and leave the terminal as it was."""


def make_display(stream: TextIO | None, json: bool = False, quiet: bool = False, view: View | None = None) -> Display:
    """The display for a stream (stdout): a table on a terminal, plain lines elsewhere, nothing for `json` and `quiet`.

    `view` continues the state of a run that is resumed.
    """
    view = View() if view is None else view
    if json or quiet or stream is None:
        return Display(view)
    return LiveDisplay(stream, view) if _animates(stream) else PlainDisplay(stream, view)


def _animates(stream: TextIO) -> bool:
    """Whether a cursor can be moved on it."""
    refused = os.environ.get("TTY_COMPATIBLE") == "0" or os.environ.get("TTY_INTERACTIVE") == "0"
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "") and not refused


class PlainDisplay(Display):
    """One `key=value` line per round."""

    def __init__(self, stream: TextIO, view: View) -> None:
        super().__init__(view)
        self._stream: TextIO | None = stream
        self._lines: deque[str] = deque(maxlen=BACKLOG_LINES)
        self._round: tuple[float, str] | None = None
        self._second: tuple[int, str] = (-1, "")
        self._written = 0.0
        self.adopt(view)

    def adopt(self, view: View) -> None:
        self.view = view
        self._shown: tuple[Judgement | None, int] = (view.judged, view.commit.round if view.commit else 0)

    def feed(self, event: Event) -> None:
        view, before, kind = self.view, self.view.round, event["event"]
        view.feed(event)
        if kind == "round" and view.round != before:
            self._finish()
            self._round = (event["t"], self._numbers())
        elif kind == "fault":
            self._lines.append(f"time={self._time(event['t'])} fault={shlex.quote(_printable(event['what']))}\n")

    def tick(self, now: float) -> None:
        if abs(now - self._written) < REDRAW_S:
            return
        self._written = now
        if self._round is not None and now - self._round[0] >= REDRAW_S:
            self._finish()
        while self._lines and self._stream is not None and _has_room(self._stream):
            self._write(BITE)

    def close(self) -> None:
        self._finish()
        self._write(None)

    def _numbers(self) -> str:
        view = self.view
        loss = view.loss()
        trained = "" if loss is None else f" loss={loss:.6g}"
        return f" round={view.round} item_iterations={view.item_iterations}{trained} items_per_second={view.rate():.0f}"

    def _finish(self) -> None:
        """Complete the newest round's line by what has come since: its judgement and commit follow the workers' lines."""
        if self._round is None:
            return
        (t, line), view, (judged, committed) = self._round, self.view, self._shown
        if view.judged is not None and view.judged is not judged:
            judged = view.judged
            line += "" if judged.round == view.round else f" judged_round={judged.round}"
            line += "" if judged.loss is None else f" judged_loss={judged.loss:.6g}"
            line += "".join(f" judged_{name}={value:.6g}" for name, value in judged.metrics.items())
            line += " judge=any-worker" if view.stop.get("judge") == "any-worker" else ""
        if view.commit is not None and view.commit.round != committed:
            committed = view.commit.round
            line += f" committed={committed}"
        self._lines.append(f"time={self._time(t)}{line}\n")
        self._round, self._shown = None, (judged, committed)

    def _time(self, t: float) -> str:
        """ISO 8601 in UTC; the part up to the second is formatted once a second."""
        second = math.floor(t)
        if second != self._second[0]:
            self._second = (second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)))
        return f"{self._second[1]}.{int((t - second) * 1000):03d}Z"

    def _write(self, most: int | None) -> None:
        """Write whole lines, at most so many characters; silent for good once nobody reads."""
        if self._stream is None:
            return
        text = ""
        while self._lines and (most is None or not text or len(text) + len(self._lines[0]) <= most):
            text += self._lines.popleft()
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            _discard(self._stream)
            self._stream = None


class LiveDisplay(Display):
    """A table that is redrawn in place."""

    def __init__(self, stream: TextIO, view: View) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(view)
        self._stream = stream
        self._console = Console(file=stream, force_terminal=True, force_interactive=True, highlight=False)
        both = sys.stderr is not None and sys.stderr.isatty()  # then messages go above the table, else where they were sent
        self._live: Live | None = Live(
            self, console=self._console, auto_refresh=False, vertical_overflow="crop", redirect_stderr=both
        )
        self._glyphs = UNICODE if "utf" in (stream.encoding or "").lower() else ASCII
        self._now = self._drawn = 0.0
        self._dirty = False

    def feed(self, event: Event) -> None:
        self.view.feed(event)
        self._dirty = True

    def tick(self, now: float) -> None:
        if abs(now - self._drawn) < (REDRAW_S if self._dirty else IDLE_REDRAW_S) or not self.view.workers:
            return
        self._now = self._drawn = now
        if _has_room(self._stream):
            self._dirty = False
            self._draw()

    def close(self) -> None:
        self._now = self.view.t + FLASH_S
        self._draw(last=True)

    def _draw(self, last: bool = False) -> None:
        if self._live is None:
            return
        try:
            if not last:
                self._live.start()
                self._live.refresh()
            elif self._live.is_started:
                self._live.stop()
        except (OSError, ValueError, SystemExit):  # rich exits where a pipe is broken; training goes on
            _discard(self._stream)
            with suppress(OSError, ValueError):
                self._live.stop()
            self._live = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        terminal = console.size
        for line in frame(self.view, self._now, terminal.width, terminal.height - 1, self._glyphs):
            for text, style in line:
                yield Segment(text, console.get_style(style) if style else None)
            yield Segment.line()


def _has_room(stream: TextIO) -> bool:
    """Whether a write would not block: a pager that waits, or Ctrl-S on the terminal, must not hold up the workers."""
    try:
        return bool(select.select([], [stream.fileno()], [], 0)[1])
    except (OSError, ValueError):
        return True


def _discard(stream: TextIO) -> None:
    """Send the rest to /dev/null: a closed stdout would raise again when Python flushes it at exit."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):
        return


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
    """What a worker's cells are made of."""

    worker: WorkerView
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
    Column("training", "loss", 8, lambda at: (number(at.worker.loss), "")),
    Column("", "", CELLS, lambda at: (sparkline(at.worker.curve.resampled(), at.glyphs.levels), "cyan"), left=True),
    Column("seconds", "computing", 9, lambda at: (tenths(at.worker.compute), "")),
    Column("seconds", "waiting", 8, lambda at: (tenths(at.worker.wait), "")),
    Column("seconds", "mixing", 8, lambda at: (tenths(at.worker.mix), "")),
    Column("distance", "to mean", 8, lambda at: (number(at.worker.distance), "")),
)
STATE_STYLES = {"training": "green", "waiting": "dim", "mixing": "blue", "starting": "cyan", "done": "dim", "lost": "bold red"}


def frame(view: View, now: float, width: int, height: int, glyphs: Glyphs = UNICODE) -> list[Line]:
    """The whole display: no line longer than `width`, no more lines than `height`. `now` is Unix time in seconds."""
    head = [_whole(line, width, glyphs) for line in _header(view, now, width, glyphs)]
    return (head + _table(view, width, height - len(head) - 2, glyphs))[: max(height, 1)]


def _table(view: View, width: int, room: int, glyphs: Glyphs) -> list[Line]:
    """Two lines of titles, and a line per worker in `room` lines; columns that do not fit are left out from the right."""
    gap = "  " if width >= 80 else " "
    ends = accumulate(column.width + len(gap) for column in COLUMNS)
    columns = [column for column, end in zip(COLUMNS, ends, strict=True) if end - len(gap) <= width]
    lines: list[Line] = [
        [(gap.join(_fit(column, column.over) for column in columns), "dim")],
        [(gap.join(_fit(column, column.title) for column in columns), "dim")],
    ]
    workers = [worker for _, worker in sorted(view.workers.items())]
    shown = workers if len(workers) <= room else workers[: max(room - 1, 0)]
    slowdowns = view.slowdowns()
    for worker in shown:
        at = Cells(worker, view.state(worker), slowdowns.get(worker.rank, 1.0), view.item_iterations, glyphs)
        cells = [(column, *column.cell(at)) for column in columns]
        lines.append([(_fit(column, text) + gap, style) for column, text, style in cells])
    if len(shown) < len(workers):
        lines.append([(f"and {len(workers) - len(shown)} more workers"[:width], "dim")])
    return [_trimmed(line) for line in lines]


def _fit(column: Column, text: str) -> str:
    text = text[: column.width]
    return text.ljust(column.width) if column.left else text.rjust(column.width)


def _whole(line: Line, width: int, glyphs: Glyphs) -> Line:
    """The pieces that fit, from the left: half a number would be another number. Only the first may be cut."""
    kept: Line = [(text[:width], style) for text, style in line[:1]]
    used = sum(len(text) for text, _ in kept)
    for text, style in line[1:]:
        used += len(text)
        if used > width:
            break
        kept.append((text, style))
    return kept[:-1] if kept and kept[-1][0].strip() == glyphs.dot else kept


def _trimmed(line: Line) -> Line:
    """Without spaces at its end."""
    return [*line[:-1], *((text.rstrip(), style) for text, style in line[-1:])]


def _state(at: Cells) -> tuple[str, str]:
    """The state; a worker that others wait for shows by how much it is slower than the fastest."""
    if at.state == "training" and at.slowdown >= SLOW:
        return f"slow {at.slowdown:.1f}x", "bold red" if at.slowdown >= VERY_SLOW else "yellow"
    return at.state, STATE_STYLES[at.state]


def _header(view: View, now: float, width: int, glyphs: Glyphs) -> Iterator[Line]:
    """Progress, other stop conditions, judged network, totals, last checkpoint, last fault."""
    dot = f" {glyphs.dot} "
    yield _progress(view, now, width, glyphs)
    yield []
    others = [_condition(each) for each in view.conditions() if each.name != "rounds"]
    if others:
        yield _facts("until", others, dot)
    yield _judged(view, now, dot)
    totals = [f"{count(view.item_iterations):>10} item-iterations", f"{count(view.rate()):>10} items/s"]
    yield _facts("so far", [*totals, f"{clock(view.clock.train)} training"], dot)
    saved = view.commit
    yield _facts("saved", [f"round {saved.round}", f"{size(saved.bytes)} in {saved.seconds:.3g} s"] if saved else ["-"], dot)
    if view.faults:
        yield [("faults  ", "dim"), (f"{view.faults}{dot}{_printable(view.fault)}", "red")]
    yield []


def _progress(view: View, now: float, width: int, glyphs: Glyphs) -> Line:
    goal = view.stop.get("rounds")
    rounds = f"{view.round:>{len(str(goal))}}/{goal}" if goal else str(view.round)
    line: Line = [(view.name, "bold"), (f" {glyphs.dot} {view.rule}", ""), (f" {glyphs.dot} round {rounds}", "")]
    fraction, eta = view.fraction(), view.eta(now)
    if view.status is not None:
        return [*line, (f"  {view.status}", "bold"), (f" ({view.reason})", "")]
    if fraction is not None:
        cells = 20 if width >= 80 else 8
        done = int(cells * fraction)
        line += [(f"  {glyphs.done * done}", "green"), (glyphs.left * (cells - done), "dim")]
        line += [(f" {math.floor(100 * fraction):>3}%", ""), (f"  ETA {clock(eta) if eta is not None else '-'}", "")]
    return line


def _facts(label: str, facts: Sequence[str], dot: str) -> Line:
    """A labelled line, each fact a piece."""
    return [(f"{label:<8}", "dim"), *((fact if place == 0 else dot + fact, "") for place, fact in enumerate(facts))]


def _condition(at: Condition) -> str:
    if at.name == "seconds":
        return f"{clock(at.now or 0)}/{clock(at.goal)}"
    show = number if at.name in ("loss", "accuracy") else count
    return f"{at.name.replace('item_', 'item-')} {show(at.now)}/{show(at.goal)}"


def _judged(view: View, now: float, dot: str) -> Line:
    judged, best = view.judged, view.best
    if judged is None:
        return _facts("judged", ["-"], dot)
    scores = {"loss": judged.loss, **judged.metrics}
    line = _facts("judged", [f"{name} {number(value)}" for name, value in scores.items()], dot)
    if best is not None:
        style = "bold reverse green" if now - best.t < FLASH_S else "green"
        value = number(best.metrics.get("accuracy", best.loss))
        line += [(dot, ""), (f"best {value}", style), (f" in round {best.round}", style)]
    if view.stop.get("judge") == "any-worker":
        line.append((f"{dot}judge=any-worker", "yellow"))
    return line


def _printable(text: str) -> str:
    """On one line, in characters of known width: the text may be that of anybody's exception."""
    plain = "".join(each if each.isprintable() else " " for each in text)
    return plain.encode("ascii", "backslashreplace").decode()


def sparkline(values: list[float], levels: str = UNICODE.levels) -> str:
    """A character per value, on a logarithmic scale where all are positive: losses fall by orders of magnitude."""
    if not values:
        return ""
    heights = [math.log(value) for value in values] if min(values) > 0 else values
    low, high = min(heights), max(heights)
    scale = (len(levels) - 1) / (high - low) if high > low else 0.0
    return "".join(levels[round((height - low) * scale)] for height in heights)


def count(value: float | None, width: int = 10) -> str:
    """A number of things, never longer than `width`: in full where that fits, else four digits and a unit."""
    text = "-" if value is None else f"{round(value):,}"
    return text if len(text) <= width else _scaled(value or 0, ("", "k", "M", "G", "T"))


def size(value: float) -> str:
    """A number of bytes, in decimal units."""
    return _scaled(value, (" B", " kB", " MB", " GB", " TB"))


def _scaled(value: float, units: Sequence[str]) -> str:
    power = min(int(math.log10(max(value, 1)) / 3), len(units) - 1)
    return f"{value / 1000**power:.4g}{units[power]}"


def number(value: float | None) -> str:
    """A loss or metric, at most eight characters."""
    if value is None:
        return "-"
    if value == 0 or 1e-3 <= abs(value) < 1000:
        return f"{value:.{4 if abs(value) < 10 else 3 if abs(value) < 100 else 2}f}"
    return f"{value:.{2 if value > 0 else 1}e}"


def tenths(value: float) -> str:
    """Seconds, at most eight characters for three years."""
    return f"{value:.1f}" if value < 1e6 else f"{value:.0f}"


def clock(seconds: float) -> str:
    """A duration as h:mm:ss, its fraction cut off."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}"


def epilogue(
    content: Mapping[str, Any],
    folder: Path,
    checkpoint: Path | None,
    stop: Mapping[str, Any] | None = None,
    own_code: bool = False,
) -> list[str]:
    """The last lines of a run: how it ended, what came out, where it is, and commands to go on with, ready to paste.

    `content` is that of summary.json; `stop`, the `[stop]` table, tells which condition a resumed run must move;
    `own_code`: the network is the user's, who has to say so each time.
    """
    reason = f" ({content['reason']})" if content.get("reason") else ""
    seconds = content["seconds"]["train"]
    done = f"{content['rounds']:,} rounds, {content['item_iterations']:,} item-iterations, {seconds:.1f} s of training"
    lines = [f"{content['status']}{reason}: {done}"]
    judged = {"loss": content["loss"], **content["metrics"]}
    label = "judged (any-worker)" if content.get("judge") == "any-worker" else "judged"
    for name, scores in ((label, judged), ("test", content["test"])):
        shown = ", ".join(f"{key} {number(value)}" for key, value in scores.items() if value is not None)
        if shown:
            lines.append(f"{name}: {shown}")
    lines.append(f"results: {shlex.quote(str(folder))}")
    if checkpoint is None:
        return lines
    path = shlex.quote(str(checkpoint)) + " --trust-code" * own_code
    until = "".join(f" --until {moved}" for moved in _moved(content, stop or {}))
    return [
        *lines,
        f"  partrain evaluate {path}",
        f"  partrain inspect {shlex.quote(str(checkpoint))}",
        f"  partrain resume {path}{until}",
    ]


def _moved(content: Mapping[str, Any], stop: Mapping[str, Any]) -> list[str]:
    """Stop conditions that let the run go on: each target halfway to perfection, or the limit that ended it doubled."""
    status, reason = content["status"], str(content.get("reason"))
    if status not in ("reached", "finished", "not-reached"):
        return []
    targets = {"loss": stop.get("loss", 0) / 2, "accuracy": (1 + stop.get("accuracy", 0)) / 2}
    moved = [f"{name}={goal:.4g}" for name, goal in targets.items() if name in stop and status == "reached"]
    if moved:
        return moved
    if reason in ("rounds", "item_iterations", "seconds", "patience") and reason in stop:
        return [f"{reason}={2 * stop[reason]}"]
    return [f"rounds={2 * content['rounds']}"]
