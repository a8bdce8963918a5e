"""One comparison of the audit, and the bounds of the differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.audit.replica import Vector
from benchmarks.audit.trainings import Training, Trainings

EQUAL = 0.0
"""Bound where nothing is rounded differently: counts, and steps that depend on the signs of the gradient alone."""
ROUNDINGS = 1e-14
"""Bound for parameters in float64. Both sides compute the same sums in other orders, over 30 to 200 iterations, each of which rounds
numbers up to 2 by at most 2.2e-16."""


@dataclass(frozen=True)
class Case:
    """A comparison: one row of the table."""

    what: str
    package: str
    """The package of the other implementation; "" if it is none."""
    part: str
    """The class or function of that package; for numpy, the source of the formula."""
    bound: float
    """Largest difference that passes."""
    difference: Callable[[Trainings], float]
    """Run both sides; return the largest absolute difference."""

    @property
    def peer(self) -> str:
        """The other implementation and its version."""
        return f"{self.package} {version(self.package)}, {self.part}" if self.package else self.part


def params_case(
    what: str,
    peer: tuple[str, str],
    job: dict[str, Any],
    reference: Callable[[Training], Vector],
    bound: float = ROUNDINGS,
) -> Case:
    """Make the comparison of a training's parameters with those of another implementation.

    Args:
        what: Name of the comparison.
        peer: Package and part of the other implementation.
        job: Settings of the training, as `Trainings.run` takes them.
        reference: Trains the other implementation on the batches of the training; returns its parameters.
        bound: Largest difference that passes.
    """

    def difference(trainings: Trainings) -> float:
        training = trainings.run(**job)
        return float(np.abs(training.params - reference(training)).max())

    return Case(what, *peer, bound, difference)
