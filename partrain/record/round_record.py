"""A worker's record of one round. The ring in shared memory and `events.jsonl` take every field.

`training/loop.py` fills the record. To show a field, extend `WorkerState.count` and `COLUMNS` in `display/live_table.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

NAN = float("nan")


@dataclass
class RoundRecord:
    """One worker's numbers of one round; NaN where there is nothing to say. Durations are in seconds."""

    round: int
    """Number of the round, from 1."""
    iterations: int
    """Local iterations in this round."""
    items: int
    """Item-iterations in this round."""
    loss: float
    """Mean training loss over the item-iterations of the round."""
    lr: float
    """Learning rate of the last iteration."""
    compute: float
    """Seconds of local iterations."""
    wait: float
    """Seconds of waiting for other workers."""
    mix: float
    """Seconds of mixing."""
    distance: float
    """Consensus distance of the replicas before they were mixed: sqrt(mean_i |x_i - mean|^2), where it was measured."""
    bytes: int
    """Bytes of the messages that the worker sent to the other workers or took from the center."""
    staleness: float
    """Mean staleness of the worker's updates (asynchronous rules): changes of the center since the worker read it."""
    seconds: float
    """Training seconds up to the end of the round; in events, of all sessions of the run."""
    judged_loss: float = NAN
    accuracy: float = NAN
    clipped_norm: float = NAN
    """L2 norm of the longest update that was scaled down to `[faults] max_update_norm`."""
    excluded: int = 0
    """The numbers that were not finite, as an index of NOT_FINITE: the worker was left out of means. 0: it was not."""
    discarded: int = 0
    """Item-iterations that were taken back because of that; `items` does not count them."""
    cap: float = NAN
    """Largest number of local iterations in the round, if `[faults] round_seconds` or `[partition] balance` sets one."""
    core_wait: float = NAN
    """Seconds in which the worker was ready to run and no core was free, if there were any."""

    def row(self) -> tuple[float, ...]:
        """Give the record as numbers, for the ring."""
        return tuple(vars(self).values())  # in the order of the fields; `astuple` would copy each deeply

    @classmethod
    def of(cls, row: Sequence[float]) -> RoundRecord:
        """Read a record from the ring's numbers."""
        values: dict[str, Any] = dict(zip(FIELDS, row, strict=True))
        for name in WHOLE:
            values[name] = int(values[name])
        return cls(**values)

    def event_values(self) -> dict[str, Any]:
        """Return the numbers of the `round` event by name."""
        values = vars(self).copy()
        for name in ELSEWHERE:
            del values[name]
        for name in ("clipped_norm", "core_wait"):
            if math.isnan(values[name]):
                del values[name]
        if math.isnan(cap := values.pop("cap")):
            return values
        values["cap"] = int(cap)
        return values

    @classmethod
    def of_event(cls, values: Mapping[str, Any]) -> RoundRecord:
        """Read a record from a `round` event. Numbers that are null or that earlier versions did not write are NaN."""
        numbers: dict[str, Any] = {name: NAN if (value := values.get(name)) is None else value for name in MEASURED}
        return cls(values["round"], values["iterations"], values["items"], **numbers)


FIELDS = tuple(field.name for field in fields(RoundRecord))
WHOLE = ("round", "iterations", "items", "bytes", "excluded", "discarded")
"""Fields that are whole numbers."""
ELSEWHERE = ("judged_loss", "accuracy", "excluded", "discarded")
"""Fields that a `judgement` or an `exclusion` event holds, not a `round` event."""
NOT_FINITE = ("", "the training loss", "the parameters", "the gradient", "the optimizer state", "the buffers")
"""Numbers that may be the reason for an exclusion."""
MEASURED = tuple(name for name in FIELDS if name not in ELSEWHERE)[3:]
"""Numbers of a `round` event after `round`, `iterations` and `items`, which each has."""


ACTIVITIES = ("compute", "wait", "mix")
"""Activities of a worker in its rounds."""


def time_shares(seconds: Iterable[Sequence[float]]) -> dict[str, float]:
    """Return the shares of the ACTIVITIES in the time of some rounds or workers, given as the seconds of each; empty without time.

    Judging, starting and the test are no part of that time.
    """
    totals = [sum(column) for column in zip(*seconds, strict=True)]
    return {name: total / sum(totals) for name, total in zip(ACTIVITIES, totals, strict=True)} if sum(totals) > 0 else {}


def finite(value: float) -> float | None:
    """Give the number, or None (JSON has no NaN)."""
    return value if math.isfinite(value) else None


def number_of(value: Any) -> float | None:
    """Return a value of a file if it is a finite number, else None."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) else None


def without_nan(value: Any) -> Any:
    """Replace every number in a document that is not finite by None."""
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, Mapping):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return value
