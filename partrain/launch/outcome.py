"""How the end of a run is written down, and what the end of an earlier one means to the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partrain.display.event_log import read_events, summary, write_summary
from partrain.display.run_state import COMPLETED
from partrain.errors import INTERRUPTED, NOT_REACHED, OK, TERMINATED, Failure
from partrain.launch.context import RunContext
from partrain.launch.coordinator import Ended
from partrain.rules.compression.messages import HEAD, STEP


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    code: int
    """Exit code."""
    folder: Path
    summary: dict[str, Any]
    checkpoint: Path | None
    """The newest one, if any was committed."""
    failure: Failure | None = None
    horizon: int | None = None
    """Item-iterations over which the learning rate's schedule runs, if it has one."""


def close(
    ended: Ended,
    began_at: float | None,
    stage: RunContext,
    hear: Callable[[dict[str, Any]], None],
    tick: Callable[[], None],
) -> Outcome:
    """Write down how a run ended."""
    hear(_end_event(ended, stage, began_at))
    tick()
    if ended.status in COMPLETED and (text := silence(read_events(stage.folder / "events.jsonl"))):
        stage.warn(text)
    content = summary(stage.display.view, _scores(ended.test))
    write_summary(stage.folder / "summary.json", content)
    checkpoint = stage.folder / "checkpoint.h5"
    newest = checkpoint if checkpoint.exists() else None
    return Outcome(_code(ended, stage.machine is None), stage.folder, content, newest, ended.failure)


def _end_event(ended: Ended, stage: RunContext, began_at: float | None) -> dict[str, Any]:
    now, clock = time.time(), stage.display.view.clock
    since = stage.display.view.t if clock.running else stage.started
    startup = max(0.0, began_at - stage.started) if began_at else 0.0
    seconds = {
        "startup": clock.startup or startup,
        "train": ended.seconds,
        "total": clock.total + max(0.0, now - since),
    }
    return {
        "event": "end",
        "t": now,
        "status": ended.status,
        "reason": ended.reason,
        "round": ended.progress.round,
        "seconds": seconds,
        "test": _scores(ended.test),
    }


def _code(ended: Ended, alone: bool) -> int:
    if ended.failure:
        return ended.failure.code
    stopped = {None: OK, 2: INTERRUPTED}.get(ended.signal, TERMINATED)
    # Torchrun would take anything but 0 for a failure to start again from; the summary has the status.
    not_reached = NOT_REACHED if alone else OK
    return {"reached": OK, "finished": OK, "not-reached": not_reached}.get(ended.status, stopped)


def _scores(test: tuple[float, float | None] | None) -> dict[str, float]:
    """Loss and accuracy by their names, as far as there are any."""
    loss, accuracy = test or (None, None)
    return {name: value for name, value in (("loss", loss), ("accuracy", accuracy)) if value is not None}


EMPTY = HEAD + STEP
"""Bytes of a message without any sign."""


def silence(told: Iterable[Mapping[str, Any]]) -> str | None:
    """What to say of the events of a run in whose last half or more nothing was sent; None where there is no such thing."""
    loud = newest = 0
    for event in told:
        if event["event"] == "start" and event["rule"] != "threshold":
            return None
        if event["event"] == "round":
            newest = max(newest, event["round"])
            if event["iterations"] and event.get("bytes", 0) > EMPTY * event["iterations"]:
                loud = max(loud, event["round"])
    if 2 * loud > newest or not newest:
        return None
    since = f"since round {loud + 1:,} of {newest:,}" if loud else f"in any of the {newest:,} rounds"
    todo = "lower `threshold` in [sync], or let it fall (adaptive = true, the lower `target` above 0)"
    return f"nothing was sent {since}, for no update came up to the threshold: {todo}"
