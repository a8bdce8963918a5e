"""The `shared` transport, between the processes of one machine: a worker spins for a moment, then sleeps on a futex."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from partrain.comm.transport import BaseTransport, Placement
from partrain.system.cores import usable_cores

if TYPE_CHECKING:
    from partrain.comm.arena import Arena
    from partrain.comm.group import Parts, Transport

SPIN_S = 1e-3
"""Time a worker spins before it sleeps. It spins only if every worker has its own core."""
NAP_S = 0.05
"""Longest sleep before the next check."""


class SharedTransport(BaseTransport):
    """One worker process among N. If a worker is lost, the coordinator kills the others, which would wait forever."""

    def __init__(self, arena: Arena, rank: int, members: range | None = None) -> None:
        """Join the arena. `members`: the workers of this machine; default: all workers of the arena."""
        from partrain.comm import futex  # imports ctypes, which no command needs that only checks a job

        self._futex = futex
        members = members or range(arena.size)
        self._arena = arena
        self._rank = rank
        self._peers = [peer for peer in members if peer != rank]
        self._arrived = 0
        self._spin_s = SPIN_S if len(members) <= usable_cores() else 0.0

    @classmethod
    def join(cls, placement: Placement, rank: int) -> Transport:
        return cls(placement.arena, rank, placement.members)

    def clock(self) -> float:
        """Return the machine's time in seconds."""
        return time.perf_counter()

    def barrier(self, parts: Parts | None = None) -> None:
        """Return when every worker has called this. All workers see all parts: memory is shared."""
        self.local_barrier()

    def local_barrier(self) -> None:
        """Return when every worker of this machine has called this."""
        arrivals, count = self._arena.arrivals, self._arrived + 1
        self._arrived = count
        arrivals[self._rank] = count
        self._futex.wake(self._arena.arrival_address(self._rank))
        deadline = time.perf_counter() + self._spin_s
        for peer in self._peers:
            while arrivals[peer] < count:
                if time.perf_counter() < deadline:
                    continue
                seen = int(arrivals[peer])
                if seen < count:
                    self._futex.wait(self._arena.arrival_address(peer), seen & 0xFFFFFFFF, NAP_S)

    def wait_for_peers(self, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready()` holds."""
        self.wait_until(ready, what)

    def free(self) -> AbstractContextManager[None]:
        """Do nothing: time is real."""
        return nullcontext()

    @contextmanager
    def lock(self, index: int) -> Iterator[None]:
        """Hold the kernel's lock on one byte of the arena's file. The kernel releases it if its owner dies."""
        if self._arena.size == 1:
            yield
            return
        fcntl.lockf(self._arena.descriptor, fcntl.LOCK_EX, 1, index)
        try:
            yield
        finally:
            fcntl.lockf(self._arena.descriptor, fcntl.LOCK_UN, 1, index)

    def message(self) -> None:
        """Do nothing: memory is shared."""
