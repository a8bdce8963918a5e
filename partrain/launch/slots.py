"""Which snapshot goes where: slots are granted to the workers, filled, and handed to the writer one at a time."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from partrain.comm.arena import SLOTS, Arena
from partrain.launch.writer import BUSY_SHARE, LONGEST_REST_S

FIRST_S = 1.0
"""A coalescing writer begins with a rest: so little training is sooner repeated than kept, and its start is when cores are scarce."""
ROUND_SHARE = 0.05
"""Where writing takes no more than this share of a round's time, every round is written."""


@dataclass(frozen=True)
class Offer:
    """A filled slot."""

    slot: int
    progress: dict[str, Any]

    @property
    def round(self) -> int:
        return int(self.progress["round"])


class Slots:
    """The state of the three slots. Only the coordinator grants; worker 0 takes a grant by setting it to zero."""

    def __init__(self, arena: Arena, coalesce: bool) -> None:
        self._arena = arena
        self._coalesce = coalesce
        self._free = list(range(1, SLOTS))
        self._waiting: list[Offer] = []
        self._writing: Offer | None = None
        self._next_s = math.inf
        """Not before this moment does a coalescing writer start again."""
        arena.put("granted", 1)

    def begin(self) -> None:
        """Training begins."""
        self._next_s = time.monotonic() + (FIRST_S if self._coalesce else 0.0)

    def offered(self, offer: Offer) -> None:
        """Workers filled the granted slot. Of those that wait, the newest and the best so far are worth keeping."""
        best = offer.progress["best_round"]
        for old in [old for old in self._waiting if old.round != best]:
            self._waiting.remove(old)
            self._free.append(old.slot)
        self._waiting.append(offer)
        self._arena.put("wanted", 0)
        self._grant()

    def next(self, at_once: bool = False) -> Offer | None:
        """The snapshot to write now, if the writer is free and may work."""
        if self._writing or not self._waiting or (self._coalesce and not at_once and time.monotonic() < self._next_s):
            return None
        self._writing = self._waiting.pop(0)
        return self._writing

    def written(self, round: int, busy: float, pace: float) -> None:
        """The writer is free again; it rests in proportion to the seconds of processor time it took, where that is much of a round's `pace`."""
        assert self._writing is not None
        self._free.append(self._writing.slot)
        self._writing = None
        rests = self._coalesce and busy > ROUND_SHARE * pace
        self._next_s = time.monotonic() + (min(busy / BUSY_SHARE, LONGEST_REST_S) if rests else 0.0)
        self._arena.put("committed", max(round, self._arena.get("committed")))
        self._grant()

    def tick(self) -> None:
        """Welcome a snapshot when the writer could take it."""
        if not self._waiting and not self._writing and time.monotonic() >= self._next_s:
            self._arena.put("wanted", 1)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is being written."""
        return not self._waiting and self._writing is None

    def _grant(self) -> None:
        if self._free and self._arena.get("granted") == 0:
            self._arena.put("granted", self._free.pop(0) + 1)
