"""Displays of a run: a live table on a terminal, or plain lines elsewhere.

The coordinator shares its cores with the workers, so a display has no thread. It receives events; the coordinator calls `refresh`
through `RunContext.poll`, which draws at most four times a second. rich is imported only for a terminal. A reader who goes away
or pauses the terminal never stops the training.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

from partrain.display.live_table import ASCII, FLASH_S, UNICODE, frame, printable
from partrain.display.terminal import discard, finish, is_terminal, open_output, writable
from partrain.number_format import clock, count, number, plural, scores, tenths, time_of_day
from partrain.record.events import (
    BalanceEvent,
    EndEvent,
    Event,
    ExclusionEvent,
    FaultEvent,
    JudgementEvent,
    ReplayEvent,
    RoundEvent,
    SlowEvent,
    SpikeEvent,
    StartEvent,
)
from partrain.record.run_state import RunState
from partrain.record.stop_conditions import conditions_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment

REDRAW_S = 0.25
"""Seconds between two redraws, and between two writes of plain lines."""
LINE_S = 1.0
"""Seconds between two plain lines of unjudged rounds."""
IDLE_REDRAW_S = 1.0
"""Seconds between two redraws while no event arrives: only clocks move."""
BACKLOG_LINES = 10_000
"""Plain lines kept for a slow reader; older ones are dropped (events.jsonl has them)."""
BAR = 30
"""Characters of a bar."""
BITE = 4096
"""Characters written at a time to a pipe with free space: this many never block."""


class Display:
    """A display that shows nothing, and the interface of the others. `state` is the run state that it shows."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def adopt(self, state: RunState) -> None:
        """Continue from the state of a resumed run."""
        self.state = state

    def apply(self, event: Event) -> None:
        """Apply an event to the state."""
        self.state.apply(event)

    def refresh(self, now: float) -> None:
        """Show the changes, if it is time. `now` is Unix time in seconds."""

    def close(self) -> None:
        """Show the last state and restore the terminal."""


def make_display(
    stream: TextIO | None,
    *,
    json: bool = False,
    quiet: bool = False,
    state: RunState | None = None,
    verbose: bool = False,
    folder: Path | None = None,
) -> Display:
    """Make the display for a stream (stdout): a table on a terminal, plain lines elsewhere, nothing for `json` and `quiet`.

    `state` is the state of a resumed run. `verbose`: a plain line for each round. `folder`: the run folder, which the table shows.
    """
    state = RunState() if state is None else state
    if json or quiet or stream is None:
        return Display(state)
    return LiveDisplay(stream, state, str(folder or "")) if _animates(stream) else PlainDisplay(stream, state, verbose=verbose)


def _animates(stream: TextIO) -> bool:
    """Return whether the stream is a terminal with a movable cursor."""
    refused = os.environ.get("TTY_COMPATIBLE") == "0" or os.environ.get("TTY_INTERACTIVE") == "0"
    return is_terminal(stream) and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "") and not refused


class PlainDisplay(Display):
    """A line that describes the training, then at most one line per second, with the newest judgement; with `verbose` one per round."""

    def __init__(self, stream: TextIO, state: RunState, *, verbose: bool = False) -> None:
        super().__init__(state)
        self._stream: TextIO | None = stream
        """None once the reader has gone."""
        self._output = open_output(stream)
        self._verbose = verbose
        self._lines: deque[str] = deque(maxlen=BACKLOG_LINES)
        self._round: tuple[float, str] | None = None
        """Time and text of the newest round, whose judgement and commit may follow."""
        self._held = ""
        """The newest line that came too soon after the previous one: the last one of a run is shown."""
        self._fault = ""
        """A fault that may end the run; the error message then reports it."""
        self._line_t = -math.inf
        self._written = 0.0
        self.adopt(state)

    def adopt(self, state: RunState) -> None:
        self.state = state
        self._shown: tuple[JudgementEvent | None, int] = (state.judged, state.commit.round if state.commit else 0)

    def apply(self, event: Event) -> None:
        state, before = self.state, self.state.round
        state.apply(event)
        if self._fault and not (isinstance(event, EndEvent) and event.status == "failed"):
            self._lines.append(self._fault)
        self._fault = ""
        if isinstance(event, StartEvent):
            self._lines.append(_line(event.t, first_line(event)))
        elif isinstance(event, RoundEvent) and state.round != before:
            self._finish()
            self._round = (event.t, self._numbers())
        elif isinstance(event, FaultEvent):
            self._finish()
            self._fault = _line(event.t, f"fault: {printable(event.what)}")
        elif isinstance(event, ReplayEvent):
            self._finish()
            self._lines.append(_line(event.t, f"replay: {printable(event.describe())}"))
        elif isinstance(event, ExclusionEvent | SpikeEvent):  # its round's line follows
            self._lines.append(_line(event.t, f"{event.kind}: {event.describe()}"))
        elif isinstance(event, BalanceEvent):
            self._lines.append(_line(event.t, f"balance: {event.describe()}"))
        elif isinstance(event, SlowEvent):
            self._finish()
            self._lines.append(_line(event.t, f"{'recovered' if event.recovered else 'slow'}: {event.describe()}"))

    def refresh(self, now: float) -> None:
        if abs(now - self._written) < REDRAW_S:
            return
        self._written = now
        if self._round is not None and now - self._round[0] >= REDRAW_S:
            self._finish()
        while self._lines and self._stream is not None and writable(self._output):
            self._write(BITE)

    def close(self) -> None:
        self._finish()
        self._lines.extend(filter(None, [self._held, self._fault]))
        self._write(None)
        finish(self._output)

    def _numbers(self) -> str:
        state, loss, eta = self.state, self.state.merged("loss"), self.state.eta(self.state.t)
        trained = "" if loss is None else f"  loss {number(loss)}"
        left = "" if eta is None else f"  {clock(eta)} left"
        return f"{tenths(state.clock.train):>6} s  round {state.round:,}  {state.item_iterations:,} item-iterations{trained}  {count(state.rate())} items/s{left}"

    def _finish(self) -> None:
        """Complete the newest round's line with its judgement and commit, which follow the workers' events."""
        if self._round is None:
            return
        (t, line), state, (judged, committed) = self._round, self.state, self._shown
        is_judged = state.judged is not None and state.judged is not judged
        if state.judged is not None and is_judged:
            judged = state.judged
            label = "judged" if f"  round {judged.round:,}  " in line else f"judged in round {judged.round:,}"
            line += f"  {label}: {scores(judged.scores)}"
        self._round = None
        if not (self._verbose or t - self._line_t >= LINE_S):
            self._held = _line(t, line)
            return
        if state.commit is not None and state.commit.round != committed:
            committed = state.commit.round
            line += f"  saved round {committed:,}"
        self._lines.append(_line(t, line))
        self._held, self._line_t, self._shown = "", t, (judged, committed)

    def _write(self, most: int | None) -> None:
        """Write whole lines, at most `most` characters; write nothing once the reader has gone."""
        if self._stream is None:
            return
        text = ""
        while self._lines and (most is None or not text or len(text) + len(self._lines[0]) <= most):
            text += self._lines.popleft()
        try:
            self._output.write(text)
            self._output.flush()
        except (OSError, ValueError):
            discard(self._stream)
            self._stream = None


def _line(moment: float, text: str) -> str:
    """Return a plain line of an event: the time of day of `moment` (Unix time), and a text."""
    return f"{time_of_day(moment)}  {text}\n"


def first_line(start: StartEvent) -> str:
    """Describe a starting run: network, devices and goal."""
    devices = Counter(worker["device"] for worker in start.workers)
    workers = " and ".join(f"{many} {device} {plural('worker', many)}" for device, many in devices.items())
    goals = " or ".join(f"{condition.name} {condition.goal:,}" for condition in conditions_of(start.stop))
    further = "" if start.resumed_from is None else f"continues after round {start.resumed_from:,}, "
    return f"{start.name}: {workers}, rule {start.rule}, {start.parameters:,} parameters; {further}until {goals}"


class LiveDisplay(Display):
    """A table that is redrawn in place."""

    def __init__(self, stream: TextIO, state: RunState, folder: str = "") -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(state)
        self._folder = folder
        self._stream, self._output = stream, open_output(stream)
        self._console = Console(file=cast("TextIO", self._output), force_terminal=True, force_interactive=True, highlight=False)
        both = sys.stderr is not None and is_terminal(sys.stderr)  # then messages appear above the table
        self._live: Live | None = Live(
            self, console=self._console, auto_refresh=False, vertical_overflow="crop", redirect_stderr=both
        )
        self._glyphs = UNICODE if "utf" in (stream.encoding or "").lower() else ASCII
        self._now = self._drawn = 0.0
        self._dirty = False

    def apply(self, event: Event) -> None:
        self.state.apply(event)
        self._dirty = True

    def refresh(self, now: float) -> None:
        if abs(now - self._drawn) < (REDRAW_S if self._dirty else IDLE_REDRAW_S) or not self.state.workers:
            return
        self._now = self._drawn = now
        if writable(self._output):
            self._dirty = False
            self._draw()

    def close(self) -> None:
        self._now = self.state.t + FLASH_S
        self._draw(last=True)
        finish(self._output)

    def _draw(self, *, last: bool = False) -> None:
        if self._live is None:
            return
        try:
            if not last:
                self._live.start()
                self._live.refresh()
            elif self._live.is_started:
                self._live.stop()
        except (OSError, ValueError, SystemExit):  # rich exits where a pipe is broken; training goes on
            discard(self._stream)
            with suppress(OSError, ValueError):
                self._live.stop()
            self._live = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        terminal = console.size
        for line in frame(self.state, self._now, terminal.width, terminal.height - 1, self._glyphs, self._folder):
            for text, style in line:
                yield Segment(text, console.get_style(style) if style else None)
            yield Segment.line()


@contextmanager
def transfers(stream: TextIO | None) -> Iterator[Callable[[str, int, int | None], None] | None]:
    """Show downloads as bars on a terminal; elsewhere yield nothing to report to."""
    if stream is None or not _animates(stream):
        yield None
        return
    drawn, write = 0.0, getattr(stream, "write_controls", stream.write)

    def show(text: str) -> None:
        with suppress(OSError, ValueError):  # a script's own stderr, whose terminal is gone
            write(text)
            stream.flush()

    def report(url: str, done: int, total: int | None) -> None:
        nonlocal drawn
        if time.monotonic() - drawn < REDRAW_S and done:
            return
        drawn = time.monotonic()
        name = url.partition("#")[0].rpartition("/")[2]
        full = BAR * done // total if total else 0
        bar = f"[{'=' * full:{BAR}}] {done / 1e6:.1f} of {total / 1e6:.1f}" if total else f"{done / 1e6:.1f}"
        show(f"\r\x1b[Kfetching {printable(name)[:30]} {bar} MB")

    try:
        yield report
    finally:
        if drawn:
            show("\r\x1b[K")
