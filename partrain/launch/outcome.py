"""How the end of a run is written down, and what the end of an earlier one means to the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partrain.display.event_log import read_events, summary, write_summary
from partrain.display.run_state import WELL
from partrain.errors import INTERRUPTED, NOT_REACHED, OK, TERMINATED, Failure
from partrain.launch.context import RunContext
from partrain.launch.coordinator import Ended
from partrain.protocols import Rule
from partrain.rule_traits import Traffic


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
    rule: Rule,
    began_at: float | None,
    stage: RunContext,
    hear: Callable[[dict[str, Any]], None],
    tick: Callable[[], None],
) -> Outcome:
    """Write down how a run ended."""
    hear(_end_event(ended, stage, began_at))
    tick()
    if ended.status in WELL and (text := rule.review(_traffic(rule, read_events(stage.folder / "events.jsonl")))):
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


def _traffic(rule: Rule, events: Iterable[Mapping[str, Any]]) -> Iterator[Traffic]:
    """Give the traffic of all rounds; stop at a session under another rule."""
    for event in events:
        if event["event"] == "start" and event["rule"] != rule.rule:
            return
        if event["event"] == "round":
            yield Traffic(event["round"], event["iterations"], event.get("bytes", 0))
