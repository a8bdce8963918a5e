"""The `[checkpoint]` table: the rounds that are written to disk, and the files that are kept."""

from typing import Literal

from pydantic import Field

from partrain.config.section import Section


class CheckpointSection(Section):
    """The `[checkpoint]` table."""

    every: int = Field(1, ge=1)
    """Smallest number of rounds from one checkpoint to the next."""
    commit: Literal["coalesce", "every"] = "coalesce"
    """`coalesce`: a background process writes the newest finished round whenever it is idle, in a small share of the time, first
    after a second. It may skip rounds, but always writes the last one. `every`: each of these rounds waits for its file."""
    keep: int = Field(2, ge=1)
    """Number of the newest checkpoints to keep. The best one by the judged number also stays."""
