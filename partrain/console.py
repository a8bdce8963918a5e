"""What a person sees of a run: a live table on a terminal, a plain line per round elsewhere, and the last lines.

The coordinator shares its cores with the workers, so nothing here runs by itself: events are fed, and `tick` draws, at
most four times a second. rich is imported only where there is a terminal. A reader who goes away, or who pauses the
terminal, never stops the training.
"""

from __future__ import annotations

import io
import math
import os
import select
import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from partrain.table import ASCII, UNICODE, frame, number, printable
from partrain.view import Event, Judgement, View

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment

REDRAW_S = 0.25
"""Seconds between two redraws, and between two writes of plain lines."""
IDLE_REDRAW_S = 1.0
"""The same while nothing happens: only clocks move."""
FLASH_S = 1.5
"""A new best stands out for so long."""
BACKLOG_LINES = 10_000
"""Plain lines kept for a reader who is slow; older ones are left out (events.jsonl has them)."""
BAR = 30
"""Characters of a bar."""
BITE = 4096
"""Characters written at a time to a pipe that has room: so much never blocks."""


class Terminal(io.TextIOBase):
    """A terminal that is written to without waiting for it: what it has no room for waits here.

    It is opened once more, for whether writes wait belongs to the open file, and that is shared with the shell. A terminal that has room
    for one character may have none for a frame.
    """

    def __init__(self, stream: TextIO) -> None:
        stream.flush()
        self._encoding = stream.encoding or "utf-8"
        flags = os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            self._descriptor = os.open(os.ttyname(stream.fileno()), flags)
        except OSError:  # another container's, or another user's
            self._descriptor = os.dup(stream.fileno())
        self._left = b""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        """Keep it for the next `flush`."""
        self._left += text.encode(self._encoding, "replace")
        return len(text)

    def flush(self) -> None:
        """Write as much as there is room for. Raises OSError where the terminal is gone."""
        with suppress(BlockingIOError):
            while self._left and select.select([], [self._descriptor], [], 0)[1]:
                self._write()

    def _write(self) -> None:
        self._left = self._left[os.write(self._descriptor, self._left) :]

    @property
    def has_room(self) -> bool:
        """Whether all has been written."""
        self.flush()
        return not self._left

    def close(self) -> None:
        """Wait until all is written."""
        if not self.closed:
            try:
                os.set_blocking(self._descriptor, True)
                while self._left:
                    self._write()
            finally:
                os.close(self._descriptor)
                self._left = b""
                super().close()


def _outlet(stream: TextIO) -> TextIO | Terminal:
    """What to write to, so that a stream which is a terminal is not waited for."""
    if stream.isatty():
        with suppress(OSError, ValueError):  # it may only say that it is one
            return Terminal(stream)
    return stream


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
        """None once nobody reads."""
        self._outlet = _outlet(stream)
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
            self._lines.append(f"time={self._time(event['t'])} fault={shlex.quote(printable(event['what']))}\n")

    def tick(self, now: float) -> None:
        if abs(now - self._written) < REDRAW_S:
            return
        self._written = now
        if self._round is not None and now - self._round[0] >= REDRAW_S:
            self._finish()
        while self._lines and self._stream is not None and _has_room(self._outlet):
            self._write(BITE)

    def close(self) -> None:
        self._finish()
        self._write(None)
        _finish(self._outlet)

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
            self._outlet.write(text)
            self._outlet.flush()
        except (OSError, ValueError):
            _discard(self._stream)
            self._stream = None


class LiveDisplay(Display):
    """A table that is redrawn in place."""

    def __init__(self, stream: TextIO, view: View) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(view)
        self._stream, self._outlet = stream, _outlet(stream)
        self._console = Console(file=cast("TextIO", self._outlet), force_terminal=True, force_interactive=True, highlight=False)
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
        if _has_room(self._outlet):
            self._dirty = False
            self._draw()

    def close(self) -> None:
        self._now = self.view.t + FLASH_S
        self._draw(last=True)
        _finish(self._outlet)

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


def _has_room(stream: TextIO | Terminal) -> bool:
    """Whether a write would not block: a pager that waits, or Ctrl-S on the terminal, must not hold up the workers."""
    try:
        if isinstance(stream, Terminal):
            return stream.has_room
        return bool(select.select([], [stream.fileno()], [], 0)[1])
    except (OSError, ValueError):
        return True


def _finish(outlet: TextIO | Terminal) -> None:
    """A stream that is ours alone is closed once all is written."""
    if isinstance(outlet, Terminal):
        with suppress(OSError):
            outlet.close()


def _discard(stream: TextIO) -> None:
    """Send the rest to /dev/null: a closed stdout would raise again when Python flushes it at exit."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):
        return


@contextmanager
def transfers(stream: TextIO | None) -> Iterator[Callable[[str, int, int | None], None] | None]:
    """Shows files that are being fetched by a bar on a terminal; elsewhere gives nothing to show them."""
    if stream is None or not _animates(stream):
        yield None
        return
    drawn = 0.0

    def report(url: str, done: int, total: int | None) -> None:
        nonlocal drawn
        if time.monotonic() - drawn < REDRAW_S and done:
            return
        drawn = time.monotonic()
        name = url.partition("#")[0].rpartition("/")[2]
        full = BAR * done // total if total else 0
        bar = f"[{'=' * full:{BAR}}] {done / 1e6:.1f} of {total / 1e6:.1f}" if total else f"{done / 1e6:.1f}"
        stream.write(f"\r\x1b[Kfetching {printable(name)[:30]} {bar} MB")
        stream.flush()

    try:
        yield report
    finally:
        if drawn:
            stream.write("\r\x1b[K")
            stream.flush()


def epilogue(
    content: Mapping[str, Any],
    folder: Path,
    checkpoint: Path | None,
    stop: Mapping[str, Any] | None = None,
    own_code: bool = False,
    spent: bool = False,
) -> list[str]:
    """The last lines of a run: how it ended, what came out, where it is, and commands to go on with, ready to paste.

    `content` is that of summary.json; `stop`, the `[stop]` table, tells which condition a resumed run must move;
    `own_code`: the network is the user's, who has to say so each time; `spent`: the learning rate has come to 0, so there is no
    use in going on.
    """
    reason = f" ({content['reason']})" if content.get("reason") not in (None, content["status"]) else ""
    seconds = content["seconds"]["train"]
    done = f"{content['rounds']:,} rounds, {content['item_iterations']:,} item-iterations, {seconds:.1f} s of training"
    lines = [f"{content['status']}{reason}: {done}"]
    judged = {"loss": content["loss"], **content["metrics"]}
    label = "judged (any-worker)" if content.get("judge") == "any-worker" else "judged"
    for name, scores in ((label, judged), ("test", content["test"])):
        shown = ", ".join(f"{key} {number(value)}" for key, value in scores.items() if value is not None)
        if shown:
            lines.append(f"{name}: {shown}")
    if unlike := [worker["unevenness"] for worker in content["workers"] if "unevenness" in worker]:
        mean, most = sum(unlike) / len(unlike), max(unlike)
        lines.append(f"partitions: unlike all together by {mean:.0%} on average, at most {most:.0%} (distance of target shares)")
    lines.append(f"results: {shlex.quote(str(folder))}")
    if checkpoint is None:
        return lines
    path = shlex.quote(str(checkpoint)) + " --trust-code" * own_code
    until = "".join(f" --until {each}" for each in moved(content, stop or {}))
    again = content["status"] == "diverged"  # the same numbers would come
    onward = [] if spent or again else [f"  partrain resume {path}{until}"]
    return [*lines, f"  partrain evaluate {path}", f"  partrain inspect {shlex.quote(str(checkpoint))}", *onward]


def moved(content: Mapping[str, Any], stop: Mapping[str, Any]) -> list[str]:
    """Stop conditions that let the run go on: each target halfway from what was reached to perfection, or the limit that ended it doubled."""
    status, reason = content["status"], str(content.get("reason"))
    if status not in ("reached", "finished", "not-reached"):
        return []
    loss, accuracy = content.get("loss"), content.get("metrics", {}).get("accuracy")
    targets = {
        "loss": min(stop.get("loss", 0), math.inf if loss is None else loss) / 2,
        "accuracy": (1 + max(stop.get("accuracy", 0), accuracy or 0)) / 2,
    }
    further = [f"{name}={goal:.4g}" for name, goal in targets.items() if name in stop and status == "reached"]
    if further:
        return further
    if reason in ("rounds", "item_iterations") and reason in stop:
        return [f"{reason}={2 * max(stop[reason], content[reason])}"]
    if reason in ("seconds", "patience") and reason in stop:
        return [f"{reason}={2 * stop[reason]}"]
    return [f"rounds={2 * content['rounds']}"]
