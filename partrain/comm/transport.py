"""The base of all transports: the facts that other folders ask for, and the operations that one machine does not need."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.comm.arena import Arena
    from partrain.comm.group import Mix, Parts, Transport
    from partrain.comm.machine import Machine
    from partrain.comm.network import SimulatedNetwork

    RunWorker = Callable[[int, Callable[[], Transport]], BaseException | None]
    """Function that runs a worker of this process: its rank, a function that joins the others, its failure."""


class Deadlock(Exception):
    """No worker can continue. The message names the wait of each."""


class Abandoned(Exception):
    """Another worker failed, so this one stops."""


@dataclass(frozen=True)
class Placement:
    """The workers of one process, and everything a transport needs to connect them to the others."""

    arena: Arena
    ranks: tuple[int, ...]
    """The workers of this process."""
    members: range
    """The workers of this machine."""
    machine: Machine | None
    """This machine, if there are several."""
    devices: Sequence[str]
    """Device of each worker of the run, by rank."""
    on_turn: Callable[[int], None]
    """Function that prepares the process for a worker: workers of one process call it before each of their turns."""
    settings: Callable[[int], dict[str, float]]
    """Function that returns a worker's values for the transport's own keys in [transport]."""
    seed: int
    exact: bool
    """Each machine sums over all workers, not only its own."""
    network: SimulatedNetwork | None = None
    """The network of simulated workers."""


class BaseTransport:
    """The code that transports share. A subclass adds the operations of `group.Transport` that are missing here."""

    one_process: ClassVar[bool] = False
    """All workers of a machine live in one process and take turns. Otherwise each has its own process."""
    single_machine_reason: ClassVar[str] = ""
    """The reason why this transport cannot connect several machines; "" if it can."""
    settings: ClassVar[tuple[str, ...]] = ()
    """Keys of [transport] that only this transport reads. Each has one number for all workers, or one for each."""

    @classmethod
    def join(cls, placement: Placement, rank: int) -> Transport:
        """Connect a worker to the others."""
        raise NotImplementedError

    @classmethod
    def run_workers(cls, placement: Placement, run: RunWorker) -> None:
        """Run the workers of this process to their end: `run(rank, join)` runs one and returns its failure."""
        for rank in placement.ranks:
            run(rank, partial(cls.join, placement, rank))

    def clock(self) -> float:
        """Return the worker's time in seconds, without the turns of other workers of its process."""
        raise NotImplementedError

    def run_clock(self) -> float:
        """Return the run's time in seconds: that of the worker, unless others of its process take turns in real time."""
        return self.clock()

    def begin_round(self, participants: int, *, sits_out: bool) -> None:
        """Do nothing: only a simulated network asks how many workers train in a round, and whether this one does."""

    def advance_clock(self, first: int, count: int) -> None:
        """Do nothing: the machine's clock runs by itself."""

    def local_barrier(self) -> None:
        """Return when every worker of this machine has called this."""
        raise NotImplementedError

    def barrier(self, parts: Parts | None = None) -> None:
        """Return when every worker has called this and can read the `parts` of all."""
        raise NotImplementedError

    def start(self, parts: Parts) -> Callable[[], None]:
        """Leave all work to the returned function: nothing has to travel between the workers of one machine."""
        return partial(self.barrier, parts)

    def meet(self, parts: Parts, mix: Mix, size: int) -> None:
        """Let every worker mix its share, once all can read the `parts` of all."""
        self.barrier(parts)
        mix(whole=False)
        self.local_barrier()

    def replicate(self, parts: Parts) -> None:
        """Do nothing: there is one machine."""

    def broadcast_bytes(self, whole: memoryview) -> None:
        """Do nothing: there is one machine."""

    def all_reduce_sum(self, x: Tensor) -> None:
        """Only wait for the workers: one machine has nothing to add."""
        self.local_barrier()

    def wait_until(self, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready()` holds. It polls, as such events are rare. Workers that take turns keep theirs meanwhile."""
        while not ready():
            time.sleep(100e-6)
