"""The live table in a notebook: HTML that is updated in place, and small tables of results. Imports no IPython unless a kernel runs."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from partrain.display.display import Display
from partrain.display.live_table import VERY_SLOW
from partrain.number_format import clock, count, number, plural, size, tenths
from partrain.record.events import Event
from partrain.record.run_state import RunState
from partrain.record.worker_state import WorkerState

REDRAW_S = 0.5
"""Seconds between two updates: each is a message to the browser."""
MOST = 32
"""Most rows of workers."""
CELL = "padding:.1em .8em .1em 0;text-align:{align};border:0;background:none;white-space:nowrap;font-variant-numeric:tabular-nums"
DIM = "opacity:.6"
GREEN, BLUE, GRAY, RED, YELLOW = "#3fa34d", "#3b82c4", "#8884", "#d1453b", "#b58900"
"""Colors that read on white and on black: a notebook does not tell which it is."""


def runs_in_kernel() -> bool:
    """Tell if this process is the kernel of a notebook."""
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
            self._draw(self.state.t)

    def _draw(self, now: float) -> None:
        from IPython.display import display

        bundle = {"text/html": state_html(self.state, now), "text/plain": state_text(self.state)}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)


def state_text(state: RunState) -> str:
    """Describe a run in a line, for a front end that shows no HTML."""
    loss = "" if state.judged is None else f", judged loss {number(state.judged.loss)}"
    return f"{state.name}: {state.status or 'training'}, round {state.round:,}{loss}"


def state_html(state: RunState, now: float) -> str:
    """Lay out a run as HTML: progress, judgement, totals, judged losses, workers."""
    goal = state.stop.get("rounds")
    rounds = f"round {state.round:,}" + (f" of {goal:,}" if isinstance(goal, int) else "")
    head = f"<b>{_safe(state.name)}</b> · {_safe(state.rule)} · {rounds}"
    fraction, eta = state.fraction(), state.eta(now)
    if state.status is not None:
        reason = f" ({_safe(state.reason)})" if state.reason and state.reason != state.status else ""
        head += f" · <b>{_safe(state.status)}</b>{reason}"
    elif fraction is not None:
        done = f"display:inline-block;width:{100 * fraction:.1f}%;height:100%;background:{GREEN}"
        bar = "display:inline-block;width:10em;height:.6em;border-radius:.3em;overflow:hidden;line-height:0;background:" + GRAY
        head += f' <span style="{bar}"><span style="{done}"></span></span> {math.floor(100 * fraction)}%'
        head += f" · ETA {clock(eta)}" if eta is not None else ""
    facts = list(_facts(state))
    body = "".join(_row([f'<span style="{DIM}">{label}</span>', text], left=2) for label, text in facts)
    return _box(f"<div>{head}</div>{_table(body)}{_curve(state.judged_losses.resampled())}{_workers(state)}")


def _facts(state: RunState) -> list[tuple[str, str]]:
    """Return labels and texts, escaped."""
    facts = []
    if judged := state.judged:
        scores = {"loss": judged.loss, **judged.metrics}
        text = " · ".join(f"{_safe(name)} {number(value)}" for name, value in scores.items())
        if state.best:
            text += f' · <span style="color:{GREEN}">best in round {state.best.round:,}</span>'
        facts.append(("judged", text))
    standing = state.standing()
    if others := [each.show(standing) for each in state.conditions() if each.name != "rounds"]:
        facts.append(("until", _safe(" · ".join(others))))
    totals = [f"{count(state.item_iterations)} item-iterations", f"{count(state.rate())} items/s", clock(state.clock.train)]
    facts.append(("so far", " · ".join(totals)))
    if saved := state.commit:
        facts.append(("saved", f"round {saved.round:,} · {size(saved.bytes)}"))
    if state.replays:
        facts.append(("replays", f"{state.replays} · {_safe(state.replay)}"))
    if state.exclusions:
        facts.append(("exclusions", f"{state.exclusions} · {_safe(state.exclusion)}"))
    if state.spikes:
        facts.append(("spikes", f"{state.spikes} · {_safe(state.spike)}"))
    if state.faults:
        facts.append(("faults", f'<span style="color:{RED}">{state.faults} · {_safe(state.fault)}</span>'))
    return facts


def _curve(values: Sequence[float]) -> str:
    """Draw judged losses, on a logarithmic scale if all are positive."""
    if len(values) < 3:
        return ""
    heights = [math.log(value) for value in values] if min(values) > 0 else list(values)
    low, high = min(heights), max(heights)
    scale = 56 / (high - low) if high > low else 0.0
    points = " ".join(f"{600 * place / (len(values) - 1):.1f},{58 - (y - low) * scale:.1f}" for place, y in enumerate(heights))
    line = f'<polyline points="{points}" fill="none" stroke="{BLUE}" stroke-width="2" vector-effect="non-scaling-stroke"/>'
    ends = f"judged loss{', logarithmic' if heights != values else ''}: {number(values[0])} to {number(values[-1])}"
    label = f'<div style="{DIM};font-size:90%;margin-top:.4em">{ends}</div>'
    return (
        f'{label}<svg viewBox="0 0 600 60" preserveAspectRatio="none" role="img" aria-label="{ends}" '
        f'style="display:block;width:100%;height:4em">{line}</svg>'
    )


def _workers(state: RunState) -> str:
    slow = state.slowdowns()
    legend = f'<span style="color:{GREEN}">computing</span>, <span style="color:{BLUE}">mixing</span>, waiting'
    head = ["worker", "device", "state", legend, "wait", "items/s", "training loss"]
    rows = [_row([f'<span style="{DIM}">{each}</span>' for each in head], left=4)]
    workers = [worker for _, worker in sorted(state.workers.items())]
    rows += [_worker_row(state, worker, slow.get(worker.rank, 1.0)) for worker in workers[:MOST]]
    return _table("".join(rows)) + _more(len(workers))


def _more(workers: int) -> str:
    """Tell how many workers have no row."""
    return f'<div style="{DIM}">and {workers - MOST} more workers</div>' if workers > MOST else ""


def _worker_row(state: RunState, worker: WorkerState, slowdown: float) -> str:
    doing, color = state.activity(worker), RED if worker.lost else "inherit"
    if state.status is None and not worker.lost and slowdown > 1:
        doing, color = f"slow {slowdown:.1f}x", RED if slowdown >= VERY_SLOW else YELLOW
    total = max(worker.compute + worker.mix + worker.wait, 1e-9)
    parts = "".join(
        f'<span style="display:inline-block;height:100%;width:{100 * seconds / total:.1f}%;background:{shade}"></span>'
        for seconds, shade in ((worker.compute, GREEN), (worker.mix, BLUE))
    )
    shares = f"{worker.compute / total:.0%} computing, {worker.mix / total:.0%} mixing, {worker.wait / total:.0%} waiting"
    bar = f"display:inline-block;width:12em;height:.7em;line-height:0;overflow:hidden;background:{GRAY}"
    cells = [
        str(worker.rank), _safe(worker.device), f'<span style="color:{color}">{doing}</span>',
        f'<span style="{bar}" title="{shares}">{parts}</span>', f"{worker.waiting():.0%}", count(worker.rate()), number(worker.loss),
    ]  # fmt: skip
    return _row(cells, left=4)


def summary_text(summary: Mapping[str, Any], folder: object) -> str:
    """Describe the result of a run in a line."""
    scores = {"loss": summary.get("loss"), **(summary.get("metrics") or {})}
    shown = ", ".join(f"{name} {number(value)}" for name, value in scores.items() if value is not None)
    seconds = (summary.get("seconds") or {}).get("train")
    took = f" in {seconds:.3g} s" if isinstance(seconds, int | float) else ""
    rounds = f"{count(summary.get('rounds'))} {plural('round', summary.get('rounds') or 0)}"
    return f"{summary.get('status')} after {rounds}{took}: {shown or 'not judged'}; {folder}"


def summary_html(summary: Mapping[str, Any], folder: object) -> str:
    """Lay out the result of a run as a small table."""
    rows = [("status", f"<b>{_safe(summary.get('status'))}</b> ({_safe(summary.get('reason'))})")]
    rows.append(("rounds", f"{count(summary.get('rounds'))}, {count(summary.get('item_iterations'))} item-iterations"))
    for label, scores in (
        ("judged", {"loss": summary.get("loss"), **(summary.get("metrics") or {})}),
        ("test", summary.get("test") or {}),
    ):
        if known := {name: value for name, value in scores.items() if value is not None}:
            rows.append((label, " · ".join(f"{_safe(name)} {number(value)}" for name, value in known.items())))
    seconds = summary.get("seconds") or {}
    rows.append(("seconds", " · ".join(f"{_safe(name)} {tenths(value)}" for name, value in seconds.items())))
    workers = summary.get("workers") or ()
    for worker in workers[:MOST]:
        spent = worker.get("seconds") or {}
        shares = " · ".join(f"{_safe(name)} {tenths(value)} s" for name, value in spent.items())
        rate = f"{count(worker.get('items_per_second'))} items/s"
        rows.append((f"worker {_safe(worker.get('rank'))}", f"{_safe(worker.get('device'))} · {rate} · {shares}"))
    rows.append(("folder", f"<code>{_safe(folder)}</code>"))
    body = "".join(_row([f'<span style="{DIM}">{label}</span>', text], left=2) for label, text in rows)
    return _box(_table(body) + _more(len(workers)))


def _safe(value: object) -> str:
    """Escape a text of a run: its names and messages may hold markup and control characters."""
    return escape("".join(each if each.isprintable() else " " for each in str(value)))


def _box(inner: str) -> str:
    return f'<div style="max-width:56em;line-height:1.5;overflow-x:auto">{inner}</div>'


def _table(rows: str) -> str:
    return f'<table style="border-collapse:collapse;margin:.3em 0;border:0;font-size:inherit">{rows}</table>'


def _row(cells: Sequence[str], left: int) -> str:
    """Lay out a row, its first cells aligned at the left."""
    styles = [CELL.format(align="left" if place < left else "right") for place in range(len(cells))]
    return "<tr>" + "".join(f'<td style="{style}">{cell}</td>' for style, cell in zip(styles, cells, strict=True)) + "</tr>"
