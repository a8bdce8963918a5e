"""The screen of `partrain watch`: a list of runs, curves of the selected ones, and the workers of the highlighted one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Click, Resize
from textual.widgets import Footer

from partrain.display.live_table import Line, printable
from partrain.errors import Failure
from partrain.launch.control import ask_to_commit, ask_to_stop
from partrain.watch.layout import (
    SCALES,
    SORTS,
    Marks,
    curve_lines,
    first_shown,
    heights_of,
    list_lines,
    run_lines,
    title_line,
)
from partrain.watch.once import rows_of
from partrain.watch.panel import HelpScreen, LinesPanel, Question
from partrain.watch.runs import Runs
from partrain.watch.watched import ODD, RunRow, WatchedRun

DRAW_S = 0.5
"""Seconds between two frames."""
CURVES_S = 2.0
"""Seconds between two drawings of the curves while they grow."""
FEW_POINTS = 50
"""Number of points up to which curves are drawn with every frame."""
PAUSE_S = 0.01
"""Seconds between two slices of reading."""
OVERLAID = 8
"""Maximum number of runs overlaid in addition to the highlighted one."""


class WatchApp(App[None]):
    """The screen, with runs during training."""

    ENABLE_COMMAND_PALETTE = False
    NOTIFICATION_TIMEOUT = 3
    TITLE = "partrain watch"
    CSS = """
    Screen { background: #101418; color: #d7dde4; layout: vertical; }
    LinesPanel { padding: 0 1; width: 100%; }
    #runs, #curves { margin-bottom: 1; }
    .tight #runs, .tight #curves { margin-bottom: 0; }
    Footer { background: #1c232b; }
    ModalScreen { align: center middle; background: #000000 50%; }
    .box { width: 64; max-width: 100%; height: auto; padding: 1 2; background: #1c232b; border: round #5fd7e6; }
    .wide { width: 76; }
    Toast { background: #1c232b; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("up,k", "move(-1)", "choose", key_display="↑↓"),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "move(-10)", show=False),
        Binding("pagedown", "move(10)", show=False),
        Binding("home", "move(-1000000)", show=False),
        Binding("end", "move(1000000)", show=False),
        Binding("space", "overlay", "overlay", key_display="␣"),
        Binding("S", "stop", "stop", key_display="S"),
        Binding("c", "commit", "commit"),
        Binding("s", "sort", "sort"),
        Binding("l", "log", "log"),
        Binding("x", "scale", "axis"),
        Binding("enter", "alone", "alone", key_display="⏎"),
    ]

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.watched = Runs(root)
        self.marks = Marks()
        self.sort = "newest"
        self.scale = "seconds"
        self.log_loss = True
        self.alone = False
        self.rows: list[RunRow] = []
        self._reading = False
        self._curves_t = 0.0

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        yield LinesPanel("title")
        yield LinesPanel("runs")
        yield LinesPanel("curves")
        yield LinesPanel("run")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Start watching."""
        self.tick()
        self.set_interval(DRAW_S, self.tick)

    def on_resize(self, event: Resize) -> None:
        """Draw in the new size."""
        self.call_after_refresh(self.draw, everything=True)

    def tick(self) -> None:
        """Check the folders, read, and draw."""
        self.watched.look(time.monotonic())
        self.watched.refresh()
        self.arrange()
        if not self._reading:
            self.read()
        self.draw()

    def read(self) -> None:
        """Read a slice of events; come back soon if there is more."""
        before, self._reading = self._reading, self.watched.read(self.chosen())
        if self._reading:
            self.set_timer(PAUSE_S, self.read)
        elif before:
            self.draw(everything=True)

    def arrange(self) -> None:
        """Sort the runs; keep the cursor on its run, or start at one that trains."""
        self.rows = rows_of(self.watched, self.sort)
        folders = [row.folder for row in self.rows]
        if self.marks.highlighted not in folders:
            self.marks.highlighted = next(
                (row.folder for row in self.rows if row.status == "training"), folders[0] if folders else None
            )
        self.marks.overlaid = [folder for folder in self.marks.overlaid if folder in folders]

    def highlighted(self) -> WatchedRun | None:
        """Return the run under the cursor; None for a step without one."""
        return self._run(self.marks.highlighted)

    def chosen(self) -> list[WatchedRun]:
        """Return the highlighted run and the overlaid ones."""
        folders = [self.marks.highlighted, *self.marks.overlaid]
        return [run for run in map(self._run, dict.fromkeys(folders)) if run]

    def _run(self, folder: str | None) -> WatchedRun | None:
        return self.watched.runs.get(Path(folder)) if folder else None

    # Drawing

    def draw(self, *, everything: bool = False) -> None:
        """Draw the changed parts; the curves only from time to time, unless they must be redrawn."""
        if not self.is_running or len(self.screen_stack) > 1:
            return  # a question covers the screen
        self.arrange()
        width, height = self.size.width - 2, self.size.height - 1
        run = self.highlighted()
        tight = height < 30
        self.screen.set_class(tight, "tight")
        workers = len(run.state.workers) if run else 0
        heights = heights_of(height - 1 - (0 if tight else 2), 0 if self.alone else len(self.rows) + 1, workers)
        self._show("title", [title_line(str(self.watched.root), self.rows, self.marks, self.sort, width)], 1)
        self._show("runs", list_lines(self.rows, self.marks, width, heights[0]) if heights[0] else [], heights[0])
        now = time.monotonic()
        few = sum(len(row.track.points()) for row in self.chosen()) < FEW_POINTS
        if everything or few or now - self._curves_t >= CURVES_S:
            self._curves_t = now
            self._show("curves", self._curves(width, heights[1]), heights[1])
        self._show("run", self._run_lines(run, width, heights[2]), heights[2])

    def _show(self, name: str, lines: list[Line], height: int) -> None:
        panel = self.query_one(f"#{name}", LinesPanel)
        if panel.styles.height is None or panel.styles.height.value != height:
            panel.styles.height = height
        panel.display = height > 0
        panel.show(lines)

    def _curves(self, width: int, height: int) -> list[Line]:
        if height < 3:
            return []
        runs = self.chosen()
        several = len(runs) > 1
        tracks = [
            (run.track, self.marks.style(str(run.folder)), self.marks.mark(str(run.folder)) if several else "")
            for run in reversed(runs)
        ]
        return curve_lines(tracks, self.scale, log=self.log_loss, width=width, height=height)

    def _run_lines(self, run: WatchedRun | None, width: int, height: int) -> list[Line]:
        if run is None:
            row = next((row for row in self.rows if row.folder == self.marks.highlighted), None)
            text = f"{row.name}: {row.status}; this step has no training" if row else "no run yet; new ones appear here"
            return [[(printable(text)[:width], "dim")]]
        if not run.state.workers or run.status() == "reading" or (run.share < 0.99 and not run.has_events):
            return [[(f"reading {printable(run.label)}: {run.share:.0%}"[:width], "dim")]]
        try:
            return run_lines(run.shown(), time.time(), width, height)
        except ODD:
            return [[(f"{printable(run.label)}: its events hold odd values, which cannot be shown"[:width], "red")]]

    # Keys

    def action_move(self, by: int) -> None:
        """Move the cursor."""
        folders = [row.folder for row in self.rows]
        if self.marks.highlighted in folders:
            place = folders.index(self.marks.highlighted) + by
            self.marks.highlighted = folders[max(0, min(place, len(folders) - 1))]
        self._changed()

    def on_click(self, event: Click) -> None:
        """Move the cursor to the line that was clicked."""
        if isinstance(event.widget, LinesPanel) and event.widget.id == "runs" and event.y > 0:
            place = first_shown(self.rows, self.marks, len(event.widget.lines) - 1) + event.y - 1
            if place < len(self.rows):
                self.marks.highlighted = self.rows[place].folder
                self._changed()

    def action_alone(self) -> None:
        """Show the highlighted run alone, or all runs again."""
        self.alone = not self.alone
        self._changed()

    def action_overlay(self) -> None:
        """Overlay the curves of the highlighted run, or remove them."""
        run = self.highlighted()
        if run is None:
            return
        folder, overlaid = str(run.folder), self.marks.overlaid
        if folder in overlaid:
            overlaid.remove(folder)
        elif len(overlaid) < OVERLAID:
            overlaid.append(folder)
        else:
            self.notify(f"{OVERLAID} runs are overlaid; remove one with space", markup=False)
        self._changed()

    def action_sort(self) -> None:
        """Switch to the next order of the list."""
        self.sort = _next(list(SORTS), self.sort)
        self._changed()

    def action_log(self) -> None:
        """Switch between a linear and a logarithmic scale of the loss."""
        self.log_loss = not self.log_loss
        self._changed()

    def action_scale(self) -> None:
        """Switch to the next horizontal axis."""
        self.scale = _next(list(SCALES), self.scale)
        self._changed()

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(HelpScreen())

    def action_stop(self) -> None:
        """Ask, then stop the highlighted run."""
        run = self.highlighted()
        if run is None or not run.training:
            self.notify("no process trains this run now", severity="warning", markup=False)
            return
        again = bool(run.stopping)
        text = f"Stop {printable(run.label)} {'now, without the end of its round' if again else 'after its round'}?"
        text += "\nA checkpoint is committed; `partrain resume` continues."

        def answered(yes: bool | None) -> None:  # noqa: FBT001
            if yes:
                self._ask(run, ask_to_stop, "stops")
            self.draw()

        self.push_screen(Question(text, "y  stop     n  go on"), answered)

    def action_commit(self) -> None:
        """Make the highlighted run commit a checkpoint."""
        run = self.highlighted()
        if run is not None:
            self._ask(run, ask_to_commit, "commits a checkpoint")

    def _ask(self, run: WatchedRun, ask: Callable[[Path], int], does: str) -> None:
        """Send a request to a run, and show the answer."""
        try:
            process = ask(run.folder)
            self.notify(f"process {process} {does}: {printable(run.label)}", markup=False)
        except (Failure, OSError) as failure:
            self.notify(printable(str(failure)), severity="warning", markup=False)

    def _changed(self) -> None:
        if not self._reading:
            self.read()
        self.draw(everything=True)


def _next(names: list[str], name: str) -> str:
    return names[(names.index(name) + 1) % len(names)]
