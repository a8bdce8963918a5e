"""The `shared` transport where a process has several workers (`replicas`): its workers take turns, and its last one meets the other processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from partrain.comm.shared import SharedTransport
from partrain.comm.transport import Placement
from partrain.comm.turns import TurnScheduler

if TYPE_CHECKING:
    from partrain.comm.transport import RunWorker

NAP_S = 100e-6
"""Time between two checks of the other processes while no worker of this process can continue."""


class ReplicaTransport(SharedTransport):
    """One of several workers of a process."""

    def __init__(self, placement: Placement, rank: int, turns: TurnScheduler) -> None:
        super().__init__(placement.arena, rank, placement.members)
        self._turns = turns
        self._mixes_for_all = len(placement.ranks) == len(placement.members)

    @classmethod
    def run_workers(cls, placement: Placement, run: RunWorker) -> None:
        """Run the workers of a process in turns."""
        alone = len(placement.ranks) == len(placement.members)

        def wait_for_other_processes() -> bool:
            time.sleep(0 if alone else NAP_S)
            return not alone

        turns = TurnScheduler(placement.ranks, on_idle=wait_for_other_processes)
        turns.run(lambda rank: run(rank, partial(cls, placement, rank, turns)))

    def clock(self) -> float:
        """Return the seconds of this worker's turns, and of waiting for other processes."""
        return self._turns.seconds(self._rank)

    def run_clock(self) -> float:
        """Return the machine's time in seconds."""
        return super().clock()

    def _await_end(self) -> None:
        """Wait for the other processes. All workers of this one wait with it: it is no turn."""
        began = super().clock()
        super()._await_end()
        self._turns.add_idle(super().clock() - began)

    def _pass(self, finish: Callable[[], None]) -> None:
        """Wait for the other workers of the process; the last of them meets the other processes."""
        self._turns.arrive(self._rank, finish)

    def wait_for_peers(self, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready()` holds."""
        self._turns.wait(self._rank, ready, what)

    def message(self, size: int = 0, *, central: bool = True) -> None:
        """Give each other worker of the process a turn before the next message."""
        self._turns.clocks[self._rank] += 1
        self._turns.wait(self._rank, lambda: True, "a turn")
