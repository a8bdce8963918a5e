"""Display of a workflow: a live table on a terminal, elsewhere one line for each change of a step's state."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TextIO, cast

from partrain.display.terminal import finish, is_terminal, open_output, writable
from partrain.number_format import time_of_day

if TYPE_CHECKING:
    from rich.table import Table

COLORS = {
    "running": "cyan",
    "done": "green",
    "failed": "red",
    "stopped": "yellow",
    "pruned": "dim",
    "skipped": "dim",
    "unchanged": "dim",
    "blocked": "dim",
}
REDRAW_S = 0.25


class StepRow(NamedTuple):
    """One step for the display."""

    name: str
    status: str
    progress: str
    """Progress of a running step, as in `12 of 40 rounds`."""
    seconds: float
    eta: float | None
    """Seconds to the end, if they can be predicted."""
    device: str
    loss: float | None
    note: str


def seconds_text(seconds: float | None) -> str:
    """Write a duration: `3.2s`, `2:05`, `1:02:05`; "" for None."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class WorkflowLines:
    """One line for each change of a step's state."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._told: dict[str, tuple[str, str]] = {}

    def update(self, rows: Callable[[], Sequence[StepRow]]) -> None:
        """Print the steps whose state has changed."""
        for row in rows():
            if row.status not in ("waiting", "unchanged") and self._told.get(row.name) != (row.status, row.note):
                self._told[row.name] = row.status, row.note
                took = f" in {seconds_text(row.seconds)}" if row.status in ("done", "failed", "stopped") and row.seconds else ""
                line = f"{row.name}: {row.status}{took}" + (f" ({row.note})" if row.note else "")
                print(f"{time_of_day(time.time())}  {line}", file=self._stream, flush=True)

    def refresh(self, rows: Callable[[], Sequence[StepRow]]) -> None:
        """Do nothing: progress has no lines."""

    def close(self) -> None:
        """Do nothing."""


class WorkflowTable:
    """A live table on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._output = open_output(stream)
        self._rows: Sequence[StepRow] = ()
        self._drawn = 0.0
        self._console = Console(file=cast("TextIO", self._output), force_terminal=True, force_interactive=True, highlight=False)
        self._live = Live(get_renderable=self._table, console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def update(self, rows: Callable[[], Sequence[StepRow]]) -> None:
        """Draw the table."""
        self._drawn = 0.0
        self.refresh(rows)

    def refresh(self, rows: Callable[[], Sequence[StepRow]]) -> None:
        """Draw the table, a few times a second at most."""
        if time.monotonic() - self._drawn < REDRAW_S or not writable(self._output):
            return
        self._drawn = time.monotonic()
        self._rows = rows()
        self._live.refresh()

    def close(self) -> None:
        """Remove the table: the summary replaces it."""
        self._live.stop()
        finish(self._output)

    def _table(self) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))  # 80 columns have room for a reason
        for heading in ("step", "state", "progress", "time", "ETA", "device", "loss", "reason"):
            table.add_column(
                heading, justify="right" if heading in ("time", "ETA", "loss") else "left", no_wrap=heading != "reason"
            )
        height = max(5, self._console.height - 6)
        rows = list(self._rows)
        if len(rows) > height:  # the running ones and those around them
            first = next((index for index, row in enumerate(rows) if row.status in ("running", "waiting")), 0)
            start = max(0, min(first - height // 3, len(rows) - height))
            rows = rows[start : start + height]
        for row in rows:
            color = COLORS.get(row.status, "")
            loss = "" if row.loss is None else f"{row.loss:.4g}"
            table.add_row(
                Text(row.name), Text(row.status, color), row.progress, seconds_text(row.seconds or None), seconds_text(row.eta),
                row.device, loss, Text(row.note),
            )  # fmt: skip
        return table


def workflow_display(stream: TextIO | None = None, *, quiet: bool = False) -> WorkflowLines | WorkflowTable:
    """Make the display for a stream, stdout by default."""
    import io

    if quiet:
        return WorkflowLines(io.StringIO())
    stream = stream or sys.stdout
    return WorkflowTable(stream) if is_terminal(stream) else WorkflowLines(stream)
