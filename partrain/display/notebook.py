"""The live table in a notebook, and tables of results, as HTML that rich renders. Imports no IPython unless a kernel runs."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from partrain.display.display import Display
from partrain.display.live_table import FLASH_S, Line, frame
from partrain.display.text_table import aligned
from partrain.number_format import count, plural, scores, tenths
from partrain.record.events import Event
from partrain.record.run_state import RunState

REDRAW_S = 0.5
"""Seconds between two updates: each is a message to the browser."""
WIDTH, HEIGHT = 140, 60
"""Characters and lines of the live table: all its columns. A browser scrolls content wider than its window."""
MOST = 32
"""Maximum number of workers in the table of a result."""


def runs_in_kernel() -> bool:
    """Return whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class NotebookDisplay(Display):
    """The live table as the output of a notebook's cell; the last state stays."""

    def __init__(self, state: RunState) -> None:
        super().__init__(state)
        self._handle: Any = None
        self._drawn = 0.0
        self._dirty = False

    def apply(self, event: Event) -> None:
        super().apply(event)
        self._dirty = True

    def refresh(self, now: float) -> None:
        if self._dirty and self.state.workers and abs(now - self._drawn) >= REDRAW_S:
            self._drawn, self._dirty = now, False
            self._draw(now)

    def close(self) -> None:
        if self.state.workers:
            self._draw(self.state.t + FLASH_S)

    def _draw(self, now: float) -> None:
        from IPython.display import display

        shown = rendered(frame(self.state, now, WIDTH, HEIGHT))
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(shown, raw=True)


def rendered(lines: Sequence[Line]) -> dict[str, str]:
    """Render lines for a notebook, as HTML and as plain text by MIME type. rich escapes the texts."""
    from rich.console import Console
    from rich.jupyter import JUPYTER_HTML_FORMAT
    from rich.text import Text

    console = Console(record=True, file=io.StringIO(), width=WIDTH, highlight=False)
    console.print(Text("\n").join(Text.assemble(*line, no_wrap=True) for line in lines), soft_wrap=True)
    html = console.export_html(inline_styles=True, code_format=JUPYTER_HTML_FORMAT, clear=False)
    return {"text/html": html, "text/plain": console.export_text()}


def summary_text(summary: Mapping[str, Any], folder: object) -> str:
    """Describe the result of a run in one line."""
    judged = scores({"loss": summary.get("loss"), **(summary.get("metrics") or {})})
    seconds = (summary.get("seconds") or {}).get("train")
    took = f" in {seconds:.3g} s" if isinstance(seconds, int | float) else ""
    rounds = f"{count(summary.get('rounds'))} {plural('round', summary.get('rounds') or 0)}"
    return f"{summary.get('status')} after {rounds}{took}: {judged or 'not judged'}; {folder}"


def summary_html(summary: Mapping[str, Any], folder: object) -> str:
    """Lay out the result of a run as a small table."""
    judged, seconds = {"loss": summary.get("loss"), **(summary.get("metrics") or {})}, summary.get("seconds") or {}
    rows = [
        ("status", f"{summary.get('status')} ({summary.get('reason')})"),
        ("rounds", f"{count(summary.get('rounds'))}, {count(summary.get('item_iterations'))} item-iterations"),
        ("judged", scores(judged)),
        ("test", scores(summary.get("test") or {})),
        ("seconds", " · ".join(f"{name} {tenths(value)}" for name, value in seconds.items())),
    ]
    workers = summary.get("workers") or ()
    for worker in workers[:MOST]:
        spent = " · ".join(f"{name} {tenths(value)} s" for name, value in (worker.get("seconds") or {}).items())
        rate = f"{count(worker.get('items_per_second'))} items/s"
        rows.append((f"worker {worker.get('rank')}", f"{worker.get('device')} · {rate} · {spent}"))
    if len(workers) > MOST:
        rows.append(("", f"and {len(workers) - MOST} more workers"))
    rows.append(("folder", str(folder)))
    texts = aligned([(label, "".join(char if char.isprintable() else " " for char in text)) for label, text in rows if text])
    return rendered([[(text, "")] for text in texts])["text/html"]
