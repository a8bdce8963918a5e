"""Who trains on which items: the `[partition]` table, held-out items, windows with overlap."""

from typing import Literal

from pydantic import Field

from partrain.section import Section


class Partition(Section):
    """The `[partition]` table."""

    overlap: float = Field(0.0, ge=0, lt=1)
    """Share of a partition that its neighbour also has; 0 = disjoint."""
    order: Literal["shuffled", "given"] = "shuffled"
    """Seeded shuffle before the windows are cut, or the order given."""
    redraw: Literal["never", "round"] = "never"
    """`round`: a new seeded split each round."""
    uncovered: Literal["error", "allow"] = "error"
    """Whether `partition_size` may leave items that no worker has."""
