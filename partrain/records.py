"""A worker's record of one round. The ring in shared memory, `events.jsonl`, the live table and the history derive from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

NAN = float("nan")


@dataclass
class RoundRecord:
    """One worker's numbers of one round; NaN where there is nothing to say. Durations are in seconds."""

    round: int
    iterations: int
    items: int
    loss: float
    """Mean training loss over the items."""
    lr: float
    compute: float
    wait: float
    mix: float
    distance: float
    """Of replicas from their mean: sqrt(mean_i |x_i - mean|^2)."""
    bytes: int
    """Of the messages that the worker gave to the group or took from the center."""
    staleness: float
    """Mean over the worker's updates."""
    seconds: float
    """Training seconds of this session up to the round's end."""
    judged_loss: float = NAN
    accuracy: float = NAN

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

    def event(self, rank: int, t: float, elapsed: float) -> dict[str, Any]:
        """Give the `round` event of a worker. `elapsed`: training seconds before this session."""
        values = {name: finite(value) for name, value in vars(self).items() if name not in ("judged_loss", "accuracy")}
        return {"event": "round", "t": t, "rank": rank} | values | {"seconds": elapsed + self.seconds}


FIELDS = tuple(field.name for field in fields(RoundRecord))
WHOLE = ("round", "iterations", "items", "bytes")
"""Fields that are whole numbers."""


def finite(value: float) -> float | None:
    """Give the number, or None (JSON has no NaN)."""
    return value if math.isfinite(value) else None
