"""The `[[workers]]` tables: devices, and each worker's share of a round."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from partrain.config.section import Section


class WorkerGroup(Section):
    """One `[[workers]]` table: `count` equal workers."""

    device: str = Field("cpu", pattern=r"^(cpu|cuda(:[0-9]{1,3})?)$")
    """`cpu`, `cuda` (the next device in turn) or `cuda:N`."""
    count: int = Field(1, ge=1, le=1024)
    """Number of workers."""
    threads: int = Field(1, ge=1, le=1024)
    """Intra-op threads of each worker."""
    partition_size: int | None = Field(None, ge=1)
    """Items of each worker's partition, exact; default: an equal share of what remains."""
    iterations: int | None = Field(None, ge=1)
    """Cap on local iterations of each worker and round; default: `[sync] iterations`."""
    passes: int | None = Field(None, ge=1)
    """Cap on passes over the partition of each worker and round; default: `[sync] passes`."""


@dataclass(frozen=True)
class WorkerSpec:
    """One worker, before its partition is known."""

    rank: int
    device: str
    threads: int
    partition_size: int | None
    iterations: int | None
    passes: int | None


def expand(groups: Sequence[WorkerGroup], iterations: int | None, passes: int | None) -> list[WorkerSpec]:
    """List the workers by rank, in the order of their groups; `iterations` and `passes` are the caps of `[sync]`.

    A group's own cap replaces the common one, even if one counts iterations and the other passes.
    """
    specs: list[WorkerSpec] = []
    cuda_devices, in_turn = cuda_count(), 0
    for group in groups:
        own = group.iterations is not None or group.passes is not None
        caps = (group.iterations, group.passes) if own else (iterations, passes)
        for _ in range(group.count):
            device = group.device
            if device == "cuda":
                device = f"cuda:{in_turn % max(cuda_devices, 1)}"
                in_turn += 1
            specs.append(WorkerSpec(len(specs), device, group.threads, group.partition_size, *caps))
    return specs


def cuda_count() -> int:
    """Count the CUDA devices of this machine by the driver's files: torch would cost its import and a CUDA context."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    present = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if visible is None:
        return present
    listed = [part for part in visible.split(",") if part.strip()]
    return 0 if "-1" in listed else min(present, len(listed))
