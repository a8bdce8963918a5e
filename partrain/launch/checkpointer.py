"""From a round's end to a file, beside the training: the slots that workers fill, and the writer that empties them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from multiprocessing.connection import Connection, wait
from typing import Any

from partrain.comm.arena import Arena
from partrain.errors import Stalled
from partrain.launch.checkpoint_writer import CheckpointContext, Writer
from partrain.launch.round_records import EventSink, RoundRecords
from partrain.launch.signals import Signals, StoppedNow
from partrain.launch.snapshot_slots import PendingSnapshot, SnapshotSlots
from partrain.launch.stall_timer import LEAST_S, TICK_S, StallTimer

SLOW_S = 0.5
"""A user who wants the run to end is told what it waits for after so long."""


class Checkpointer:
    """The coordinator's hold on both. Where there is no run folder, which only one machine has, nothing is ever written."""

    def __init__(
        self, arena: Arena, rounds: RoundRecords, coalesce: bool, stall_seconds: float, hear: EventSink, tick: Callable[[], None]
    ) -> None:
        self._rounds, self._hear, self._tick = rounds, hear, tick
        self._slots = SnapshotSlots(arena, coalesce)
        self._writer: Writer | None = None
        self._silence, self._stall_seconds = StallTimer(), stall_seconds

    def open(self, frame: CheckpointContext) -> None:
        """Start the writer."""
        self._writer = Writer(frame)

    def begin(self) -> None:
        """Training begins."""
        self._slots.begin()

    @property
    def waited(self) -> list[Connection]:
        """What a file that is being written will be heard from; nothing if none is."""
        return [self._writer.pipe] if self._writer and self._writer.busy else []

    def hear_of(self, ready: Collection[Any]) -> None:
        """A file may be on disk."""
        if self._writer and self._writer.pipe in ready:
            answer = self._writer.answer()
            self._slots.written(answer["round"], answer.pop("busy"), self._rounds.pace)
            self._hear({"event": "commit", "t": time.time(), **answer})

    def offered(self, slot: int, progress: dict[str, Any]) -> None:
        """Workers filled a slot."""
        self._slots.offered(PendingSnapshot(slot, progress), self._rounds.pace)
        self._write_next()

    def go_on(self) -> None:
        """Time goes by: another snapshot may be welcome, and one that waits be written."""
        self._slots.tick()
        self._write_next()

    def flush(self, signals: Signals, slow: Callable[[], None]) -> None:
        """Everything offered reaches the disk, unless the user will not wait for it: then the file before it stays the newest.

        `slow` is called once, if a user who asked for the end has to wait.
        """
        began: float | None = time.monotonic()
        while self._writer and not self._slots.idle and not self._writer.broken:
            self._write_next(at_once=True)
            ready = wait([self._writer.pipe, signals.pipe], TICK_S)
            if self._writer.pipe in ready:
                self.hear_of(ready)
            elif signals.pipe in ready:
                signals.heed()
                if signals.count > 1:
                    self._writer.broken = True
                    raise StoppedNow
            elif signals.count and began and time.monotonic() - began > SLOW_S:
                began = None
                slow()
            self.check()
            self._tick()

    def check(self) -> None:
        """A file is waited for, and the writer does nothing: the disk is stuck."""
        limit = max(self._stall_seconds, LEAST_S)
        if self._writer and self._silence.seconds(self._writer.life() if self._writer.busy else None) > limit:
            self._writer.broken = True
            why = f"the checkpoint writer has done nothing for {limit:g} s: the disk does not answer"
            raise Stalled(f"{why}; raise [transport] stall_seconds if it may take that long")

    def close(self) -> None:
        """End the writer."""
        if self._writer:
            self._writer.close()

    def _write_next(self, at_once: bool = False) -> None:
        offer = self._slots.next(at_once) if self._writer else None
        if offer and self._writer:
            self._tick()  # events are on disk before a file that counts on them
            self._writer.write(offer.slot, offer.progress, self._rounds.rows)
            self._rounds.rows = []
