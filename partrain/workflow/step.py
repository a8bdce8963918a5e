"""The steps of a valid workflow, in running order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from pathlib import Path

from partrain.config.problems import Problem
from partrain.runs.conditions import Condition
from partrain.workflow.actions import Action


@dataclass(frozen=True)
class Step:
    """A step of a valid workflow."""

    name: str
    action: Action
    needs: frozenset[str]
    """The steps that this step waits for."""
    when: Condition | None = None
    assertions: tuple[Condition, ...] = ()
    retries: int | None = None
    """Number of retries after a failure; default: the command line's."""
    timeout: float | None = None
    """Seconds after which the step ends as a failure."""

    @property
    def sweep(self) -> str:
        """The name of the sweep, if the step is a trial: the part before the slash. Otherwise the step's own name."""
        return self.name.partition("/")[0]

    @property
    def is_trial(self) -> bool:
        """True for a run of a sweep."""
        return "/" in self.name


@dataclass(frozen=True)
class Workflow:
    """A valid workflow."""

    name: str
    text: str
    base: Path
    """The folder of the workflow file, absolute: relative paths start there, and programs run there."""
    steps: dict[str, Step]
    """Steps by name, each after the steps that it needs."""
    warnings: list[Problem] = field(default_factory=list)

    def dependents(self, name: str) -> set[str]:
        """Return the steps that need a step, directly or through others."""
        names = {name}
        for step in self.steps.values():
            if step.needs & names:
                names.add(step.name)
        return names - {name}


class Circular(ValueError):
    """Steps that wait for one another."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"steps wait for each other in a circle: {' → '.join(names)}")
        self.first = names[0]


def in_order(steps: Sequence[Step]) -> list[Step]:
    """Sort steps: each after the steps that it needs, otherwise as in the file. Raises `Circular`."""
    number = {step.name: index for index, step in enumerate(steps)}
    sorter = TopologicalSorter({step.name: sorted(step.needs & number.keys()) for step in steps})
    try:
        sorter.prepare()
    except CycleError as circle:
        raise Circular([name for name in reversed(circle.args[1]) if "/" not in name]) from None
    order: list[Step] = []
    ready: list[int] = []
    while sorter.is_active():  # of the steps that can come next, the first in the file
        for name in sorter.get_ready():
            heappush(ready, number[name])
        order.append(steps[heappop(ready)])
        sorter.done(order[-1].name)
    return order
