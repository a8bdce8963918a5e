"""Transports: how the workers of a group reach one another. The `[transport]` table."""

from typing import Literal

from pydantic import Field

from partrain.section import Section


class Transport(Section):
    """The `[transport]` table."""

    kind: Literal["shared", "simulated"] = "shared"
    """`shared`: one process per worker over shared memory; `simulated`: all workers in one process, one at a time."""
    stall_seconds: float = Field(300.0, gt=0)
    """A worker that reports nothing for this long is taken for stuck: the run ends with 75, resumable."""
