"""The `[faults]` table: a run's reaction to failures."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from partrain.config.section import Section

REPLAY_WINDOW = 100
"""Rounds within which `max_replays` counts."""


class Faults(Section):
    """The `[faults]` table."""

    on_loss: Literal["replay", "drop", "stop"] = "replay"
    """Reaction if a worker is killed, crashes or freezes. `replay`: start all workers again from the newest copy of the training
    state in memory. The lost rounds run again, with the same numbers under a synchronous rule. `drop`: continue without the
    worker, and share its items among the others. `stop`: end the run, which can be resumed."""
    max_replays: int = Field(10, ge=1)
    """With `on_loss = "replay"`: number of replays within 100 rounds before the run ends with exit code 69, or 74
    if the process that writes checkpoints was lost."""
    on_nonfinite: Literal["stop", "exclude"] = "stop"
    """Reaction if the loss, parameters, gradient, optimizer state or buffers of a worker are not finite. `stop`: end the run with
    exit code 76. `exclude`: undo the newest local iterations of the worker, leave it out of the means of this round, and
    continue. The run then ends with 76 only if no worker is left."""
    max_update_norm: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Largest L2 norm of a worker's update, the change of its parameters by local iterations. A longer update is scaled down to
    it before it is mixed."""
    round_seconds: float | None = Field(None, gt=0)
    """Seconds that the local iterations of a round may take. partrain lowers each worker's `iterations`, to at least 1, by the
    speed measured in the previous round. So results depend on the clock."""
