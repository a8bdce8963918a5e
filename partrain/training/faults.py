"""The `[faults]` table: the answer of a run to what goes wrong."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from partrain.config.section import Section

REPLAY_WINDOW = 100
"""Rounds within which `max_replays` counts."""


class Faults(Section):
    """The `[faults]` table."""

    on_loss: Literal["replay", "drop", "stop"] = "replay"
    """If a worker is killed, crashes or freezes, `replay` starts all workers again from the newest copy of the training state in memory: the lost rounds run again, with the same numbers under a synchronous rule. `drop` goes on without the worker, and shares its items out. `stop` ends the run, which can be resumed."""
    max_replays: int = Field(10, ge=1)
    """Replays within 100 rounds before the run ends with 69."""
    round_seconds: float | None = Field(None, gt=0)
    """Cap each worker's local iterations, at least 1, so that the local part of a round takes it about these seconds. Measured in the round before: results depend on the machine's clock."""
