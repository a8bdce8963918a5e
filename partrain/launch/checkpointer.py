"""Checkpoints during training: the slots that workers fill with snapshots, and the writer that empties them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from partrain.comm.arena import Arena
from partrain.errors import Stalled
from partrain.launch.checkpoint_writer import CheckpointContext, Writer, WriterLost
from partrain.launch.context import RunContext
from partrain.launch.round_records import RoundRecords
from partrain.launch.signals import StoppedNow
from partrain.launch.snapshot_slots import PendingSnapshot, SnapshotSlots
from partrain.launch.stall_timer import POLL_S, STARTUP_LIMIT_S, StallTimer
from partrain.record.events import CommitEvent, ReplayEvent

HASTE_S = 5.0
"""Seconds without progress after which a user who asked twice stops waiting for the writer."""
SLOW_FLUSH_S = 0.5
"""Seconds after which a user who asked the run to stop learns the reason for the wait."""


class Checkpointer:
    """The coordinator's side of slots and writer. Only the machine with the run folder writes."""

    def __init__(self, arena: Arena, rounds: RoundRecords, *, coalesce: bool, stall_seconds: float, context: RunContext) -> None:
        self._rounds, self._context = rounds, context
        self._slots = SnapshotSlots(arena, coalesce=coalesce)
        self._writer: Writer | None = None
        self._stall_timer, self._stall_seconds = StallTimer(), stall_seconds
        self._last_since = math.inf
        """Moment from which only the last files are missing."""

    def open(self, checkpoints: CheckpointContext, on_lost: Callable[[WriterLost], None]) -> None:
        """Start the writer process. If it dies, call `on_lost` and, unless that raises, start another writer."""
        self._checkpoints, self._on_lost = checkpoints, on_lost
        self._writer = Writer(checkpoints)

    def start(self, restored: PendingSnapshot | None = None) -> None:
        """Start asking for snapshots: training begins, or continues from a `restored` state."""
        self._slots.start(restored)

    @property
    def newest(self) -> PendingSnapshot | None:
        """The newest whole copy of the training state."""
        return self._slots.newest

    def keep_newest(self) -> None:
        """Make the writer write the newest copy of the training state."""
        self._slots.keep_newest()

    def restart(self) -> PendingSnapshot | None:
        """Continue with new workers; return the newest whole copy of the training state, if any."""
        self._slots.grant_anew()
        return self._slots.newest

    @property
    def waitables(self) -> list[Connection]:
        """The writer's pipe while it writes a file."""
        return [self._writer.pipe] if self._writer and self._writer.busy else []

    def on_writer_ready(self, ready: Collection[Any]) -> None:
        """Handle the writer's answer, if ready: a file is on disk."""
        if self._writer and self._writer.pipe in ready:
            try:
                answer = self._writer.answer()
            except WriterLost as lost:
                assert self._slots.writing
                return self._write(self._slots.writing, (), lost)
            self._slots.written(answer["round"], answer.pop("busy"), self._rounds.pace)
            self._context.emit(CommitEvent(t=self._context.now(), **answer))
        return None

    def offer(self, pending: PendingSnapshot) -> None:
        """Take a slot that workers have filled."""
        self._slots.offer(pending, self._rounds.pace)
        self._write_next()

    def commit_now(self) -> None:
        """Request a snapshot of the next round and write it, even if none is due or the writer would rest."""
        self._slots.hurry()

    def hasten(self) -> None:
        """Let the writer write the waiting snapshots, the last ones, without rest."""
        self._last_since = time.monotonic()
        self._slots.hasten()
        self._write_next()

    def poll(self, on_slow: Callable[[], None]) -> None:
        """If it is time, ask for another snapshot and write a waiting one. `on_slow`: as in `flush`."""
        self._slots.poll()
        self._write_next()
        self._note_slowness(on_slow)

    def flush(self, on_slow: Callable[[], None]) -> None:
        """Write all offered snapshots. A second request to stop ends this; the newest complete file then remains.

        Call `on_slow` once if a user who asked the run to stop has to wait.
        """
        signals = self._context.signals
        self._last_since = time.monotonic()
        while self._writer and not self._slots.idle and not self._writer.broken:
            self._write_next(at_once=True)
            ready = wait([self._writer.pipe, signals.pipe], POLL_S)
            if self._writer.pipe in ready:
                self.on_writer_ready(ready)
            elif signals.pipe in ready:
                signals.heed()
                if signals.count > 1:
                    self._writer.broken = True
                    raise StoppedNow
            else:
                self._note_slowness(on_slow)
            self.check_stall()
            self._context.poll()

    def _note_slowness(self, on_slow: Callable[[], None]) -> None:
        slow = self._context.signals.count and not self._slots.idle and time.monotonic() - self._last_since > SLOW_FLUSH_S
        if slow:
            self._last_since = math.inf
            on_slow()

    def check_stall(self) -> None:
        """Raise Stalled if the writer makes no progress on a file: the disk is stuck."""
        limit = HASTE_S if self._context.signals.count > 1 else max(self._stall_seconds, STARTUP_LIMIT_S)
        if self._writer and self._stall_timer.idle_seconds(self._writer.cpu_time() if self._writer.busy else None) > limit:
            self._writer.broken = True
            problem = f"the checkpoint writer has done nothing for {limit:g} s: the disk does not answer"
            raise Stalled(f"{problem}; raise [transport] stall_seconds if it may take that long")

    def close(self) -> None:
        """Stop the writer process."""
        if self._writer:
            self._writer.close()

    def _write_next(self, *, at_once: bool = False) -> None:
        pending = self._slots.next(at_once=at_once) if self._writer else None
        if pending and self._writer:
            self._context.poll()  # events reach the log before a checkpoint that counts on them
            rows, self._rounds.rows = self._rounds.rows, []
            self._write(pending, rows)

    def _write(self, pending: PendingSnapshot, rows: Sequence[tuple[float, ...]], lost: WriterLost | None = None) -> None:
        """Let the writer write a snapshot, or another writer after a `lost` one. Raises the loss if it ends the run."""
        assert self._writer
        while True:
            if lost:
                began = time.monotonic()
                self._on_lost(lost)
                self._writer.close()
                self._writer = Writer(self._checkpoints)
                seconds = time.monotonic() - began
                event = ReplayEvent(
                    t=self._context.now(), rank=None, what=lost.message, after=pending.round, discarded=[], seconds=seconds
                )
                self._context.emit(event)
            try:
                return self._writer.write(pending.slot, pending.progress, rows)
            except WriterLost as again:
                lost, rows = again, ()
