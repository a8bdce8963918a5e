"""The `simulated` transport: all workers live in one process and take turns.

Time is simulated. Each worker has its own clock, which its local iterations and messages advance. After a worker that waits
runs the worker with the earliest clock (on a tie, the lowest rank). So every run repeats the same events at the same
times, for every rule and every simulated speed. A deadlock raises an error that names the waits; processes would hang.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from partrain.comm.shared import SharedTransport
from partrain.comm.transport import BaseTransport, Placement
from partrain.comm.turns import TurnScheduler
from partrain.seeds import generator

if TYPE_CHECKING:
    from partrain.comm.group import Mix, Parts
    from partrain.comm.network import SimulatedNetwork
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


class SimulatedTransport(BaseTransport):
    """The transport of one simulated worker."""

    one_process = True
    single_machine_reason = "simulated workers live in one process: run the job without torchrun"
    settings = ("speed", "delay", "jitter")

    def __init__(
        self, baton: TurnScheduler, rank: int, pace: Pace | None = None, seed: int = 0, network: SimulatedNetwork | None = None
    ) -> None:
        self._baton, self._rank, self._pace, self._network = baton, rank, pace or Pace(), network
        self._seed = seed
        self._free = False
        self._participants, self._sits_out = len(baton.clocks), False

    @classmethod
    def run_workers(cls, placement: Placement, run: RunWorker) -> None:
        """Run the workers in turns. One worker alone runs in real time."""
        if len(placement.ranks) == 1:
            SharedTransport.run_workers(placement, run)
            return
        scheduler = TurnScheduler(placement.ranks, placement.on_turn)

        def join(rank: int) -> SimulatedTransport:
            return cls(scheduler, rank, Pace(*placement.settings(rank).values()), placement.seed, placement.network)

        scheduler.run(lambda rank: run(rank, partial(join, rank)))

    def begin_round(self, participants: int, *, sits_out: bool) -> None:
        """Note how many workers train in this round. A worker that sits it out sends nothing, so it delays no meeting."""
        self._participants, self._sits_out = participants, sits_out

    def clock(self) -> float:
        """Return this worker's simulated time in seconds."""
        return self._baton.clocks[self._rank] / 1e9

    def advance_clock(self, first: int, count: int) -> None:
        """Advance the clock by `count` local iterations; `first` is the number of this worker's iterations before, which seeds the jitter."""
        for number in range(first, first + count):
            stretch = 1.0
            if self._pace.jitter:
                stretch = float(generator(self._seed, "jitter", self._rank, number).lognormal(0.0, self._pace.jitter))
            self._baton.clocks[self._rank] += round(ITERATION_NS / self._pace.speed * stretch)

    @property
    def _delay_ns(self) -> int:
        """Nanoseconds that a message or a meeting takes this worker."""
        return 0 if self._free or self._sits_out else round(self._pace.delay_s * 1e9)

    def message(self, size: int = 0, *, central: bool = True) -> None:
        """Advance the clock by one message, then let workers with earlier clocks run first. Central ones share the center's link."""
        clocks, rank = self._baton.clocks, self._rank
        clocks[rank] += self._delay_ns
        if self._network and not self._free:
            seconds = self._network.transfer(size)
            waits = max(0, self._baton.link_free - clocks[rank]) if central else 0
            clocks[rank] += waits + round(seconds * 1e9)
            if central:
                self._baton.link_free = clocks[rank] - round(self._network.latency * 1e9)
        self._baton.wait(rank, lambda: True, "a turn")

    def _travel_ns(self, parts: Parts | None) -> int:
        """Return the nanoseconds in which the parts of all workers that train in this round travel to all others of them."""
        if self._network is None or self._free:
            return 0
        size = sum(part[self._rank].nbytes for part in parts()) if parts else 1
        return round(self._network.meeting(self._participants, size) * 1e9)

    def barrier(self, parts: Parts | None = None) -> None:
        """Return when every worker has called this. All workers see all parts: they share one process."""
        self._baton.clocks[self._rank] += self._delay_ns
        self._baton.arrive(self._rank, lasts=partial(self._travel_ns, parts))

    def replicate(self, parts: Parts) -> None:
        """Send the parts through the network, if there is one."""
        if self._network:
            self.barrier(parts)

    def meet(self, parts: Parts, mix: Mix, size: int) -> None:
        """Let the worker that arrives last mix for all: only one runs at a time."""
        self._baton.clocks[self._rank] += self._delay_ns
        if not self._baton.arrive(self._rank, partial(mix, whole=True), partial(self._travel_ns, parts)):
            mix(whole=False)
            self.local_barrier()

    def start(self, parts: Parts) -> Callable[[], None]:
        """Let the parts travel: at the end only what is left of their delay passes."""
        arrival = self._baton.clocks[self._rank] + self._delay_ns + self._travel_ns(parts)

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
