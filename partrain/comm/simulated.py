"""Waiting between workers that live in one process: one runs at a time, and passing the baton is the only way to wait.

Time is simulated: each worker has a clock of its own, which local iterations and messages move on, and the baton goes to the
worker whose clock is behind (then to the lowest rank). So what happens, and when, is the same in every run, whatever the rule and
however slow a worker is said to be; and a deadlock is named where processes would hang.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from partrain.seeds import generator

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.comm.group import Parts

ITERATION_NS = 1_000_000
"""A local iteration of a worker of speed 1, in simulated nanoseconds: whole numbers, so that no tie is broken by rounding."""


TURN = "a turn"
"""What a worker waits for that could go on, but for others whose clocks are behind."""


class Deadlock(Exception):
    """No worker can go on; the message says what each waits for."""


class Abandoned(Exception):
    """Another worker failed; this one has nothing left to do."""


@dataclass(frozen=True)
class Pace:
    """How fast a simulated worker is."""

    speed: float = 1.0
    delay_s: float = 0.0
    """Of each message, and of each meeting with the others."""
    jitter: float = 0.0
    """Spread of an iteration's time: it is multiplied by exp(jitter * z), z drawn from the normal distribution."""


class TurnScheduler:
    """Lets N threads take turns. Each sleeps at a gate of its own: only the one whose turn it is wakes up."""

    def __init__(self, size: int, took: Callable[[int], None] = lambda rank: None) -> None:
        """`took`: told by each worker's thread that it goes on."""
        self._took = took
        self._lock = threading.Lock()
        self._gates = [threading.Lock() for _ in range(size)]
        for gate in self._gates:
            gate.acquire()
        self._waits: list[tuple[Callable[[], bool], str] | None] = [(lambda: True, TURN)] * size
        self._turn: int | None = None
        self._failure: BaseException | None = None
        self._arrived, self._whole = [0] * size, 0
        """How many barriers each has come to; the newest to which all have."""
        self._barriers, self._met = 0, [0, 0]
        """Number of the newest barrier; when the last of those that have come came, for it and the one before."""
        self.clocks = [0] * size
        """Simulated nanoseconds of each worker."""

    def start(self) -> None:
        """Hand the baton to the first worker, once all threads exist."""
        with self._lock:
            self._pass_on()

    def wait(self, rank: int, ready: Callable[[], bool], what: str) -> None:
        """Give the baton away until `ready()` holds and it is this worker's turn.

        Whoever has to wait goes on no earlier than the moment at which another worker ended the wait.
        """
        with self._lock:
            self._waits[rank] = (ready, TURN if ready() else what)
            if self._turn == rank:
                self._pass_on()
            failed = self._failure is not None
        if not failed:
            self._gates[rank].acquire()
        if self._failure is not None:
            raise Abandoned from self._failure
        self._took(rank)

    def leave(self, rank: int, failure: BaseException | None = None) -> None:
        """This worker is done, or has failed and takes the others with it."""
        with self._lock:
            self._waits[rank] = None
            self._failure = self._failure or failure
            if self._turn == rank:
                self._pass_on()
            elif self._failure is not None:
                self._open(self._gates)

    def arrive(self, rank: int) -> None:
        """Barrier: it ends for all at the moment at which the last one comes."""
        self._arrived[rank] += 1
        goal = self._arrived[rank]
        first = goal > self._barriers
        self._met[goal % 2] = self.clocks[rank] if first else max(self._met[goal % 2], self.clocks[rank])
        self._barriers, self._whole = max(self._barriers, goal), min(self._arrived)
        self.wait(rank, lambda: self._whole >= goal, f"barrier {goal}")
        self.clocks[rank] = max(self.clocks[rank], self._met[goal % 2])

    def _pass_on(self) -> None:
        held = self._turn
        able = [rank for rank, entry in enumerate(self._waits) if entry is not None and entry[0]()]
        for rank in able:
            entry = self._waits[rank]
            assert entry is not None
            if held is not None and rank != held and entry[1] != TURN:
                # What it waited for has come about now, by the clock of who held the baton.
                self.clocks[rank] = max(self.clocks[rank], self.clocks[held])
                self._waits[rank] = (entry[0], TURN)
        self._turn = min(able, key=lambda rank: (self.clocks[rank], rank)) if able else None
        if not able:
            stuck = [f"worker {rank} waits for {entry[1]}" for rank, entry in enumerate(self._waits) if entry is not None]
            if stuck and self._failure is None:
                self._failure = Deadlock("deadlock: " + "; ".join(stuck))
        if self._failure is not None:
            self._open(self._gates)
        elif self._turn is not None:
            self._open([self._gates[self._turn]])

    def _open(self, gates: Sequence[threading.Lock]) -> None:
        """Let those through who sleep there, or are about to."""
        for gate in gates:
            if gate.locked():
                gate.release()


class SimulatedTransport:
    """One worker's hold on the baton."""

    def __init__(self, baton: TurnScheduler, rank: int, pace: Pace | None = None, seed: int = 0) -> None:
        self._baton, self._rank, self._pace = baton, rank, pace or Pace()
        self._seed, self._delay_ns = seed, round(self._pace.delay_s * 1e9)
        self._free = False

    def clock(self) -> float:
        """Simulated seconds of this worker."""
        return self._baton.clocks[self._rank] / 1e9

    def advance_clock(self, number: int) -> None:
        """A local iteration is done, the worker's so-many-th of all."""
        stretch = 1.0
        if self._pace.jitter:
            stretch = float(generator(self._seed, "jitter", self._rank, number).lognormal(0.0, self._pace.jitter))
        self._baton.clocks[self._rank] += round(ITERATION_NS / self._pace.speed * stretch)

    def message(self) -> None:
        """A message takes its time; then those act first whose clocks are behind."""
        self._baton.clocks[self._rank] += 0 if self._free else self._delay_ns
        self._baton.wait(self._rank, lambda: True, TURN)

    def barrier(self, parts: Parts | None = None) -> None:
        """Return when every worker has come here. All parts can be seen by all: they live in one process."""
        self._baton.clocks[self._rank] += 0 if self._free else self._delay_ns
        self._baton.arrive(self._rank)

    def local_barrier(self) -> None:
        """Return when every worker has come here; this costs no simulated time."""
        self._baton.arrive(self._rank)

    def replicate(self, parts: Parts) -> None:
        """Nothing to do."""

    def broadcast_bytes(self, whole: memoryview) -> None:
        """Nothing to do."""

    def all_reduce_sum(self, x: Tensor) -> None:
        """There is nothing to add in one process."""
        self.local_barrier()

    def wait_until(self, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready()` holds: the coordinator is waited for without the baton moving."""
        while not ready():
            time.sleep(100e-6)

    def wait_for_peers(self, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready()` holds."""
        self._baton.wait(self._rank, ready, what)

    @contextmanager
    def free(self) -> Iterator[None]:
        """What is done meanwhile takes no simulated time: when a snapshot is taken depends on the machine."""
        self._free = True
        yield
        self._free = False

    @contextmanager
    def lock(self, index: int) -> Iterator[None]:
        """Whoever has the baton is alone everywhere."""
        yield
