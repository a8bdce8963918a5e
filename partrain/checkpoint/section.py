"""The `[checkpoint]` table: the rounds that are written to disk, and the files that are kept."""

from typing import Literal

from pydantic import Field

from partrain.config.section import Section


class CheckpointSection(Section):
    """The `[checkpoint]` table."""

    every: int = Field(1, ge=1)
    """Rounds between commits."""
    commit: Literal["coalesce", "every"] = "coalesce"
    """`coalesce`: a background process writes the newest finished round whenever it is idle, within a small share of the time, for the first time after a second; the last round is always written. `every`: each round waits for its file."""
    keep: int = Field(2, ge=1)
    """Number of newest checkpoints kept; the best one by the judged metric is kept too."""
