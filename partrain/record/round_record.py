"""A worker's record of one round: the one declaration of its numbers. The ring in shared memory and `events.jsonl` take them from it.

`training/loop.py` fills the record.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from partrain.record.numbers import MEAN, MOST, SUM, Drawn, Heading, RoundNumber, declared

NAN = float("nan")


@dataclass
class RoundRecord:
    """One worker's numbers of one round; NaN without a value. Durations are in seconds."""

    round: int = declared("Number of the round, from 1.", whole=True)
    iterations: int = declared(
        "Local iterations in this round.", whole=True, workers=SUM, rounds=SUM,
        column=Heading("", "iterations", 10), metric="iterations",
    )  # fmt: skip
    items: int = declared(
        "Item-iterations in this round.", whole=True, workers=SUM, rounds=SUM,
        column=Heading("item-", "iterations", 10), metric="item_iterations",
    )  # fmt: skip
    loss: float = declared(
        "Mean training loss over the item-iterations of the round.", workers=MEAN, network="training",
        column=Heading("training", "loss", 8), metric="worker_loss", run_metric="train_loss", scalar="train/loss",
    )  # fmt: skip
    lr: float = declared(
        "Learning rate of the last iteration.", run_metric="learning_rate", scalar="lr",
        drawn=Drawn("Learning rate", "learning rate"),
    )  # fmt: skip
    compute: float = declared(
        "Seconds of local iterations.", workers=SUM, rounds=SUM, activity="computing",
        column=Heading("seconds", "computing", 9), metric="worker_seconds",
    )  # fmt: skip
    wait: float = declared(
        "Seconds of waiting for other workers.", workers=SUM, rounds=SUM, activity="waiting",
        column=Heading("seconds", "waiting", 8), metric="worker_seconds",
    )  # fmt: skip
    mix: float = declared(
        "Seconds of mixing.", workers=SUM, rounds=SUM, activity="mixing",
        column=Heading("seconds", "mixing", 8), metric="worker_seconds",
    )  # fmt: skip
    distance: float = declared(
        "Consensus distance of the replicas before they were mixed: sqrt(mean_i |x_i - mean|^2), where it was measured.",
        network="training", column=Heading("distance", "to mean", 8), metric="distance", scalar="distance",
        drawn=Drawn("Distance between replicas", "distance to the mean", log=True),
    )  # fmt: skip
    bytes: int = declared(
        "Bytes of the messages that the worker sent to the other workers or took from the center.", whole=True,
        workers=SUM, rounds=SUM, metric="bytes", scalar="bytes",
        drawn=Drawn("Messages", "bytes so far", by="seconds"),
    )  # fmt: skip
    staleness: float = declared(
        "Mean staleness of the worker's updates (asynchronous rules): changes of the center since the worker read it.",
        workers=MEAN, rounds=MEAN, metric="staleness", scalar="staleness",
        drawn=Drawn("Staleness", "center versions"),
    )  # fmt: skip
    seconds: float = declared("Training seconds up to the end of the round; in events, of all sessions of the run.", workers=MOST)
    judged_loss: float = declared("Loss on the held-out items.", NAN, elsewhere="judgement", network="newest")
    accuracy: float = declared("Accuracy on the held-out items.", NAN, elsewhere="judgement", network="newest")
    best: int = declared("1 if this judgement is the best so far.", 0, whole=True, elsewhere="judgement")
    clipped_norm: float = declared(
        "L2 norm of the longest update that was scaled down to `[faults] max_update_norm`.",
        NAN, optional=True, workers=MOST, rounds=MOST,
    )  # fmt: skip
    excluded: int = declared(
        "The numbers that were not finite, as an index of NOT_FINITE: the worker was left out of means. 0: it was not.",
        0, whole=True, elsewhere="exclusion",
    )  # fmt: skip
    discarded: int = declared(
        "Item-iterations that were taken back because of that; `items` does not count them.",
        0, whole=True, elsewhere="exclusion", workers=SUM, rounds=SUM,
    )  # fmt: skip
    cap: float = declared(
        "Largest number of local iterations in the round, if `[faults] round_seconds` or `[partition] balance` sets one.",
        NAN, whole=True, optional=True,
    )  # fmt: skip
    core_wait: float = declared(
        "Seconds in which the worker was ready to run and no core was free, if there were any.",
        NAN, optional=True, workers=SUM, rounds=SUM, metric="core_wait_seconds",
    )  # fmt: skip

    def row(self) -> tuple[float, ...]:
        """Return the record as numbers, for the ring."""
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
        for name, kind in OPTIONAL.items():
            if math.isnan(value := values.pop(name)):
                continue
            values[name] = kind(value)
        return values

    @classmethod
    def of_event(cls, values: Mapping[str, Any]) -> RoundRecord:
        """Read a record from a `round` event. Numbers that are null, or missing in earlier versions, are NaN."""
        numbers: dict[str, Any] = {name: NAN if (value := values.get(name)) is None else value for name in MEASURED}
        return cls(values["round"], values["iterations"], values["items"], **numbers)


NUMBERS: dict[str, RoundNumber] = {field.name: field.metadata["number"] for field in fields(RoundRecord)}
"""The numbers of a round by name, in the order of a record."""
FIELDS = tuple(NUMBERS)
ELSEWHERE = tuple(name for name, number in NUMBERS.items() if number.elsewhere)
OPTIONAL = {name: int if number.whole else float for name, number in NUMBERS.items() if number.optional}
WHOLE = tuple(name for name, number in NUMBERS.items() if number.whole and not number.optional)
"""Fields that always hold a whole number."""
NOT_FINITE = ("", "the training loss", "the parameters", "the gradient", "the optimizer state", "the buffers")
"""Numbers that may be the reason for an exclusion."""
MEASURED = tuple(name for name in FIELDS if name not in ELSEWHERE)[3:]
"""Numbers of a `round` event after `round`, `iterations` and `items`, which every event has."""


ACTIVITIES = {name: number.activity for name, number in NUMBERS.items() if number.activity}
"""Activities of a worker in its rounds: the name of the number of seconds, and the word."""


def time_shares(seconds: Iterable[Sequence[float]]) -> dict[str, float]:
    """Return the shares of the ACTIVITIES in the time of some rounds or workers, given the seconds of each; empty without time.

    That time does not include judging, starting and the test.
    """
    totals = [sum(column) for column in zip(*seconds, strict=True)]
    return {name: total / sum(totals) for name, total in zip(ACTIVITIES, totals, strict=True)} if sum(totals) > 0 else {}


def finite(value: float) -> float | None:
    """Return the number, or None if it is not finite (JSON has no NaN)."""
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
