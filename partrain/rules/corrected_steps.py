"""Local steps on corrected gradients, as several federated rules take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from partrain.protocols import Rule, Worker

if TYPE_CHECKING:
    from torch import Tensor


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
