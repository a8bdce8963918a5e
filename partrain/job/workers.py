"""The `[[workers]]` tables: devices, and each worker's share of a round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field

from partrain.config.section import Section
from partrain.system.accelerator import PATTERN, count
from partrain.system.cores import parse_cores


def _list_of_cores(text: str) -> str:
    try:
        parse_cores(text)
    except ValueError as error:
        raise ValueError(f"`cpus`: {error}") from None
    return text


class WorkerGroup(Section):
    """One `[[workers]]` table: `count` equal processes, each with one worker or several `replicas`."""

    device: str = Field("cpu", pattern=PATTERN)
    """Device of the workers, by its name in torch: `cpu`, `cuda:N`, `xpu:N`, `mps`, or a kind that another package adds to torch.
    Without a number, as in `cuda`, each worker takes the next device in turn."""
    count: int = Field(1, ge=1, le=16_384)
    """Number of processes in this group, or of simulated workers."""
    replicas: int = Field(1, ge=1, le=1024)
    """Workers in each process, which train one after another, with the same bits as that many processes. That needs less memory,
    and for tiny networks less time than many processes take to meet."""
    threads: int = Field(1, ge=1, le=1024)
    """CPU threads of each process (torch's intra-op threads)."""
    cpus: Annotated[str, AfterValidator(_list_of_cores)] | None = None
    """Cores that the processes are bound to, in Linux numbering: `0-3,8`. Each process of the group gets the same number of
    cores, in order. Default: the kernel places the processes."""
    batch_size: int | None = Field(None, ge=1)
    """Items per local iteration of each worker; default: `[optimizer] batch_size`. Faster devices may benefit from more."""
    partition_size: int | None = Field(None, ge=1)
    """Exact number of items of each worker; default: an equal share of the remaining items."""
    iterations: int | None = Field(None, ge=1)
    """Local iterations of each worker in a round; default: `[sync] iterations`. Give slower groups fewer."""
    passes: int | None = Field(None, ge=1)
    """Passes over the partition of each worker in a round, instead of `iterations`; default: `[sync] passes`."""

    @property
    def size(self) -> int:
        """Number of workers in this group."""
        return self.count * self.replicas

    def cores_of(self, number: int) -> tuple[int, ...]:
        """Return the cores of a process of the group, by its number from 0; empty if the kernel chooses."""
        cores = parse_cores(self.cpus) if self.cpus else []
        share = len(cores) // self.count
        return tuple(cores[number * share : (number + 1) * share])

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
    cpus: tuple[int, ...] = ()
    """Cores that the worker is bound to; empty if the kernel chooses."""
    batch_size: int | None = None
    """Items per local iteration; None: the value of `[optimizer]`."""
    process: int = 0
    """The worker's process, identified by the rank of its first worker."""


def expand(groups: Sequence[WorkerGroup], iterations: int | None, passes: int | None) -> list[WorkerSpec]:
    """List the workers by rank, in the order of their groups; `iterations` and `passes` are the caps of `[sync]`."""
    specs: list[WorkerSpec] = []
    placed = Counter[str]()
    for group in groups:
        caps = group.caps(iterations, passes)
        for number in range(group.count):
            device = group.device
            if device != "cpu" and ":" not in device:
                device = f"{group.device}:{placed[group.device] % max(count(group.device), 1)}"
                placed[group.device] += 1
            place, first = (group.cores_of(number), group.batch_size), len(specs)
            for rank in range(first, first + group.replicas):
                specs.append(WorkerSpec(rank, device, group.threads, group.partition_size, *caps, *place, first))
    return specs


def has_replicas(groups: Sequence[WorkerGroup]) -> bool:
    """Return whether a process has several workers."""
    return any(group.replicas > 1 for group in groups)
