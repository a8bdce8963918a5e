"""The numbers of a round. `RoundRecord` declares each once; totals, tables, figures, hooks and docs are loops over `NUMBERS`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple


class Merge(Enum):
    """Method of merging the numbers of several workers or rounds into one. Numbers that are not finite do not count."""

    SUM = "sum"
    MEAN = "mean by item-iterations"
    MOST = "largest"
    NEWEST = "newest"


SUM, MEAN, MOST, NEWEST = Merge


class Heading(NamedTuple):
    """A column of the live table: its text in two lines, and its width in characters."""

    over: str
    title: str
    width: int


class Drawn(NamedTuple):
    """A figure of `partrain plot`: its title, the title of its vertical axis, its horizontal axis."""

    title: str
    axis: str
    by: str = "items"
    log: bool = False
    """True for a logarithmic axis if the numbers span decades."""


@dataclass(frozen=True)
class RoundNumber:
    """A number that a worker records in each round."""

    meaning: str
    """Its meaning and unit."""
    whole: bool = False
    """True for a whole number."""
    optional: bool = False
    """True if a `round` event leaves it out without a value."""
    elsewhere: str = ""
    """Kind of event that holds it, if not `round`."""
    workers: Merge = Merge.NEWEST
    """Merge over all workers in one round."""
    rounds: Merge = Merge.NEWEST
    """Merge over all rounds of a worker."""
    network: str = ""
    """The network it describes: `training`, which a worker trains, or `newest`, the mixed one after the round."""
    activity: str = ""
    """Word for the activity that took these seconds."""
    column: Heading | None = None
    drawn: Drawn | None = None
    metric: str = ""
    """Its name for Prometheus, by worker; a sum is a counter."""
    run_metric: str = ""
    """Its name for Prometheus, merged over the workers."""
    scalar: str = ""
    """Its name in TensorBoard, MLflow, W&B, merged over the workers."""


def declared(meaning: str, default: float | None = None, **traits: Any) -> Any:
    """Declare a number as a field of `RoundRecord`. `traits`: the fields of `RoundNumber`."""
    metadata = {"number": RoundNumber(meaning, **traits)}
    return field(metadata=metadata) if default is None else field(default=default, metadata=metadata)


DERIVED = {
    "items_per_second": "Item-iterations of all workers per second: of the last seconds while a run trains, of all training afterwards.",
    "waiting_share": "Share of the workers' seconds that they waited for others: of the last seconds while a run trains, of all training afterwards.",
    "bytes_per_round": "Bytes that a worker sends in a round, on average.",
    "round": "Newest round that all workers have finished.",
    "seconds": "Seconds of training.",
}
"""Numbers that displays compute from the numbers of rounds, by name."""


class Merged:
    """Numbers by name, each merged as it declares."""

    __slots__ = ("_weights", "values")

    def __init__(self, values: Mapping[str, float] | None = None) -> None:
        self.values = dict(values or {})
        self._weights: dict[str, float] = {}

    def add(self, numbers: Mapping[str, float], merges: Sequence[tuple[str, Merge]], weight: float = 1.0) -> None:
        """Add values, each by its merge. `weight`: their item-iterations, for means."""
        values = self.values
        for name, merge in merges:
            value = numbers[name]
            if not -math.inf < value < math.inf:  # also NaN: most rounds lack some numbers
                continue
            if merge is SUM:
                values[name] = values.get(name, 0) + value
            elif merge is NEWEST:
                values[name] = value
            elif merge is MOST:
                values[name] = max(values.get(name, value), value)
            elif weight:
                self._weights[name] = total = self._weights.get(name, 0.0) + weight
                before = values.get(name, value)
                values[name] = before + (value - before) * weight / total

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def get(self, name: str) -> float | None:
        """Return a number; None before its first value."""
        return self.values.get(name)
