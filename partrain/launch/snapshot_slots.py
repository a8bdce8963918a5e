"""The slots for snapshots: granted to the workers, filled, passed to the writer one at a time, and kept for the loss of a worker."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from partrain.comm.arena import ASKED, IF_LONG, LONG_S, SLOTS, Arena
from partrain.launch.checkpoint_writer import BUSY_SHARE, LONGEST_REST_S

FIRST_S = 1.0
"""Seconds that a coalescing writer rests first, unless a round is long: little training can be lost yet, and cores are scarce at first."""
ROUND_SHARE = 0.1
"""Largest share of a round that writing may take for every round to be written: with small networks, in rounds of LONG_S and more."""


@dataclass(frozen=True)
class PendingSnapshot:
    """A filled slot."""

    slot: int
    progress: dict[str, Any]
    durable: bool = True
    """True if it will become a file."""
    seconds: float = 0.0
    """Training seconds up to its round."""
    reason: str | None = None
    """Reason for the end of training, if its round was the last one."""

    @property
    def round(self) -> int:
        return int(self.progress["round"])


class SnapshotSlots:
    """The state of the slots. Only the coordinator grants; worker 0 takes a grant by setting it to zero."""

    def __init__(self, arena: Arena, *, coalesce: bool) -> None:
        self._arena = arena
        self._coalesce = coalesce
        self.newest: PendingSnapshot | None = None
        """The newest whole copy of the training state."""
        self._granted: int | None = None
        """The slot for workers to fill now or next."""
        self._waiting: list[PendingSnapshot] = []
        self.writing: PendingSnapshot | None = None
        """The snapshot that the writer is writing."""
        self._next_s = math.inf
        """Moment until which a coalescing writer rests."""
        self._busy = 0.0
        """CPU seconds of the newest file; 0 without one."""
        self._hurried = False
        """True if the user asked for a snapshot that is not yet being written, or if the waiting snapshots are the last."""
        self._grant()

    def start(self, restored: PendingSnapshot | None = None) -> None:
        """Start asking for snapshots: training begins, or continues from a `restored` state."""
        if restored:
            self.newest = restored
            self.grant_anew()
        self._next_s = time.monotonic() + (FIRST_S if self._coalesce else 0.0)
        if not self._hurried:
            self._arena.put("wanted", IF_LONG)

    def keep_newest(self) -> None:
        """Schedule the newest copy for writing if it was not meant for a file."""
        if self.newest and not self.newest.durable:
            self._waiting.append(self.newest)

    def grant_anew(self) -> None:
        """Grant a slot despite any earlier grant: the workers that began to fill that slot are dead."""
        self._granted = None
        self._grant()

    def offer(self, pending: PendingSnapshot, pace: float) -> None:
        """Take the granted slot, filled by workers in a round of `pace` seconds. Keep the newest and the best of the waiting snapshots."""
        self.newest, self._granted = pending, None
        if pending.durable:
            self._wait(pending, pace)
        self._grant()

    def _wait(self, pending: PendingSnapshot, pace: float) -> None:
        """Queue a snapshot for the writer."""
        if pace >= LONG_S and not self._busy:
            self._next_s = min(self._next_s, time.monotonic())
        best = pending.progress["best_round"]
        self._waiting = [*(old for old in self._waiting if old.round == best), pending]
        self._arena.put("wanted", 0)

    def next(self, *, at_once: bool = False) -> PendingSnapshot | None:
        """Return the snapshot to write now, if the writer is free and not resting."""
        rests = self._coalesce and not at_once and not self._hurried and time.monotonic() < self._next_s
        if self.writing or not self._waiting or rests:
            return None
        self.writing = self._waiting.pop(0)
        self._hurried = self._hurried and (bool(self._waiting) or self._arena.get("wanted") == ASKED)
        return self.writing

    def written(self, round_number: int, busy: float, pace: float) -> None:
        """Record a file on disk, which took `busy` CPU seconds, and let the writer rest if that is much of a round's `pace`.

        The first file takes twice as long as others, and sometimes a file takes many times as long. In long rounds, where that
        matters little, the shorter of two files counts.
        """
        assert self.writing is not None
        self.writing = None
        usual = min(busy, self._busy) if pace >= LONG_S else busy
        rests = self._coalesce and usual > ROUND_SHARE * pace
        self._next_s = time.monotonic() + (min(usual / BUSY_SHARE, LONGEST_REST_S) if rests else 0.0)
        self._busy = busy
        self._arena.put("committed", max(round_number, self._arena.get("committed")))
        self._grant()

    def hurry(self) -> None:
        """Request a snapshot of the next round, and let the writer write it without rest."""
        self._hurried = True
        self._arena.put("wanted", ASKED)

    def hasten(self) -> None:
        """Let the writer write the waiting snapshots without rest."""
        self._hurried = True

    def poll(self) -> None:
        """Ask for a snapshot if the writer could take one."""
        if not self._hurried and not self._waiting and not self.writing and time.monotonic() >= self._next_s:
            self._arena.put("wanted", 1)

    @property
    def idle(self) -> bool:
        """True if no snapshot is waiting or being written."""
        return not self._waiting and self.writing is None

    def _grant(self) -> None:
        if self._granted is not None:
            return
        used = {holder.slot for holder in (*self._waiting, self.writing, self.newest) if holder}
        self._granted = next((slot for slot in range(SLOTS) if slot not in used), None)
        self._arena.put_slot("granted", self._granted)
