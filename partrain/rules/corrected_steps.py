"""Local steps on corrected gradients, which several federated rules take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from partrain.protocols import Rule, Worker
from partrain.rules.findings import warning

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.config.problems import Finding
    from partrain.protocols.rule_traits import JobContext


class CorrectedSteps(Rule):
    """A rule that adds a correction to the gradient of each local step."""

    @property
    def no_exclusion_reason(self) -> str:
        return "it corrects each local step, so a worker has no single update to leave out"

    def local_steps(self, worker: Worker, correction: Callable[[Tensor], Tensor]) -> float:
        """Take K_i local steps with g_i(x_i) + correction(x_i), all (d,); return the sum of their learning rates."""
        rates = 0.0
        for _ in range(worker.iterations if worker.active else 0):
            worker.apply(worker.gradient().add_(correction(worker.params)))
            rates += worker.lr
        return rates


def overshoot(proximal: float, context: JobContext) -> Iterator[Finding]:
    """Find a pull towards the round's start that is too strong for the learning rate."""
    pull = proximal * getattr(context.optimizer, "lr", 0.0)
    if pull >= 2:
        message = f"`proximal` times the learning rate is {pull:g}: from 2 on, steps overshoot the round's start"
        yield warning("proximal", message, "lower one of them")
