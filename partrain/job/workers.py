"""The `[[workers]]` tables: devices, and each worker's share of a round."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from partrain.config.section import Section


class WorkerGroup(Section):
    """One `[[workers]]` table: a group of `count` equal workers, one process each."""

    device: str = Field("cpu", pattern=r"^(cpu|cuda(:[0-9]{1,3})?)$")
    """Device of the workers: `cpu`, `cuda:N`, or `cuda` (each worker takes the next GPU in turn)."""
    count: int = Field(1, ge=1, le=1024)
    """Number of workers in this group."""
    threads: int = Field(1, ge=1, le=1024)
    """CPU threads of each worker (torch's intra-op threads)."""
    partition_size: int | None = Field(None, ge=1)
    """Exact number of items of each worker; default: an equal share of the items that remain."""
    iterations: int | None = Field(None, ge=1)
    """Local iterations of each worker in a round; default: `[sync] iterations`. Give slower groups fewer."""
    passes: int | None = Field(None, ge=1)
    """Passes over the partition of each worker in a round, instead of `iterations`; default: `[sync] passes`."""

    def caps(self, iterations: int | None, passes: int | None) -> tuple[int | None, int | None]:
        """Return iterations and passes of a round: its own, else those of `[sync]`, even if one counts iterations and the other passes."""
        own = self.iterations, self.passes
        return (iterations, passes) if own == (None, None) else own


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
    """List the workers by rank, in the order of their groups; `iterations` and `passes` are the caps of `[sync]`."""
    specs: list[WorkerSpec] = []
    cuda_devices, in_turn = cuda_count(), 0
    for group in groups:
        caps = group.caps(iterations, passes)
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
