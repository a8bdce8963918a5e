"""The `[checkpoint]` table: which rounds reach the disk and which files stay there."""

from typing import Literal

from pydantic import Field

from partrain.config.section import Section


class CheckpointSection(Section):
    """The `[checkpoint]` table."""

    every: int = Field(1, ge=1)
    """Rounds between commits."""
    commit: Literal["coalesce", "every"] = "coalesce"
    """`coalesce`: the newest offered round, written beside the training within a small share of the time, at first after a second, and always the last; `every`: each round waits for its file."""
    keep: int = Field(2, ge=1)
    """Newest checkpoints kept; the best by the judged metric is kept besides."""
