"""The `[[workers]]` tables: which devices train, and how much each may do in a round."""

from pydantic import Field

from partrain.section import Section


class WorkerGroup(Section):
    """One `[[workers]]` table: `count` equal workers."""

    device: str = Field("cpu", pattern=r"^(cpu|cuda(:[0-9]{1,3})?)$")
    """`cpu`, `cuda` (the next device in turn) or `cuda:N`."""
    count: int = Field(1, ge=1, le=1024)
    """Processes."""
    threads: int = Field(1, ge=1, le=1024)
    """Intra-op threads of each."""
    partition_size: int | None = Field(None, ge=1)
    """Items of each worker's partition, exact; default: an equal share of what remains."""
    iterations: int | None = Field(None, ge=1)
    """Cap on local iterations of each worker and round; default: `[sync] iterations`."""
    passes: int | None = Field(None, ge=1)
    """Cap on passes over the partition of each worker and round; default: `[sync] passes`."""
