"""The `simulated` transport: all workers live in one process as threads, and one runs at a time: the one with the baton.

Time is simulated. Each worker has its own clock, which its local iterations and messages advance. A worker that waits passes
the baton to the worker with the earliest clock (on a tie, the lowest rank). So every run repeats the same events at the same
times, for every rule and every simulated speed. A deadlock raises an error that names the waits; processes would hang.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from partrain.comm.shared import SharedTransport
from partrain.comm.transport import Abandoned, BaseTransport, Deadlock, Placement
from partrain.seeds import generator

if TYPE_CHECKING:
    from partrain.comm.group import Mix, Parts
    from partrain.comm.transport import RunWorker

ITERATION_NS = 1_000_000
"""A local iteration of a worker of speed 1, in simulated nanoseconds. Integers: rounding cannot break a tie."""


@dataclass(frozen=True)
class Pace:
    """The speed of a simulated worker."""

    speed: float = 1.0
    delay_s: float = 0.0
    """Duration of each message and of each barrier."""
    jitter: float = 0.0
    """Spread of an iteration's time: a factor exp(jitter * z), z drawn from the standard normal distribution."""


class TurnScheduler:
    """Scheduler that lets N threads take turns. Each thread sleeps at its own gate; only the next one wakes up."""

    def __init__(self, size: int, on_turn: Callable[[int], None] = lambda rank: None) -> None:
        """Prepare N threads. Each worker's thread calls `on_turn(rank)` when its turn begins."""
        self._on_turn = on_turn
        self._lock = threading.Lock()
        self._gates = [threading.Lock() for _ in range(size)]
        for gate in self._gates:
            gate.acquire()
        self._turn: int | None = None
        self._failure: BaseException | None = None
        self.clocks = [0] * size
        """Simulated nanoseconds of each worker."""
        self._able = [(0, rank) for rank in range(size)]
        """Heap of the workers that could run, by clock and rank."""
        self._waits: dict[int, tuple[Callable[[], bool], str]] = {}
        """Condition that each other worker waits for, and what it is."""
        self._at_barrier: list[int] = []
        """Workers that wait at the next barrier, which all have to reach."""
        self._barriers, self._met = 0, [0, 0]
        """Number of the newest barrier that all have reached; the latest arrival time at it and at the next one, in turn."""
        self._mixed = 0
        """Number of the newest barrier at which one worker mixed for all."""

    def start(self) -> None:
        """Hand the baton to the first worker, once all threads exist."""
        with self._lock:
            self._pass_on()

    def enter(self, rank: int) -> None:
        """Return when it is this worker's first turn."""
        self._gates[rank].acquire()
        if self._failure is not None:
            raise Abandoned from self._failure
        self._on_turn(rank)

    def wait(self, rank: int, ready: Callable[[], bool], what: str) -> None:
        """Pass the baton on until `ready()` holds and it is this worker's turn.

        A worker that had to wait continues no earlier than the simulated time at which another worker ended its wait.
        """
        with self._lock:
            if ready():
                heappush(self._able, (self.clocks[rank], rank))
            else:
                self._waits[rank] = (ready, what)
            self._pass_on()
        self.enter(rank)

    def arrive(self, rank: int, mix: Callable[[], None] | None = None) -> bool:
        """Wait at a barrier. It ends for all at the simulated time of the last arrival. Return whether its `mix` has run.

        The worker that arrives last runs it, before any other goes on. If `mix` raises, each meets the exception in its own share.
        """
        with self._lock:
            goal = self._barriers + 1
            self._met[goal % 2] = max(self._met[goal % 2], self.clocks[rank]) if self._at_barrier else self.clocks[rank]
            self._at_barrier.append(rank)
            if len(self._at_barrier) == len(self.clocks):
                with suppress(Exception):
                    if mix is not None:
                        mix()
                        self._mixed = goal
                for arrived in self._at_barrier:
                    self.clocks[arrived] = self._met[goal % 2]
                    heappush(self._able, (self.clocks[arrived], arrived))
                self._barriers, self._at_barrier = goal, []
            self._pass_on()
        self.enter(rank)
        return self._mixed == goal

    def leave(self, rank: int, failure: BaseException | None = None) -> None:
        """Remove this worker. If it has failed, all others stop with `Abandoned`."""
        with self._lock:
            self._failure = self._failure or failure
            if self._turn == rank or self._failure is not None:
                self._pass_on()

    def _pass_on(self) -> None:
        """Give the turn to the worker with the earliest clock."""
        for rank in [rank for rank, (ready, _) in self._waits.items() if ready()]:
            if self._turn is not None:  # the worker that held the baton ended this wait, at the time of its own clock
                self.clocks[rank] = max(self.clocks[rank], self.clocks[self._turn])
            del self._waits[rank]
            heappush(self._able, (self.clocks[rank], rank))
        if self._able and self._failure is None:
            self._turn = heappop(self._able)[1]
            self._gates[self._turn].release()
            return
        waits = {rank: what for rank, (_, what) in self._waits.items()}
        waits |= dict.fromkeys(self._at_barrier, f"barrier {self._barriers + 1}")
        if waits and self._failure is None:
            self._failure = Deadlock("deadlock: " + "; ".join(f"worker {rank} waits for {waits[rank]}" for rank in sorted(waits)))
        self._turn = None
        if self._failure is not None:
            for gate in self._gates:  # of threads that sleep or are about to
                if gate.locked():
                    gate.release()


class SimulatedTransport(BaseTransport):
    """The transport of one simulated worker."""

    one_process = True
    single_machine_reason = "simulated workers live in one process: run the job without torchrun"
    settings = ("speed", "delay", "jitter")

    def __init__(self, baton: TurnScheduler, rank: int, pace: Pace | None = None, seed: int = 0) -> None:
        self._baton, self._rank, self._pace = baton, rank, pace or Pace()
        self._seed, self._delay_ns = seed, round(self._pace.delay_s * 1e9)
        self._free = False

    @classmethod
    def run_workers(cls, placement: Placement, run: RunWorker) -> None:
        """Run each worker in a thread, which runs while it has the baton. One worker alone runs in real time."""
        if len(placement.ranks) == 1:
            SharedTransport.run_workers(placement, run)
            return
        scheduler = TurnScheduler(len(placement.ranks), placement.on_turn)

        def join(rank: int) -> SimulatedTransport:
            return cls(scheduler, rank, Pace(*placement.settings(rank).values()), placement.seed)

        def run_by_turns(rank: int) -> None:
            failure: BaseException | None = None
            try:
                scheduler.enter(rank)
                failure = run(rank, lambda: join(rank))
            except Abandoned:
                pass
            finally:
                scheduler.leave(rank, failure)

        threads = [threading.Thread(target=run_by_turns, args=(rank,)) for rank in placement.ranks]
        for thread in threads:
            thread.start()
        scheduler.start()
        for thread in threads:
            thread.join()

    def clock(self) -> float:
        """Return this worker's simulated time in seconds."""
        return self._baton.clocks[self._rank] / 1e9

    def advance_clock(self, number: int) -> None:
        """Advance the clock by one local iteration; `number` counts this worker's iterations and seeds the jitter."""
        stretch = 1.0
        if self._pace.jitter:
            stretch = float(generator(self._seed, "jitter", self._rank, number).lognormal(0.0, self._pace.jitter))
        self._baton.clocks[self._rank] += round(ITERATION_NS / self._pace.speed * stretch)

    def message(self) -> None:
        """Advance the clock by one message, then let workers with earlier clocks run first."""
        self._baton.clocks[self._rank] += 0 if self._free else self._delay_ns
        self._baton.wait(self._rank, lambda: True, "a turn")

    def barrier(self, parts: Parts | None = None) -> None:
        """Return when every worker has called this. All workers see all parts: they share one process."""
        self._baton.clocks[self._rank] += 0 if self._free else self._delay_ns
        self._baton.arrive(self._rank)

    def meet(self, parts: Parts, mix: Mix, size: int) -> None:
        """Let the worker that arrives last mix for all: only one runs at a time."""
        self._baton.clocks[self._rank] += 0 if self._free else self._delay_ns
        if not self._baton.arrive(self._rank, partial(mix, whole=True)):
            mix(whole=False)
            self.local_barrier()

    def start(self, parts: Parts) -> Callable[[], None]:
        """Let the parts travel: at the end only what is left of their delay passes."""
        arrival = self._baton.clocks[self._rank] + (0 if self._free else self._delay_ns)

        def finish() -> None:
            self._baton.clocks[self._rank] = max(self._baton.clocks[self._rank], arrival)
            self._baton.arrive(self._rank)

        return finish

    def local_barrier(self) -> None:
        """Return when every worker has called this. It takes no simulated time."""
        self._baton.arrive(self._rank)

    def wait_for_peers(self, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready()` holds."""
        self._baton.wait(self._rank, ready, what)

    @contextmanager
    def free(self) -> Iterator[None]:
        """Stop the simulated clock meanwhile: the moment of a snapshot depends on the real machine."""
        self._free = True
        yield
        self._free = False

    @contextmanager
    def lock(self, index: int) -> Iterator[None]:
        """Do nothing: only the worker with the baton runs."""
        yield
