"""The outcome of a run: exit code, `end` event and summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partrain.errors import INTERRUPTED, NOT_REACHED, OK, TERMINATED, Failure, InputMissing
from partrain.launch.context import Ended, RunContext
from partrain.protocols import Rule
from partrain.protocols.rule_traits import Traffic
from partrain.record.event_log import write_summary
from partrain.record.events import EndEvent, Event, RoundEvent, StartEvent
from partrain.record.round_record import finite
from partrain.record.run_folder import RunFolder
from partrain.record.run_state import COMPLETED
from partrain.record.summary import summary


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run."""

    code: int
    """Exit code of the command."""
    folder: Path
    summary: dict[str, Any]
    checkpoint: Path | None
    """The newest committed checkpoint, if any."""
    failure: Failure | None = None
    horizon: int | None = None
    """Item-iterations of the learning rate's schedule, if any."""
    task: str = ""
    """Kind of task."""


def close(ended: Ended, rule: Rule, started_at: float | None, context: RunContext) -> Outcome:
    """Write the end of a run: the `end` event and summary.json. `started_at`: moment of the first iteration, by `boot_seconds`."""
    files = RunFolder(context.run_folder)
    context.emit(_end_event(ended, context, started_at))
    context.poll()
    if ended.status in COMPLETED:
        with suppress(InputMissing):  # the log was moved away: the run is complete without its review
            if text := rule.review(_traffic(rule, files.events())):
                context.warn(text)
    content = dict(summary(context.state))
    write_summary(files.summary_file, content)
    return Outcome(
        _code(ended, restarts=context.torchrun is not None and context.torchrun.restarts),
        files.path,
        content,
        files.newest_checkpoint,
        ended.failure,
    )


def _end_event(ended: Ended, context: RunContext, started_at: float | None) -> EndEvent:
    now, clock = context.now(), context.state.clock
    since = context.state.t if clock.running else context.booted + context.started
    startup = started_at - context.started if started_at else 0.0
    return EndEvent(
        t=now,
        status=ended.status,
        reason=ended.reason,
        round=ended.round,
        seconds={
            "startup": clock.startup or startup,
            "train": ended.seconds,
            "total": clock.total + now - since,
        },
        test=ended.test.by_name() if ended.test else {},
        tested_round=ended.test.round if ended.test else 0,
        trivial=ended.trivial,
        comparisons=ended.comparisons,
    )


def _code(ended: Ended, *, restarts: bool) -> int:
    if ended.failure:
        return ended.failure.code
    stopped = {None: OK, 2: INTERRUPTED}.get(ended.signal, TERMINATED)
    # torchrun would restart after any code but 0; the summary has the status.
    not_reached = OK if restarts else NOT_REACHED
    return {"reached": OK, "finished": OK, "not-reached": not_reached}.get(ended.status, stopped)


def _traffic(rule: Rule, events: Iterable[Event]) -> Iterator[Traffic]:
    """Yield the traffic of all rounds; stop at a session under another rule."""
    for event in events:
        if isinstance(event, StartEvent) and event.rule != rule.rule:
            return
        if isinstance(event, RoundEvent):
            record = event.record
            yield Traffic(record.round, record.iterations, int(finite(record.bytes) or 0))
