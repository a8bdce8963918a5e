"""A run that continues with different workers: more, fewer, or on other devices.

The mixed network, moments, buffers and center stay. The workers' own states are shared out again: replicas and moments become
their mean, integer buffers their maximum, as after a round that mixes them. Partitions are drawn again for the new number of workers.
Each worker's state of the rule (such as error feedback) starts again.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from partrain.errors import BadCheckpoint, BadJob, Failure, Stalled, WorkersLost
from partrain.job.load import LoadedJob
from partrain.launch.checkpoint_writer import HISTORY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.checkpoint import Content

OWN = re.compile(r"workers/(\d+)/(.+)")
"""The path of a worker's array."""


def shared_out(arrays: dict[str, NDArray[Any]], size: int) -> dict[str, NDArray[Any]]:
    """Return a checkpoint's arrays by path for `size` workers.

    Item-iterations and iterations of leaving workers count as worker 0's: the sum stays.
    """
    import numpy as np

    parts: dict[str, dict[int, NDArray[Any]]] = {}
    for path, array in arrays.items():
        if match := OWN.fullmatch(path):
            parts.setdefault(match[2], {})[int(match[1])] = array
    counts = np.stack([parts["counts"][rank] for rank in sorted(parts["counts"])])
    shared = {path: array for path, array in arrays.items() if not OWN.fullmatch(path)}
    kept = min(size, len(counts))
    for rank in range(size):
        own = np.zeros(3, counts.dtype)
        own[1:3] = counts[rank, 1:3] if rank < kept else 0
        own[1:3] += counts[kept:, 1:3].sum(0) if rank == 0 else 0
        shared[f"workers/{rank}/counts"] = own
        if "stream" in parts:  # all shards change: all begin with a pass that no worker has begun
            shared[f"workers/{rank}/stream"] = np.array([next_pass(arrays), 0, 0], counts.dtype)
        for name, by_rank in parts.items():
            if name.split("/")[0] in ("params", "optimizer", "buffers"):
                shared[f"workers/{rank}/{name}"] = _mean([by_rank[source] for source in sorted(by_rank)])
    return shared


def next_pass(arrays: dict[str, NDArray[Any]]) -> int | None:
    """Return the first pass over a stream that no worker has begun; None without a stream."""
    begun = [int(array[0]) for path, array in arrays.items() if (match := OWN.fullmatch(path)) and match[2] == "stream"]
    return 1 + max(begun) if begun else None


def begins_anew(path: str) -> bool:
    """Return whether an array is a worker's state of the rule, which starts again."""
    match = OWN.fullmatch(path)
    return match is not None and match[2].startswith("rule/")


def history_of(content: Content, columns_of_job: tuple[str, ...]) -> list[tuple[float, ...]]:
    """Read the rows of `/history`, one per round; NaN in columns new to the job."""
    columns = [content.arrays.get(f"history/{name}") for name in HISTORY]
    if any(column is None or column.shape != (content.round,) for column in columns):
        raise BadCheckpoint(f"/history does not hold {', '.join(HISTORY)} of {content.round} rounds")
    columns += [content.arrays.get(f"history/{name}") for name in columns_of_job]
    missing = [math.nan] * content.round
    return list(zip(*(missing if column is None else column.tolist() for column in columns), strict=True))


def without_lost_worker(failure: Failure | None, loaded: LoadedJob) -> LoadedJob | None:
    """Return the job without the worker whose loss ended a run, if `[faults]` asks to continue so and the run can; else None."""
    job = loaded.job
    if job.faults.on_loss != "drop" or not isinstance(failure, WorkersLost | Stalled) or failure.rank is None:
        return None
    rank = failure.rank

    def edit(tables: dict[str, Any]) -> None:
        first = 0
        for group, section in zip(tables["workers"], job.workers, strict=True):
            if first <= rank < first + section.count:
                group["count"] = section.count - 1
                break
            first += section.count
        tables["workers"] = [group for group in tables["workers"] if group.get("count", 1)]

    try:
        return loaded.edited("the job without the lost worker", edit, resuming=True)
    except BadJob:  # it was the last worker, or the rule needs more
        return None


def _mean(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    """Return the mean of floating-point arrays, computed in double precision; of other arrays the maximum."""
    import numpy as np

    if arrays[0].dtype.kind != "f":
        return np.asarray(np.maximum.reduce(arrays))
    return np.asarray(np.mean(arrays, axis=0, dtype=np.float64).astype(arrays[0].dtype))
