"""The result of a run: the network that represents it, and the number that chose it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

from partrain.number_format import number
from partrain.record.events import Event, JudgementEvent
from partrain.record.round_record import number_of

Course = Sequence[JudgementEvent]
"""The judgements of a run in their order."""


def decides(metrics: Mapping[str, Any]) -> str:
    """Return the number that decides which judgement is the best if `patience_by` names none, as in `Progress.judge`."""
    return "accuracy" if "accuracy" in metrics else "loss"


class BestJudgement(TypedDict):
    """The best judgement of the run."""

    round: int
    """The round that was judged."""
    loss: float | None
    """Loss on the held-out items."""
    metrics: dict[str, float]
    """Accuracy and further metrics, by name."""
    by: str
    """The number that decided: the one that `patience_by` names, else the accuracy, else the loss."""
    lower: bool
    """True if a lower number is better."""


def best_judgement(
    number: int, loss: float | None, metrics: dict[str, float], stop: Mapping[str, Any], *, lower_is_better: bool
) -> BestJudgement:
    """Describe a round's judgement as its run's best. `lower_is_better` applies to the number that `patience_by` in `stop` names."""
    by = stop.get("patience_by") or decides(metrics)
    lower = lower_is_better if stop.get("patience_by") else by == "loss"
    return {"round": number, "loss": loss, "metrics": metrics, "by": by, "lower": lower}


@dataclass(frozen=True)
class RunResult:
    """The network of `best.h5` and its judged numbers; for a run without a best judgement, the network judged last."""

    round: int | None
    """The round after which it was judged; None if nothing was judged."""
    loss: float | None
    metrics: Mapping[str, float]
    """Accuracy and further metrics, by name."""
    by: str
    """The number that chose it: the one that `patience_by` names, else the accuracy, else the loss."""
    lower: bool
    """True if a lower number is better."""

    @classmethod
    def of(cls, summary: Mapping[str, Any], stop: Mapping[str, Any] | None = None) -> RunResult:
        """Read the result from the content of summary.json, or from the last judgement of a run without one.

        `stop`: the table of the run's job. It names the number that would have chosen the network of a run without a best
        judgement.
        """
        newest = {key: summary.get(key) for key in ("loss", "metrics")} | {
            "round": summary.get("judged_round", summary.get("rounds"))
        }
        best = summary.get("best")
        judged = best if best and isinstance(best, dict) else newest
        metrics: dict[str, Any] = held if isinstance(held := judged.get("metrics"), dict) else {}
        by = str(judged.get("by") or (stop or {}).get("patience_by") or decides(metrics))
        return cls(judged.get("round"), judged.get("loss"), metrics, by, bool(judged.get("lower", by == "loss")))

    @property
    def numbers(self) -> dict[str, float | None]:
        """Loss and metrics by name."""
        return {"loss": self.loss, **self.metrics}

    @property
    def rank(self) -> float | None:
        """Number for sorting results of one kind, the best first; None without the number that chose it."""
        value = self.numbers.get(self.by)
        return None if value is None else value if self.lower else -value

    @property
    def place(self) -> tuple[float, float]:
        """Two numbers for sorting results of one kind, the best first: the rank, then the loss, as `Progress.judge` decides."""
        rank, loss = self.rank, number_of(self.loss)
        return math.inf if rank is None else rank, math.inf if loss is None else loss


class SharedResult(NamedTuple):
    """A result that each of several runs reached at some time: the worst run's."""

    by: str
    value: float
    lower: bool
    """True if a lower number is better."""

    @classmethod
    def of(cls, results: Iterable[RunResult]) -> SharedResult | None:
        """Return the worst of the results; None if different numbers chose the networks, or a run was not judged."""
        results = list(results)
        ranks = [rank for result in results if (rank := number_of(result.rank)) is not None]
        if len(ranks) < max(1, len(results)) or len({(result.by, result.lower) for result in results}) > 1:
            return None
        return cls(results[0].by, max(ranks) if results[0].lower else -max(ranks), results[0].lower)

    def __str__(self) -> str:
        return f"{self.by} {number(self.value)}"

    def seconds(self, course: Course) -> float | None:
        """Return the training seconds of a run when it was first judged as good as this; None if it never was."""
        sign = 1 if self.lower else -1
        values = ((event.seconds, number_of(event.scores.get(self.by))) for event in course)
        return next((seconds for seconds, value in values if value is not None and sign * value <= sign * self.value), None)


def course_of(events: Iterable[Event]) -> Course:
    """Return the judgements from the events of a run."""
    return [event for event in events if isinstance(event, JudgementEvent)]
