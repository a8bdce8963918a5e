"""Several machines under torchrun: each has its own arena with a row for every worker, and the arenas are replicas.

The first worker of a machine leads it. After a local barrier the leaders exchange the shared memory of their workers through
torch.distributed (gloo). Then each machine has the numbers of all workers and sums them in rank order, as one machine would:
the bits do not depend on the number of machines. With `[engine] exact = false` each machine sums only its own workers, and
the leaders add up these sums by an all-reduce, on their accelerators (nccl, say) or by gloo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from partrain.comm.transport import BaseTransport, Placement
from partrain.errors import WorkersLost

if TYPE_CHECKING:
    from partrain.comm.group import Parts, Transport

CHUNK_BYTES = 1 << 28
"""Bytes per message of `broadcast_bytes`, which sends a whole snapshot."""


class DistributedTransport(SharedTransport):
    """One of the worker processes of several machines."""

    def __init__(self, arena: Arena, rank: int, members: range, machine: Machine, device: str = "cpu") -> None:
        """Join the group. `device` adds the sums of machines: an accelerator by the backend that torch has for it, if any, else gloo."""
        super().__init__(arena, rank, members)
        self._machine = machine
        kind = device.partition(":")[0]
        backend = dist.Backend.default_device_backend_map.get(kind, "")
        self._device = device if dist.is_backend_available(backend) else "cpu"
        self._leads = rank == members.start
        if self._leads:
            backends = "gloo" if self._device == "cpu" else f"cpu:gloo,{kind}:{backend}"
            timeout = timedelta(seconds=machine.timeout_s)
            store = PrefixStore("gloo", machine.store())
            with translate_connection_errors():
                dist.init_process_group(backends, store=store, rank=machine.number, world_size=machine.count, timeout=timeout)

    @classmethod
    def join(cls, placement: Placement, rank: int) -> Transport:
        assert placement.machine is not None
        devices = placement.devices
        kinds = {device.partition(":")[0] for device in devices}
        device = devices[rank] if not placement.exact and len(kinds) == 1 else "cpu"
        return cls(placement.arena, rank, placement.members, placement.machine, device)

    def barrier(self, parts: Parts | None = None) -> None:
        """Return when every worker of all machines has called this and all arenas hold the `parts` of all workers."""
        nothing = [torch.zeros(1, dtype=torch.uint8)] * (len(self._members) * self._machine.count)
        self.start(parts or (lambda: [nothing]))()

    def start(self, parts: Parts) -> Callable[[], None]:
        """Let gloo's threads send `parts` while the workers go on."""
        self.local_barrier()
        store = self._send(parts()) if self._leads else None

        def finish() -> None:
            if store:
                store()
            self.local_barrier()

        return finish

    meet = BaseTransport.meet  # each worker mixes its share after the exchange between machines

    def replicate(self, parts: Parts) -> None:
        """Do the same as `barrier`."""
        self.barrier(parts)

    def broadcast_bytes(self, whole: memoryview) -> None:
        """Overwrite these bytes with the first machine's."""
        self.local_barrier()
        if self._leads:
            with translate_connection_errors():
                for part in torch.split(torch.frombuffer(whole, dtype=torch.uint8), CHUNK_BYTES):
                    dist.broadcast(part, 0)
        self.local_barrier()

    def all_reduce_sum(self, x: Tensor) -> None:
        """Replace x, in this machine's shared memory, by the sum over all machines: the same bits on each."""
        self.local_barrier()
        if self._leads:
            with translate_connection_errors():
                sums = x.to(self._device)
                dist.all_reduce(sums)
                x.copy_(sums)
        self.local_barrier()

    def _send(self, parts: Sequence[Sequence[Tensor]]) -> Callable[[], None]:
        """Begin to send the parts of this machine's workers. The function returned stores the parts of all others in this arena."""
        count = len(self._members)
        ours = torch.cat([part[rank] for part in parts for rank in self._members])
        theirs = [torch.empty_like(ours) for _ in range(self._machine.count)]
        with translate_connection_errors():
            sending = dist.all_gather(theirs, ours, async_op=True)

        def store() -> None:
            with translate_connection_errors():
                sending.wait()
            for number, message in enumerate(theirs):
                if number == self._machine.number:
                    continue
                targets = [part[rank] for part in parts for rank in range(number * count, (number + 1) * count)]
                for target, piece in zip(targets, torch.split(message, [len(target) for target in targets]), strict=True):
                    target.copy_(piece)

        return store


@contextmanager
def translate_connection_errors(peer: str = "another machine") -> Iterator[None]:
    """Turn an error of torch.distributed into WorkersLost, which names the peer."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0].rpartition("] ")[2].partition(". This")[0]
        raise WorkersLost(f"{peer} does not answer ({reason})") from None
