"""The `[[workers]]` tables: devices, and each worker's share of a round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from partrain.config.section import Section
from partrain.system.accelerator import PATTERN, count


class WorkerGroup(Section):
    """One `[[workers]]` table: a group of `count` equal workers, one process each."""

    device: str = Field("cpu", pattern=PATTERN)
    """Device of the workers, as torch names it: `cpu`, `cuda:N`, `xpu:N`, `mps`, or a kind that another package adds to torch. Without a
    number, as in `cuda`, each worker takes the next device in turn."""
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
    placed = Counter[str]()
    for group in groups:
        caps = group.caps(iterations, passes)
        for _ in range(group.count):
            device = group.device
            if device != "cpu" and ":" not in device:
                device = f"{group.device}:{placed[group.device] % max(count(group.device), 1)}"
                placed[group.device] += 1
            specs.append(WorkerSpec(len(specs), device, group.threads, group.partition_size, *caps))
    return specs
