"""The hook `tensorboard`: event files in `RUN/tensorboard`.

It writes records with tensorboard's own protocol buffers. The event writers of TensorBoard and torch would do the same, but
import TensorFlow, if installed, or torch.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

from tensorboard.compat.proto.event_pb2 import Event as Record
from tensorboard.compat.proto.event_pb2 import SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from partrain.hooks import FollowedRun
from partrain.hooks.scalars import ScalarHook, flat, tags
from partrain.record.events import EndEvent, StartEvent
from partrain.record.run_state import RunState

FLUSH_S = 1.0
"""Seconds between two flushes."""


class TensorBoardHook(ScalarHook):
    """Writes an event file for each session. The first record of a session purges the later steps of earlier sessions."""

    def __init__(self, run: FollowedRun) -> None:
        super().__init__()
        folder = run.folder / "tensorboard"
        self._run, self._flushed = run, 0.0
        self.replay = not any(folder.glob("events.out.tfevents.*"))
        """Nothing was written in earlier sessions: write their rows now."""
        folder.mkdir(exist_ok=True)
        now = time.time_ns()
        name = f"events.out.tfevents.{now // 10**9:010d}.{socket.gethostname()}.{os.getpid()}.{now % 10**9}"
        self._writer = RecordWriter((folder / name).open("wb"))
        self._write(Record(wall_time=time.time(), file_version="brain.Event:2"))

    def start(self, event: StartEvent, state: RunState) -> None:
        """Purge the steps after the checkpoint; write the keys of the job."""
        step = 0 if event.resumed_from is None else state.item_iterations + 1
        self._write(Record(wall_time=event.t, step=step, session_log=SessionLog(status=SessionLog.START)))
        keys = flat(self._run.job) | tags(event)
        self._write(Record(wall_time=event.t, summary=hparams_pb(keys, self._run.id, event.t)))

    def write(self, t: float, step: int, values: Mapping[str, float]) -> None:
        """Write a row."""
        numbers = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(Record(wall_time=t, step=step, summary=Summary(value=numbers)))

    def end(self, event: EndEvent, state: RunState) -> None:
        """Flush; TensorBoard shows no status."""
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def _write(self, record: Record) -> None:
        self._writer.write(record.SerializeToString())
        if (now := time.monotonic()) - self._flushed >= FLUSH_S:
            self._writer.flush()
            self._flushed = now
