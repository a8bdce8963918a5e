"""The checkpoint writer: a child of the coordinator that turns snapshots into files, off the critical path of training.

It has its own process because HDF5 holds Python's lock while it works, and a crash in HDF5 must cost a file, not the run.
"""

from __future__ import annotations

import hashlib
import time
import traceback
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partrain import checkpoint
from partrain.errors import Diverged, Failure, InputOutputFailed, Internal
from partrain.system.child_process import ChildProcess
from partrain.system.surroundings import starting_process
from partrain.training.snapshot_layout import SlotMap

if TYPE_CHECKING:
    from partrain.job.schema import Job
    from partrain.tasks import Kind

BUSY_SHARE = 0.005
"""Largest share of a core for a coalescing writer: on a small machine the core is a worker's."""
LONGEST_REST_S = 30.0
"""Longest rest of the writer after any file."""

HISTORY = ("round", "item_iterations", "loss", "lr", "judged_loss", "accuracy")
"""Columns of `/history`, one row per round; NaN if a round was not judged. The columns of `own_columns` follow."""


@dataclass
class CheckpointContext:
    """The parts common to all checkpoints of a run."""

    folder: Path
    """The run folder."""
    keep: int
    job: str
    manifest: dict[str, Any]
    map: SlotMap
    slots: Sequence[memoryview]
    columns: tuple[str, ...] = ()
    """The history's columns that only some jobs have."""
    history: array[float] = field(default_factory=lambda: array("d"))
    """Numbers of all rows so far, row by row. The writer process also appends to its copy."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the history's columns."""
        return HISTORY + self.columns

    def append(self, rows: Sequence[tuple[float, ...]]) -> None:
        """Append rows to the history. They replace the rows of rounds that ran again differently."""
        while rows and self.history and self.history[-len(self.names)] >= rows[0][0]:
            del self.history[-len(self.names) :]
        for row in rows:
            self.history.extend(row)


def own_columns(job: Job, kind: Kind, workers: int) -> tuple[str, ...]:
    """Name the history's columns that only some jobs have: judged metrics, and each worker's cap if seconds set it."""
    caps = range(workers) if job.caps_rounds else ()
    return (*job.metrics(kind), *(f"cap_{rank}" for rank in caps))


def preload() -> None:
    """Import the writer's modules before the fork, so that its first file does not wait for them."""
    import partrain.checkpoint.writer  # noqa: F401


class WriterLost(InputOutputFailed):
    """The writer process died. Another writer can write the snapshot again."""


class Writer:
    """The coordinator's side of the writer process: it takes a snapshot, and answers when the file is on disk."""

    def __init__(self, context: CheckpointContext) -> None:
        self._context = context
        with starting_process():
            self._child = ChildProcess.fork(lambda pipe: _serve(pipe, context))
        self.pipe = self._child.pipe
        self.busy = self.broken = False
        """`broken`: the writer failed and accepts no more snapshots."""

    def write(self, slot: int, progress: dict[str, Any], rows: Sequence[tuple[float, ...]]) -> None:
        """Start writing a slot. `rows`: the history's rows since the last call, also for the context. Raises WriterLost."""
        self.busy = True
        self._context.append(rows)
        with suppress(OSError):
            self.pipe.send((slot, progress, rows))
            return
        # Raised outside the `with`, the failure does not keep the OSError and its open buffer, which crash Python 3.12.1.
        raise self._lost()

    def answer(self) -> dict[str, Any]:
        """Receive `file`, `bytes`, `seconds`, `digest`, `round` of a written file. Raises WriterLost, or the writer's failure, after which it writes nothing."""
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

    def _lost(self) -> WriterLost:
        """Return the failure for a dead writer."""
        self.broken = True
        return WriterLost(f"the checkpoint writer {self._child.end_in_words()}")

    def cpu_time(self) -> list[bytes]:
        """Return the CPU time of the writer process. A change means progress."""
        return Path(f"/proc/{self._child.pid}/stat").read_bytes().rpartition(b")")[2].split()[11:13]

    def close(self) -> None:
        """Stop the writer after its current file; kill a broken writer, and leave it behind if the disk does not let it exit."""
        self.pipe.close()
        self._child.stop(0.0 if self.broken else None)


def _serve(pipe: Connection, context: CheckpointContext) -> None:
    """Write snapshots until the coordinator closes the pipe."""
    while True:
        slot, progress, rows = pipe.recv()
        context.append(rows)
        pipe.send(_guarded(lambda: commit(context, slot, progress)))  # noqa: B023


def _guarded(work: Callable[[], Any]) -> Any:
    """Return the work's answer, its failure, or the traceback of a defect."""
    try:
        return work()
    except Failure as failure:
        return failure
    except Exception:
        return f"the checkpoint writer met a defect\n{traceback.format_exc()}"


def commit(context: CheckpointContext, slot: int, progress: dict[str, Any]) -> dict[str, Any]:
    """Write the snapshot in a slot as a checkpoint. Make it the newest, and if its judgement is the best, the best."""
    import numpy as np

    began, busy = time.perf_counter(), time.process_time()
    number = progress["round"]
    arrays: dict[str, Any] = dict(context.map.view(context.slots[slot]))
    for name, values in arrays.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise Diverged(f"round {number}: non-finite numbers in `{name}`; lower the learning rate, or look at the data")
    history = np.array(context.history).reshape(-1, len(context.names))
    rows = history[history[:, 0] <= number]
    for column, name in enumerate(context.names):
        values = np.ascontiguousarray(rows[:, column])
        arrays[f"history/{name}"] = values.astype(np.int64) if name in ("round", "item_iterations") else values
    content = checkpoint.Content(arrays, context.job, context.manifest | {"round": number, "progress": progress})
    image = checkpoint.encode(content)
    path = checkpoint.round_path(context.folder, number)
    best = progress["best_round"] or None
    checkpoint.write(path, image)
    checkpoint.link_best(context.folder, best, renew=best == number)  # first: a crash in between leaves no better one
    checkpoint.link_latest(context.folder, path)
    checkpoint.prune(path.parent, number, context.keep, best)
    return {
        "round": number,
        "file": str(path.relative_to(context.folder)),
        "bytes": len(image),
        "seconds": time.perf_counter() - began,
        "busy": time.process_time() - busy,
        "digest": hashlib.sha256(image).hexdigest(),
    }
