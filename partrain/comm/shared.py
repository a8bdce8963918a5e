"""The `shared` transport, between the processes of one machine: a worker spins for a moment, then sleeps on a futex."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

from partrain.comm.transport import BaseTransport, Placement
from partrain.system.cores import core_delay, usable_cores

if TYPE_CHECKING:
    from partrain.comm.arena import Arena
    from partrain.comm.group import Mix, Parts, Transport

SPIN_S = 1e-3
"""Time a worker spins before it sleeps, unless cores are short: a worker that spins keeps its core from those that compute."""
NAP_S = 0.05
"""Longest sleep before the next check."""
LOOK_S = 0.05
"""Time between two checks of how long workers had to wait for cores."""
SHORT = 0.25
"""Cores are short if workers waited for them for this share of the time since the last check."""
ALONE_BYTES = 1 << 22
"""Longest vector that one worker mixes for all if cores are short."""
MEETING = 1 << 13
"""Index of the lock of meetings."""


class SharedTransport(BaseTransport):
    """One of N worker processes. If a worker is lost, the coordinator kills the others, which would wait forever."""

    def __init__(self, arena: Arena, rank: int, members: range | None = None) -> None:
        """Join the arena. `members`: the workers of this machine; default: all workers of the arena."""
        from partrain.comm import futex  # imports ctypes, which no command needs that only checks a job

        self._futex = futex
        members = members or range(arena.size)
        self._arena = arena
        self._rank = rank
        self._members = members
        self._arrivals_address = arena.arrivals[members.start :].ctypes.data
        self._delays = arena.delays[members.start : members.stop]
        self._alone = arena.alone[members.start : members.stop].T
        self._arrived = 0
        self._mixes_for_all = False
        self._oversubscribed = len(members) > usable_cores()
        self._looked, self._delay, self._cores_short = 0.0, 0, False
        self._look_at_cores(time.perf_counter())

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
        self._pass(self._end_meeting if self._arrive() else self._await_end)

    def meet(self, parts: Parts, mix: Mix, size: int) -> None:
        """Let every worker mix its share. If cores are short, let the worker that arrives last mix for all.

        Then no worker waits for another that is waiting for a core, and the last one, which is the slowest, does not wait at all.
        """
        alone = self._mixes_for_all or (self._cores_short and size <= ALONE_BYTES)
        self._pass(partial(self._mix_and_end, mix) if self._arrive(alone=alone) else self._await_end)
        if self._arena.meetings[1] != self._arrived:
            mix(whole=False)
            self.local_barrier()

    def _pass(self, finish: Callable[[], None]) -> None:
        """Pass a meeting: `finish` ends it, or waits for its end."""
        finish()

    def _mix_and_end(self, mix: Mix) -> None:
        """End a meeting. If a worker wants it, mix for all first."""
        if not self._alone[self._arrived % 2].any():
            self._end_meeting()
            return
        with self.lock(MEETING):  # two workers may both seem to arrive last
            if self._arena.meetings[0] < self._arrived:
                with suppress(Exception):  # each worker meets the exception again, in its own share
                    mix(whole=True)
                    self._arena.meetings[1] = self._arrived
                self._end_meeting()

    def _arrive(self, *, alone: bool = False) -> bool:
        """Arrive at the next meeting. Return True if all workers of this machine have arrived.

        `alone`: this worker wants one worker to mix for all. Two meetings share no memory: a worker may arrive at the next one
        before others have read this one's wishes.
        """
        now = time.perf_counter()
        if now - self._looked > LOOK_S:
            self._look_at_cores(now)
        self._arrived += 1
        self._arena.alone[self._rank, self._arrived % 2] = alone
        return self._futex.arrive(self._arrivals_address, len(self._members), self._rank - self._members.start, self._arrived)

    def _end_meeting(self) -> None:
        self._futex.arrive(self._arena.meeting_address, 1, 0, self._arrived)
        self._futex.wake(self._arena.meeting_address)

    def _await_end(self) -> None:
        """Wait for the end of the meeting."""
        address = self._arena.meeting_address
        newest = self._futex.spin(address, self._arrived, 0.0 if self._cores_short else SPIN_S)
        while newest < self._arrived:
            self._futex.wait(address, newest & 0xFFFFFFFF, NAP_S)
            newest = int(self._arena.meetings[0])

    def _look_at_cores(self, now: float) -> None:
        """Find out whether workers of this machine had to wait for cores since the last check."""
        self._arena.delays[self._rank] = core_delay()
        delay = int(self._delays.sum())
        self._cores_short = self._oversubscribed or delay - self._delay > SHORT * 1e9 * (now - self._looked)
        self._looked, self._delay = now, delay

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

    def message(self, size: int = 0, *, central: bool = True) -> None:
        """Do nothing: memory is shared."""
