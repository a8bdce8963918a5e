"""Memory and disk space that this machine's workers and their checkpoints need, compared with the available amounts."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from partrain.comm.arena import SLOTS
from partrain.errors import BadJob
from partrain.job.load import Job
from partrain.job.plan import Plan
from partrain.number_format import counted, size
from partrain.protocols import Rule
from partrain.system.memory import MemoryLimits
from partrain.training.replica import RowLayout
from partrain.training.snapshot import slot_map

FILE_BYTES, ROUND_BYTES = 10_000, 48
"""Bytes of a checkpoint besides its snapshot, and of a round in each checkpoint's history."""


@dataclass(frozen=True)
class MemoryNeeds:
    """Bytes that a run writes in this machine's memory from its first round on, besides data set and libraries."""

    workers: int
    """Workers on the CPU."""
    rows: int
    """Parameters, gradients and optimizer states of these workers."""
    shared: int
    """Vectors that all workers share."""
    rounds: int
    """States of the rule, and the simultaneous needs of the workers' rounds."""
    copies: int
    """Copies of the held-out items."""
    snapshots: int
    """Slots of snapshots, and a checkpoint file, twice in memory for a moment."""

    @classmethod
    def of(
        cls, module: torch.nn.Module, layout: RowLayout, job: Job, plan: Plan, members: range, held_out_bytes: int
    ) -> MemoryNeeds:
        """Compute the needs of a network and its row for the workers of one machine.

        `held_out_bytes`: size of a held-out item, input and target.
        """
        specs = {rank: plan.shares[rank].spec for rank in members}
        on_cpu = [rank for rank in members if specs[rank].device == "cpu"]
        workers = len(on_cpu)
        processes = [
            ranks for ranks in job.transport.ranks_by_process(members, lambda rank: specs[rank].process) if ranks[0] in on_cpu
        ]
        width, state = layout.params.dtype.itemsize, _state(job.sync, layout, len(plan.shares))
        kept = sum(tensor.nbytes for tensor in vars(state).values() if isinstance(tensor, torch.Tensor)) if state else 0
        return cls(
            workers,
            workers * (layout.scratch + layout.params.size * (job.sync.averages_networks - job.sync.shares_params)) * width,
            job.sync.shared_vectors * layout.params.size * width,
            workers * (kept + job.sync.round_vectors * layout.params.size * width),
            len(processes) * plan.held_out * held_out_bytes,
            (SLOTS + 2) * slot_map(module, layout, job.sync, len(plan.shares), state).size,
        )

    @property
    def snapshot(self) -> int:
        """Bytes of a snapshot."""
        return self.snapshots // (SLOTS + 2)

    @property
    def total(self) -> int:
        return self.rows + self.shared + self.rounds + self.copies + self.snapshots

    def require(self, limits: MemoryLimits) -> None:
        """Raise BadJob if the machine cannot hold the rows of all its workers: the kernel would kill one of them."""
        total, most = limits.total, limits.ceiling  # with swap the ceiling may be higher
        need = (
            f"[[workers]]: {self.workers} on the CPU need {gib(self.rows)} for their parameters, gradients and optimizer states"
        )
        if self.rows > max(total, most):
            raise BadJob(f"{need}, and this machine has {gib(total)} of memory; take fewer workers or a smaller network")
        if self.rows > most:
            limit = f"of this machine's {gib(total)} of memory no more than {gib(most)} are not in use"
            raise BadJob(f"{need}, and {limit}; free memory, or take fewer workers or a smaller network")

    def warning(self, limits: MemoryLimits) -> str:
        """Return a warning if the run may need more memory than is free; else ""."""
        if self.total <= limits.free:
            return ""
        parts = f"{self.workers} workers on the CPU {gib(self.total - self.snapshots)}, snapshots and their files {gib(self.snapshots)}"
        need = f"memory may not suffice: this run needs about {gib(self.total)} ({parts})"
        return f"{need}, and {gib(limits.free)} are free; the kernel kills a worker when there is no more"


@dataclass(frozen=True)
class DiskNeeds:
    """The checkpoints that a run keeps at once, and the free bytes for them."""

    checkpoints: int
    """Number of checkpoints: the newest and the best."""
    checkpoint: int
    """Bytes of each at the last round."""
    free: int

    @classmethod
    def of(cls, snapshot: int, job: Job, rounds: int, folder: Path) -> DiskNeeds:
        """Compute the needs of a run in an existing folder. `rounds`: its largest number of rounds; 0 without a limit."""
        kept, written = job.checkpoint.keep + 1, -(-rounds // job.checkpoint.every)
        free = shutil.disk_usage(folder).free
        return cls(min(kept, written) if rounds else kept, snapshot + FILE_BYTES + rounds * ROUND_BYTES, free)

    @property
    def warning(self) -> str:
        """A warning if the checkpoints need more than the free space; else ""."""
        if self.checkpoints * self.checkpoint <= self.free:
            return ""
        need = f"this run keeps {counted(self.checkpoints, 'checkpoint')} of {size(self.checkpoint)}"
        return f"disk space may not suffice: {need}, and {size(self.free)} are free; lower `keep` in [checkpoint], or free some"


def _state(rule: Rule, layout: RowLayout, size: int) -> Any:
    """Return the state of a rule for a worker, without memory for its numbers."""
    params = torch.empty(layout.params.size, dtype=layout.params.dtype, device="meta")
    worker: Any = SimpleNamespace(params=params, rank=1, size=size, iterations=1)  # worker 0 also fills the center
    group: Any = SimpleNamespace(barrier=lambda: None)
    return rule.init(worker, group)


def gib(size: int) -> str:
    """Format a size in GiB."""
    return f"{size / 2**30:,.1f} GiB"
