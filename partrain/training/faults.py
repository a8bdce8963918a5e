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
    on_nonfinite: Literal["stop", "exclude"] = "stop"
    """If the loss, parameters, gradient, optimizer state or buffers of a worker are not finite, `stop` ends the run with 76. `exclude` takes the worker's newest local iterations back, leaves the worker out of the means of this round, and goes on; 76 only if no worker is left."""
    max_update_norm: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Bound of the L2 norm of a worker's update, the change of its parameters by local iterations: a longer one is scaled down to it before it is mixed."""
