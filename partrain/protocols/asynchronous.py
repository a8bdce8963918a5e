"""The vocabulary of asynchronous rules, in addition to `protocols`: no worker waits for another within a round.

Workers share vectors, the center variable c (d,) first. A round consists of visits, which workers `claim` until none is left: fast
workers make more visits than slow ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from partrain.protocols import Group, Rule, Worker

if TYPE_CHECKING:
    from torch import Tensor


class AsyncGroup(Group, Protocol):
    """All workers together, with verbs that each worker calls in its own time."""

    center: Tensor
    """Vectors (m, d) that all workers share: the center variable c first."""

    def claim(self, visits: int) -> bool:
        """Take one of the round's visits, which all workers share; False once they are used up."""

    def pull(self, fresh: int | None = None) -> Tensor:
        """Copy c (d,). Waits until this worker is at most `fresh` visits ahead of the slowest."""

    def push(self, delta: Tensor, base: Tensor | None = None, lr: float = 0.0) -> int:
        """Send an update (d,), made from the c last pulled, for the rule to `merge` into the center; return its staleness."""

    def send(self, x: Tensor, share: float, peer: int) -> None:
        """Send share * x (d,) to one worker without waiting. Messages add up until that worker receives them."""

    def receive(self) -> tuple[Tensor, float]:
        """Take the sum of share * x (d' >= d,) of all messages since the last call, and the sum of the shares; (0,) and 0 without
        messages."""


class AsyncRule(Rule):
    """A rule with an asynchronous form. Its `init`, `round` and `result` take an `AsyncGroup`.

    It declares `visits_per_worker` (None: its settings choose a synchronous form), `shared_vectors` if it has a center variable, and
    `slices` if several workers may change the center at the same time.
    """

    def open_visits(self, worker: Worker) -> int:
        """Count the visits of this round that a worker may `claim`, which all active workers share. 0 for an inactive worker."""
        return (self.visits_per_worker or 0) * len(worker.participants) if worker.active else 0

    def merge(self, center: Center, update: Update) -> None:
        """Apply an update that arrives at the center, slice by slice. Only for rules that `push`."""
        raise NotImplementedError


@dataclass
class Center:
    """One slice of the vectors that all workers share, as `merge` sees it: d' of the d numbers."""

    vectors: Tensor
    """(m, d'): the center variable c, then the rule's other vectors."""
    numbers: Tensor
    """(8,) float64: the rule's own counters; zero at first."""
    version: int
    """Number of changes of c so far. `merge` adds one when it changes c."""
    size: int
    """Number N of workers."""


@dataclass(frozen=True)
class Update:
    """An update that a worker pushes."""

    delta: Tensor
    """(d',): a step of c, or a gradient, as the rule defines it."""
    base: Tensor | None
    """(d',): the c that the worker pulled before, if the rule sends it."""
    lr: float
    """The worker's learning rate."""
    staleness: int
    """Versions of c since the worker pulled it."""
