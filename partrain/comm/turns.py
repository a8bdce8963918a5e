"""Workers that share one process and take turns: one runs at a time. Each is a greenlet, so a turn costs a microsecond or two.

Source: greenlet, lightweight concurrent programming. https://greenlet.readthedocs.io
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from time import perf_counter

import greenlet

from partrain.comm.transport import Abandoned, Deadlock


class TurnScheduler:
    """Scheduler that lets N workers take turns: the worker with the earliest clock goes on (on a tie, the lowest rank)."""

    def __init__(
        self,
        ranks: Sequence[int],
        on_turn: Callable[[int], None] = lambda rank: None,
        on_idle: Callable[[], bool] = lambda: False,
    ) -> None:
        """Prepare some workers.

        Args:
            ranks: Their ranks.
            on_turn: Called with the rank of a worker before each of its turns.
            on_idle: Called while all workers wait; it returns False if nothing can end their waits.
        """
        self._on_turn, self._on_idle = on_turn, on_idle
        self._scheduler = greenlet.getcurrent()
        self._turn: int | None = None
        self._failure: BaseException | None = None
        self.clocks = dict.fromkeys(ranks, 0)
        """Simulated nanoseconds of each worker."""
        self._able = [(0, rank) for rank in ranks]
        """Heap of the workers that could run, by clock and rank."""
        self._waits: dict[int, tuple[Callable[[], bool], str]] = {}
        """Condition that each waiting worker waits for, and its description."""
        self._at_barrier: list[int] = []
        """Workers that wait at the next barrier, which all workers have to reach."""
        self._barriers, self._met = 0, [0, 0]
        """Number of the newest barrier that all have reached; the latest arrival time at it and at the next one, in turn."""
        self.link_free = 0
        """Simulated nanosecond at which the link to the center has sent all earlier messages."""
        self._spent, self._began = dict.fromkeys(ranks, 0.0), 0.0
        """Real seconds of each worker's finished turns; the moment when the present turn began."""
        self._idle = self._idle_in_turn = 0.0
        """Real seconds in which all workers waited for something outside: so far, and within the present turn."""
        self._mixed = 0
        """Number of the newest barrier at which one worker mixed for all."""

    def run(self, work: Callable[[int], BaseException | None]) -> None:
        """Run `work(rank)` for each worker to its end. It returns the worker's failure, which stops all others (`Abandoned`)."""
        self._scheduler = greenlet.getcurrent()
        workers = {rank: greenlet.greenlet(partial(self._work, work, rank)) for rank in self.clocks}
        while self._failure is None and self._choose():
            assert self._turn is not None
            self._on_turn(self._turn)
            self._began = perf_counter()
            workers[self._turn].switch()
            self._spent[self._turn] += perf_counter() - self._began - self._idle_in_turn
            self._idle, self._idle_in_turn = self._idle + self._idle_in_turn, 0.0
        for worker in workers.values():
            while not worker.dead:  # it stops at its next wait
                worker.switch()

    def _work(self, work: Callable[[int], BaseException | None], rank: int) -> None:
        failure: BaseException | None = None
        with suppress(Abandoned):
            if self._failure is None:
                failure = work(rank)
        self._failure = self._failure or failure

    def seconds(self, rank: int) -> float:
        """Return the real seconds of a worker whose turn it is: of its turns, and those in which all workers waited."""
        return self._spent[rank] + perf_counter() - self._began + self._idle

    def add_idle(self, seconds: float) -> None:
        """Count some real seconds of the present turn as waiting of all workers."""
        self._idle_in_turn += seconds

    def wait(self, rank: int, ready: Callable[[], bool], what: str) -> None:
        """Let other workers run until `ready()` holds and it is this worker's turn.

        A worker that had to wait continues no earlier than the simulated time at which another worker ended its wait.
        """
        if ready():
            heappush(self._able, (self.clocks[rank], rank))
        else:
            self._waits[rank] = (ready, what)
        self._pause()

    def arrive(self, rank: int, mix: Callable[[], None] | None = None, lasts: Callable[[], int] = lambda: 0) -> bool:
        """Wait at a barrier, which ends `lasts()` after the simulated time of the last arrival. Return whether `mix` has run.

        The worker that arrives last runs `mix` before others continue. If `mix` raises, each meets the exception in its own
        share.
        """
        goal = self._barriers + 1
        self._met[goal % 2] = max(self._met[goal % 2], self.clocks[rank]) if self._at_barrier else self.clocks[rank]
        self._at_barrier.append(rank)
        if len(self._at_barrier) == len(self.clocks):
            with suppress(Exception):
                if mix is not None:
                    mix()
                    self._mixed = goal
            ends = self._met[goal % 2] + lasts()
            for arrived in self._at_barrier:
                self.clocks[arrived] = ends
                heappush(self._able, (self.clocks[arrived], arrived))
            self._barriers, self._at_barrier = goal, []
        self._pause()
        return self._mixed == goal

    def _pause(self) -> None:
        """Return at this worker's next turn."""
        if self._failure is None:
            self._scheduler.switch()
        if self._failure is not None:
            raise Abandoned from self._failure

    def _choose(self) -> bool:
        """Choose the worker with the earliest clock; return False if all have ended. A deadlock becomes the failure."""
        self._end_waits()
        began = perf_counter()
        while self._waits and not self._able and self._on_idle():
            self._end_waits()
            began, before = perf_counter(), began
            self._idle += began - before
        if self._able:
            self._turn = heappop(self._able)[1]
            return True
        waits = {rank: what for rank, (_, what) in self._waits.items()}
        waits |= dict.fromkeys(self._at_barrier, f"barrier {self._barriers + 1}")
        if waits:
            self._failure = Deadlock("deadlock: " + "; ".join(f"worker {rank} waits for {waits[rank]}" for rank in sorted(waits)))
        return False

    def _end_waits(self) -> None:
        for rank in [rank for rank, (ready, _) in self._waits.items() if ready()]:
            if self._turn is not None:  # the worker that held the baton ended this wait, at the time of its own clock
                self.clocks[rank] = max(self.clocks[rank], self.clocks[self._turn])
            del self._waits[rank]
            heappush(self._able, (self.clocks[rank], rank))
