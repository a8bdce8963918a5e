"""The numbers of a network on the test items."""

from __future__ import annotations

from typing import NamedTuple

from partrain.record.round_record import finite


class FinalScores(NamedTuple):
    """The numbers of a network on the test items."""

    round: int
    """The round whose network was tested: the best judged one, or the newest without judgements."""
    loss: float
    accuracy: float | None
    metrics: dict[str, float]

    def by_name(self) -> dict[str, float]:
        """Return the known ones of loss, accuracy and metrics, by name."""
        named = {"loss": self.loss, "accuracy": self.accuracy, **{name: finite(value) for name, value in self.metrics.items()}}
        return {name: value for name, value in named.items() if value is not None}
