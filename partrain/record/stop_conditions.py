"""The stop conditions of a run, one small class each: a new condition is a class here and a key of `[stop]`.

Workers, the live table, the closing lines, the checks of a job, its plan and `resume` all read these objects.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from partrain.number_format import clock, count, number


class Standing(NamedTuple):
    """Numbers of a run at one moment, for stop conditions to compare with their goals."""

    rounds: int = 0
    item_iterations: int = 0
    seconds: float = 0.0
    """Training time."""
    loss: float | None = None
    accuracy: float | None = None
    """Results of the last judgement."""
    misses: int = 0
    """Regular judgements since the best one."""
    metrics: Mapping[str, float] = {}
    """Judged metrics by name."""


class StopCondition:
    """A stop condition and its goal. This base class is a limit on a number that only grows."""

    name: str
    """Key of the condition in `[stop]`."""
    kind: ClassVar[Literal["target", "limit"]] = "limit"
    """True for a target, which defines success. A limit ends the run without success."""
    judged: ClassVar[bool] = False
    """True if the condition depends on judgements. All other conditions are reached steadily and for certain."""
    __slots__ = ("goal",)

    def __init__(self, goal: Any) -> None:
        self.goal = goal

    def now(self, at: Standing) -> float | None:
        """Return the value to compare with the goal; None before the first judgement."""
        value: float | None = getattr(at, self.name)
        return value

    def holds(self, at: Standing) -> bool:
        """Return whether the run ends here."""
        value = self.now(at)
        return value is not None and value >= self.goal

    def horizon(self, items_of: Callable[[int], int]) -> int | None:
        """Return the item-iterations at which the run ends, if the goal implies them; `items_of` converts rounds."""
        return None

    def show(self, at: Standing) -> str:
        """Format value and goal for the live table."""
        return f"{self.name} {count(self.now(at))}/{count(self.goal)}"

    def moved(self, at: Standing) -> str:
        """Return a `--until` argument that lets the run continue: twice the limit, or twice the value reached."""
        return f"{self.name}={2 * max(self.goal, self.now(at) or 0)}"


class Rounds(StopCondition):
    """Rounds of local training and mixing."""

    name = "rounds"
    __slots__ = ()

    def horizon(self, items_of: Callable[[int], int]) -> int | None:
        return items_of(self.goal)


class ItemIterations(StopCondition):
    """Item-iterations of all workers."""

    name = "item_iterations"
    __slots__ = ()

    def horizon(self, items_of: Callable[[int], int]) -> int | None:
        return int(self.goal)

    def show(self, at: Standing) -> str:
        return f"item-iterations {count(at.item_iterations)}/{count(self.goal)}"


class Seconds(StopCondition):
    """Training time."""

    name = "seconds"
    __slots__ = ()

    def show(self, at: Standing) -> str:
        return f"{clock(at.seconds)}/{clock(self.goal)}"

    def moved(self, at: Standing) -> str:
        return f"seconds={2 * self.goal}"


class Loss(StopCondition):
    """Target: judged loss at or below the goal."""

    name = "loss"
    kind = "target"
    judged = True
    __slots__ = ()

    def holds(self, at: Standing) -> bool:
        return at.loss is not None and at.loss <= self.goal

    def show(self, at: Standing) -> str:
        return f"loss {number(at.loss)}/{number(self.goal)}"

    def moved(self, at: Standing) -> str:
        """Halve the goal, or the value reached if that is lower."""
        return f"loss={min(self.goal, math.inf if at.loss is None else at.loss) / 2:.4g}"


class Accuracy(StopCondition):
    """Target: judged accuracy at or above the goal."""

    name = "accuracy"
    kind = "target"
    judged = True
    __slots__ = ()

    def show(self, at: Standing) -> str:
        return f"accuracy {number(at.accuracy)}/{number(self.goal)}"

    def moved(self, at: Standing) -> str:
        """Go halfway from the goal, or the value reached if that is higher, to 1."""
        return f"accuracy={(1 + max(self.goal, at.accuracy or 0)) / 2:.4g}"


class AtLeast(StopCondition):
    """Target: a judged metric at or above the goal."""

    table: ClassVar[str] = "at_least"
    """Key of `[stop]` that holds such goals by metric."""
    kind = "target"
    judged = True
    __slots__ = ("metric", "name")

    def __init__(self, metric: str, goal: float) -> None:
        super().__init__(goal)
        self.metric, self.name = metric, f"{self.table}.{metric}"

    def now(self, at: Standing) -> float | None:
        return at.metrics.get(self.metric)

    def show(self, at: Standing) -> str:
        return f"{self.metric} {number(self.now(at))}/{number(self.goal)}"

    def moved(self, at: Standing) -> str:
        """Go halfway from the goal, or the value reached if that is higher, to 1; raise other numbers by half."""
        best = max(self.goal, self.now(at) or self.goal)
        return f"{self.name}={(1 + best) / 2 if 0 <= best <= 1 else best + abs(best) / 2:.4g}"


class AtMost(AtLeast):
    """Target: a judged metric at or below the goal."""

    table: ClassVar[str] = "at_most"
    __slots__ = ()

    def holds(self, at: Standing) -> bool:
        value = self.now(at)
        return value is not None and value <= self.goal

    def moved(self, at: Standing) -> str:
        """Lower the goal, or the value reached if that is lower, by half."""
        now = self.now(at)
        best = min(self.goal, self.goal if now is None else now)
        return f"{self.name}={best - abs(best) / 2:.4g}"


class Patience(StopCondition):
    """Judgements in a row without a new best."""

    name = "patience"
    judged = True
    __slots__ = ()

    def now(self, at: Standing) -> float | None:
        return at.misses

    def moved(self, at: Standing) -> str:
        return f"patience={2 * self.goal}"


CONDITIONS: tuple[type[StopCondition], ...] = (Rounds, ItemIterations, Seconds, Loss, Accuracy, Patience)
"""All conditions, in display order. If several limits hold at the same time, the first is the reason for the end."""


def numbers_of(stop: Mapping[str, Any]) -> list[str]:
    """Return the judged numbers in a `[stop]` table, which decide when a run ends or which judgement is its best."""
    by = stop.get("patience_by")
    return list(dict.fromkeys([*([by] if by else ()), *(stop.get("at_least") or ()), *(stop.get("at_most") or ())]))


def conditions_of(stop: Mapping[str, Any]) -> list[StopCondition]:
    """Return the conditions that a `[stop]` table sets."""
    conditions: list[StopCondition] = [kind(goal) for kind in CONDITIONS if (goal := stop.get(kind.name)) is not None]
    return conditions + [
        kind(metric, goal) for kind in (AtLeast, AtMost) for metric, goal in (stop.get(kind.table) or {}).items()
    ]


def suggest_until(stop: Mapping[str, Any], status: str, reason: str, at: Standing) -> list[str]:
    """Return `--until` arguments that let a completed run continue.

    They move all targets if one was reached, else the limit that ended the run, else `rounds`.
    """
    conditions = conditions_of(stop)
    moved = [condition.moved(at) for condition in conditions if condition.kind == "target" and status == "reached"]
    moved = moved or [condition.moved(at) for condition in conditions if condition.kind == "limit" and condition.name == reason]
    return moved or [f"rounds={2 * at.rounds}"]
