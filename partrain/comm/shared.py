"""Waiting between the processes of one machine: spin while it pays, then sleep on a futex."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from partrain.comm import futex
from partrain.comm.arena import Arena

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.comm.group import Parts

SPIN_S = 1e-3
"""Spin this long before sleeping, where every worker has a core of its own."""
NAP_S = 0.05
"""Longest sleep before looking again."""


class SharedTransport:
    """One worker process among N. The coordinator ends waits that can't end: it kills the group of a lost worker."""

    def __init__(self, arena: Arena, rank: int, members: range | None = None) -> None:
        """`members`: the workers of this machine; default: all of the arena's."""
        members = members or range(arena.size)
        self._arena = arena
        self._rank = rank
        self._peers = [peer for peer in members if peer != rank]
        self._arrived = 0
        self._spin_s = SPIN_S if len(members) <= len(os.sched_getaffinity(0)) else 0.0

    def clock(self) -> float:
        """Seconds."""
        return time.perf_counter()

    def advance_clock(self, number: int) -> None:
        """Nothing to do: the clock is the machine's."""

    def barrier(self, parts: Parts | None = None) -> None:
        """Return when every worker has come here. All parts can be seen by all: memory is shared."""
        self.local_barrier()

    def replicate(self, parts: Parts) -> None:
        """Nothing to do."""

    def broadcast_bytes(self, whole: memoryview) -> None:
        """Nothing to do."""

    def all_reduce_sum(self, x: Tensor) -> None:
        """There is nothing to add on one machine."""
        self.local_barrier()

    def local_barrier(self) -> None:
        """Return when every worker of this machine has come here."""
        arrivals, count = self._arena.arrivals, self._arrived + 1
        self._arrived = count
        arrivals[self._rank] = count
        futex.wake(self._arena.arrival_address(self._rank))
        give_up = time.perf_counter() + self._spin_s
        for peer in self._peers:
            while arrivals[peer] < count:
                if time.perf_counter() < give_up:
                    continue
                seen = int(arrivals[peer])
                if seen < count:
                    futex.wait(self._arena.arrival_address(peer), seen & 0xFFFFFFFF, NAP_S)

    def wait_until(self, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready()` holds: polled, for things that happen seldom."""
        while not ready():
            time.sleep(100e-6)

    def wait_for_peers(self, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready()` holds."""
        self.wait_until(ready, what)

    def free(self) -> AbstractContextManager[None]:
        """Everything takes the time it takes."""
        return nullcontext()

    @contextmanager
    def lock(self, index: int) -> Iterator[None]:
        """Hold the kernel's lock on a byte of the arena's file: one that dies with its owner."""
        if self._arena.size == 1:
            yield
            return
        fcntl.lockf(self._arena.descriptor, fcntl.LOCK_EX, 1, index)
        try:
            yield
        finally:
            fcntl.lockf(self._arena.descriptor, fcntl.LOCK_UN, 1, index)

    def message(self) -> None:
        """Nothing to do: memory is shared."""
