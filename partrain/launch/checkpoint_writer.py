"""The checkpoint writer: a child of the coordinator, off the training's critical path, that turns snapshots into files.

A process of its own, because HDF5 holds Python's lock while it works and a crash in it must cost a file, not the run.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from partrain import checkpoint
from partrain.errors import Diverged, Failure, InputOutputFailed, Internal
from partrain.launch.signals import STOPPING
from partrain.system.parent_death import describe_exit, die_with_parent
from partrain.train.snapshot_layout import SlotMap

BUSY_SHARE = 0.005
"""Share of a core the writer may take when it coalesces: on a small machine it is a worker's core."""
LONGEST_REST_S = 30.0
"""However long a commit took, the next snapshot is welcome after this."""

LETTING_GO_S = 5.0
"""A killed writer has this long to be gone."""

HISTORY = ("round", "item_iterations", "loss", "lr", "judged_loss", "accuracy")
"""Columns of `/history`, one row per round; NaN where a round was not judged."""


@dataclass
class CheckpointContext:
    """What is the same in every checkpoint of a run."""

    folder: Path
    """The run folder."""
    keep: int
    job: str
    manifest: dict[str, Any]
    map: SlotMap
    slots: Sequence[memoryview]
    history: list[tuple[float, ...]] = field(default_factory=list)
    """Rows so far; the writer's own copy grows from then on."""


def prepare() -> None:
    """Import what writing needs, before the first writer is forked: its first file is not to wait for it."""
    import partrain.checkpoint.writer  # noqa: F401


class Writer:
    """The coordinator's side: hand over a snapshot, hear when it is on disk."""

    def __init__(self, frame: CheckpointContext) -> None:
        self.pipe, theirs = Pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            self.pipe.close()
            _child(theirs, frame, parent)
        theirs.close()
        self.busy = self.broken = False
        """`broken`: it met a failure, and nothing more is to be asked of it."""

    def write(self, slot: int, progress: dict[str, Any], rows: Sequence[tuple[float, ...]]) -> None:
        """Start writing a slot; `rows` are the history's new ones, up to the newest round known."""
        self.busy = True
        with suppress(OSError):
            self.pipe.send((slot, progress, rows))
            return
        # Out here it does not keep the error, and with it the open buffer of what was not sent: Python 3.12.1 crashes over that.
        raise self._lost()

    def answer(self) -> dict[str, Any]:
        """What came of it: `file`, `bytes`, `seconds`, `digest`, `round`. Raises the failure it met: that was its last file."""
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError):
            raise self._lost() from None
        self.busy = False
        self.broken = not isinstance(answer, dict)
        if isinstance(answer, str):
            raise Internal(answer)
        if isinstance(answer, Failure):
            raise answer
        return answer  # type: ignore[no-any-return]

    def _lost(self) -> InputOutputFailed:
        """The writer is dead: why."""
        _, status = os.waitpid(self._pid, 0)
        self._pid, self.broken = 0, True
        return InputOutputFailed(f"the checkpoint writer {describe_exit(os.waitstatus_to_exitcode(status))}")

    def life(self) -> list[bytes]:
        """Processor time it has taken so far: another one tells that it is at work."""
        return Path(f"/proc/{self._pid}/stat").read_bytes().rpartition(b")")[2].split()[11:13]

    def close(self) -> None:
        """End the writer after the file it is at; a broken one at once, or leave it to a disk that does not let go of it."""
        self.pipe.close()
        if self._pid:
            if self.broken:
                os.kill(self._pid, signal.SIGKILL)
            until = time.monotonic() + LETTING_GO_S
            while not os.waitpid(self._pid, os.WNOHANG if self.broken else 0)[0] and time.monotonic() < until:
                time.sleep(0.01)
            self._pid = 0


def _child(pipe: Connection, frame: CheckpointContext, parent: int) -> None:
    """Serve until the coordinator hangs up; never returns."""
    status = 1
    try:
        die_with_parent(parent)
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        while True:
            try:
                slot, progress, rows = pipe.recv()
            except EOFError:
                break
            frame.history.extend(rows)
            pipe.send(_guarded(lambda: commit(frame, slot, progress)))  # noqa: B023
        status = 0
    except BrokenPipeError:
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _guarded(work: Callable[[], Any]) -> Any:
    """What came of it: the answer, the failure, or the traceback of a defect."""
    try:
        return work()
    except Failure as failure:
        return failure
    except Exception:
        return f"the checkpoint writer met a defect\n{traceback.format_exc()}"


def commit(frame: CheckpointContext, slot: int, progress: dict[str, Any]) -> dict[str, Any]:
    """Write the snapshot in a slot as a checkpoint and make it the newest."""
    import numpy as np

    began, busy = time.perf_counter(), time.process_time()
    number = progress["round"]
    arrays: dict[str, Any] = dict(frame.map.view(frame.slots[slot]))
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise Diverged(f"round {number}: non-finite numbers in `{name}`; lower the learning rate, or look at the data")
    rows = np.array([row for row in frame.history if row[0] <= number], dtype=np.float64).reshape(-1, len(HISTORY))
    for column, name in enumerate(HISTORY):
        values = np.ascontiguousarray(rows[:, column])
        arrays[f"history/{name}"] = values.astype(np.int64) if name in ("round", "item_iterations") else values
    content = checkpoint.Content(arrays, frame.job, frame.manifest | {"round": number, "progress": progress})
    image = checkpoint.encode(content)
    path = checkpoint.round_path(frame.folder, number)
    checkpoint.write(path, image)
    checkpoint.link_latest(frame.folder, path)
    checkpoint.prune(path.parent, number, frame.keep, progress["best_round"] or None)
    return {
        "round": number,
        "file": str(path.relative_to(frame.folder)),
        "bytes": len(image),
        "seconds": time.perf_counter() - began,
        "busy": time.process_time() - busy,
        "digest": hashlib.sha256(image).hexdigest(),
    }
