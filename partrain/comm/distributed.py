"""Several machines under torchrun: each has an arena of its own with a place for every worker, and the arenas mirror one another.

The first worker of a machine leads it: when its workers have met, it exchanges what they have put into shared memory with the
leaders of the other machines, through torch.distributed (gloo). Then each machine has everyone's numbers and sums for itself, in
rank order as one machine would: the same bits, whatever the number of machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from partrain.comm.machine import Machine
from partrain.comm.shared import Shared
from partrain.errors import WorkersLost

if TYPE_CHECKING:
    from partrain.comm.group import Parts

CHUNK_BYTES = 1 << 28
"""Sent at a time where a whole snapshot is spread."""


class Distributed:
    """One worker among those of several machines."""

    def __init__(self, local: Shared, rank: int, members: range, machine: Machine) -> None:
        self._local, self._members, self._machine = local, members, machine
        self._leads = rank == members.start
        if self._leads:
            patience = timedelta(seconds=machine.patience_s)
            store = PrefixStore("gloo", machine.store())
            with _machines_lost():
                dist.init_process_group("gloo", store=store, rank=machine.number, world_size=machine.count, timeout=patience)

    def clock(self) -> float:
        """Seconds."""
        return self._local.clock()

    def worked(self, number: int) -> None:
        """Nothing to do."""

    def message(self) -> None:
        """Nothing to do."""

    def free(self) -> AbstractContextManager[None]:
        """Everything takes the time it takes."""
        return self._local.free()

    def alone(self, place: int) -> AbstractContextManager[None]:
        """While this lasts, no other worker of this machine is alone at this place."""
        return self._local.alone(place)

    def local(self) -> None:
        """Return when every worker of this machine has come here."""
        self._local.local()

    def barrier(self, parts: Parts | None = None) -> None:
        """Return when every worker of all machines has come here, and all arenas hold what each has put into `parts`."""
        self._local.local()
        if self._leads:
            nothing = [torch.zeros(1, dtype=torch.uint8)] * (len(self._members) * self._machine.count)
            self._exchange(parts() if parts else [nothing])
        self._local.local()

    def mirror(self, parts: Parts) -> None:
        """As `barrier`."""
        self.barrier(parts)

    def spread(self, whole: memoryview) -> None:
        """Make these bytes what they are on the first machine."""
        self._local.local()
        if self._leads:
            with _machines_lost():
                for part in torch.split(torch.frombuffer(whole, dtype=torch.uint8), CHUNK_BYTES):
                    dist.broadcast(part, 0)
        self._local.local()

    def until(self, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready()` holds."""
        self._local.until(ready, what)

    def until_peers(self, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready()` holds."""
        self._local.until(ready, what)

    def _exchange(self, parts: Sequence[Sequence[torch.Tensor]]) -> None:
        """Send what this machine's workers have, and put what the others have where it belongs."""
        count = len(self._members)
        ours = torch.cat([part[rank] for part in parts for rank in self._members])
        theirs = [torch.empty_like(ours) for _ in range(self._machine.count)]
        with _machines_lost():
            dist.all_gather(theirs, ours)
        for number, message in enumerate(theirs):
            if number == self._machine.number:
                continue
            places = [part[rank] for part in parts for rank in range(number * count, (number + 1) * count)]
            for place, piece in zip(places, torch.split(message, [len(place) for place in places]), strict=True):
                place.copy_(piece)


class _machines_lost:
    """Turns what gloo says of a lost machine into a failure of the run."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RuntimeError):
            reason = str(error).strip().splitlines()[0].rpartition("] ")[2].partition(". This")[0]
            raise WorkersLost(f"another machine does not answer ({reason}); the last checkpoint is intact") from None
