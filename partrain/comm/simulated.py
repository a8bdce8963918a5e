"""Waiting between workers that live in one process: one runs at a time, and passing the baton is the only way to wait.

The order is fixed (the lowest rank that can go on), so a run repeats to the bit whatever the rule, and a deadlock is named
where processes would hang.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Deadlock(Exception):
    """No worker can go on; the message says what each waits for."""


class Abandoned(Exception):
    """Another worker failed; this one has nothing left to do."""


class Baton:
    """Lets N threads take turns."""

    def __init__(self, size: int) -> None:
        self._condition = threading.Condition()
        self._waits: list[tuple[Callable[[], bool], str] | None] = [(lambda: True, "the start")] * size
        self._turn: int | None = None
        self._failure: BaseException | None = None
        self._arrived = [0] * size

    def start(self) -> None:
        """Hand the baton to the first worker, once all threads exist."""
        with self._condition:
            self._pass_on()

    def wait(self, rank: int, ready: Callable[[], bool], what: str) -> None:
        """Give the baton away until `ready()` holds and it is this worker's turn."""
        with self._condition:
            self._waits[rank] = (ready, what)
            if self._turn == rank:
                self._pass_on()
            self._condition.wait_for(lambda: self._turn == rank or self._failure is not None)
            if self._failure is not None:
                raise Abandoned from self._failure

    def leave(self, rank: int, failure: BaseException | None = None) -> None:
        """This worker is done, or has failed and takes the others with it."""
        with self._condition:
            self._waits[rank] = None
            self._failure = self._failure or failure
            if self._turn == rank:
                self._pass_on()
            self._condition.notify_all()

    def arrive(self, rank: int) -> None:
        """Barrier."""
        self._arrived[rank] += 1
        goal = self._arrived[rank]
        self.wait(rank, lambda: min(self._arrived) >= goal, f"barrier {goal}")

    def _pass_on(self) -> None:
        able = [rank for rank, entry in enumerate(self._waits) if entry is not None and entry[0]()]
        self._turn = able[0] if able else None
        stuck = [f"worker {rank} waits for {entry[1]}" for rank, entry in enumerate(self._waits) if entry is not None]
        if not able and stuck and self._failure is None:
            self._failure = Deadlock("deadlock: " + "; ".join(stuck))
        self._condition.notify_all()


class Simulated:
    """One worker's hold on the baton."""

    def __init__(self, baton: Baton, rank: int) -> None:
        self._baton = baton
        self._rank = rank

    def barrier(self) -> None:
        """Return when every worker has come here."""
        self._baton.arrive(self._rank)

    def until(self, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready()` holds: things outside the group (the coordinator) are waited for without the baton moving."""
        import time

        while not ready():
            time.sleep(100e-6)
