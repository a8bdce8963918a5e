"""The slots for snapshots: granted to the workers, filled, handed to the writer one at a time, and kept in case a worker is lost."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from partrain.comm.arena import ASKED, IF_LONG, LONG_S, SLOTS, Arena
from partrain.launch.checkpoint_writer import BUSY_SHARE, LONGEST_REST_S

FIRST_S = 1.0
"""A coalescing writer rests first, unless a round is long. Little training can be lost by then, and cores are scarce at the start."""
ROUND_SHARE = 0.1
"""Every round is written if writing takes at most this share of a round: with small networks, rounds of LONG_S and more."""


@dataclass(frozen=True)
class PendingSnapshot:
    """A filled slot."""

    slot: int
    progress: dict[str, Any]
    durable: bool = True
    """True if it is to become a file."""
    seconds: float = 0.0
    """Training seconds up to its round."""
    reason: str | None = None
    """Reason for the end of training, if its round was the last."""

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
        """The slot that workers fill now or next."""
        self._waiting: list[PendingSnapshot] = []
        self.writing: PendingSnapshot | None = None
        """The snapshot that the writer has."""
        self._next_s = math.inf
        """A coalescing writer rests until this moment."""
        self._busy = 0.0
        """CPU time of the newest file in seconds; 0 while there is none."""
        self._hurried = False
        """The user asked for a snapshot that is not being written yet, or those that wait are the last."""
        self._grant()

    def start(self, restored: PendingSnapshot | None = None) -> None:
        """Start asking for snapshots: training begins, or goes on from a `restored` state."""
        if restored:
            self.newest = restored
            self.grant_anew()
        self._next_s = time.monotonic() + (FIRST_S if self._coalesce else 0.0)
        if not self._hurried:
            self._arena.put("wanted", IF_LONG)

    def keep_newest(self) -> None:
        """Have the newest copy written, if it was not meant to be."""
        if self.newest and not self.newest.durable:
            self._waiting.append(self.newest)

    def grant_anew(self) -> None:
        """Grant a slot, whatever was granted: workers that began to fill it are dead."""
        self._granted = None
        self._grant()

    def offer(self, pending: PendingSnapshot, pace: float) -> None:
        """Take the granted slot, which workers filled in a round of `pace` seconds. Of waiting snapshots the newest and the best are
        kept."""
        self.newest, self._granted = pending, None
        if pending.durable:
            self._wait(pending, pace)
        self._grant()

    def _wait(self, pending: PendingSnapshot, pace: float) -> None:
        """Let a snapshot wait for the writer."""
        if pace >= LONG_S and not self._busy:
            self._next_s = min(self._next_s, time.monotonic())
        best = pending.progress["best_round"]
        self._waiting = [*(old for old in self._waiting if old.round == best), pending]
        self._arena.put("wanted", 0)

    def next(self, *, at_once: bool = False) -> PendingSnapshot | None:
        """Give the snapshot to write now, if the writer is free and not resting."""
        rests = self._coalesce and not at_once and not self._hurried and time.monotonic() < self._next_s
        if self.writing or not self._waiting or rests:
            return None
        self.writing = self._waiting.pop(0)
        self._hurried = self._hurried and (bool(self._waiting) or self._arena.get("wanted") == ASKED)
        return self.writing

    def written(self, round_number: int, busy: float, pace: float) -> None:
        """Note that a file is on disk, which took `busy` seconds of CPU time, and let the writer rest if that is much of a round's `pace`.

        The first file takes twice as long as others, and now and then one takes many times as long. Among long rounds, where that
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
        """Have a snapshot of the next round taken, and let the writer not rest before it writes that."""
        self._hurried = True
        self._arena.put("wanted", ASKED)

    def hasten(self) -> None:
        """Let the writer not rest before it has written those that wait."""
        self._hurried = True

    def poll(self) -> None:
        """Ask for a snapshot when the writer could take it."""
        if not self._hurried and not self._waiting and not self.writing and time.monotonic() >= self._next_s:
            self._arena.put("wanted", 1)

    @property
    def idle(self) -> bool:
        """True if no snapshot waits or is being written."""
        return not self._waiting and self.writing is None

    def _grant(self) -> None:
        if self._granted is not None:
            return
        used = {holder.slot for holder in (*self._waiting, self.writing, self.newest) if holder}
        self._granted = next((slot for slot in range(SLOTS) if slot not in used), None)
        self._arena.put_slot("granted", self._granted)
