"""Several machines under torchrun: each has an arena of its own with a place for every worker, and the arenas mirror one another.

The first worker of a machine leads it: when its workers have met, it exchanges what they have put into shared memory with the
leaders of the other machines, through torch.distributed (gloo). Then each machine has everyone's numbers and sums for itself, in
rank order as one machine would: the same bits, whatever the number of machines. With `[engine] exact = false` means are made
otherwise: each machine sums what its workers have, and only these sums are sent, through the all-reduce of gloo or nccl.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore

from partrain.comm.arena import Arena
from partrain.comm.machine import Machine
from partrain.comm.shared import SharedTransport
from partrain.errors import WorkersLost

if TYPE_CHECKING:
    from partrain.comm.group import Parts

CHUNK_BYTES = 1 << 28
"""Sent at a time where a whole snapshot is spread."""


class DistributedTransport(SharedTransport):
    """One worker process among those of several machines."""

    def __init__(self, arena: Arena, rank: int, members: range, machine: Machine, device: str = "cpu") -> None:
        """`device`: where sums of machines are added up: by nccl if that is a CUDA device and torch has it, else by gloo."""
        super().__init__(arena, rank, members)
        self._members, self._machine = members, machine
        self._device = device if dist.is_nccl_available() else "cpu"
        self._leads = rank == members.start
        if self._leads:
            backends = "gloo" if self._device == "cpu" else "cpu:gloo,cuda:nccl"
            timeout = timedelta(seconds=machine.timeout_s)
            store = PrefixStore("gloo", machine.store())
            with translate_connection_errors():
                dist.init_process_group(backends, store=store, rank=machine.number, world_size=machine.count, timeout=timeout)

    def barrier(self, parts: Parts | None = None) -> None:
        """Return when every worker of all machines has come here, and all arenas hold what each has put into `parts`."""
        self.local_barrier()
        if self._leads:
            nothing = [torch.zeros(1, dtype=torch.uint8)] * (len(self._members) * self._machine.count)
            self._exchange(parts() if parts else [nothing])
        self.local_barrier()

    def replicate(self, parts: Parts) -> None:
        """As `barrier`."""
        self.barrier(parts)

    def broadcast_bytes(self, whole: memoryview) -> None:
        """Make these bytes what they are on the first machine."""
        self.local_barrier()
        if self._leads:
            with translate_connection_errors():
                for part in torch.split(torch.frombuffer(whole, dtype=torch.uint8), CHUNK_BYTES):
                    dist.broadcast(part, 0)
        self.local_barrier()

    def all_reduce_sum(self, x: Tensor) -> None:
        """Make x, which lies in this machine's memory, the sum over all machines: the same bits on each."""
        self.local_barrier()
        if self._leads:
            with translate_connection_errors():
                sums = x.to(self._device)
                dist.all_reduce(sums)
                x.copy_(sums)
        self.local_barrier()

    def _exchange(self, parts: Sequence[Sequence[Tensor]]) -> None:
        """Send what this machine's workers have, and put what the others have where it belongs."""
        count = len(self._members)
        ours = torch.cat([part[rank] for part in parts for rank in self._members])
        theirs = [torch.empty_like(ours) for _ in range(self._machine.count)]
        with translate_connection_errors():
            dist.all_gather(theirs, ours)
        for number, message in enumerate(theirs):
            if number == self._machine.number:
                continue
            places = [part[rank] for part in parts for rank in range(number * count, (number + 1) * count)]
            for place, piece in zip(places, torch.split(message, [len(place) for place in places]), strict=True):
                place.copy_(piece)


@contextmanager
def translate_connection_errors(peer: str = "another machine") -> Iterator[None]:
    """Raise WorkersLost, which names the peer, for an error of torch.distributed."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0].rpartition("] ")[2].partition(". This")[0]
        raise WorkersLost(f"{peer} does not answer ({reason})") from None
