"""`partrain diff`: distances between two networks tensor by tensor, or between the replicas of one checkpoint. Needs numpy only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.display.text_table import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.checkpoint import Content
    from partrain.flat import Layout

Arrays = Mapping[str, "NDArray[Any]"]


def networks(a: Content, b: Content) -> dict[str, Any]:
    """Compare the mixed networks of two checkpoints.

    Returns:
        `equal`: whether all bits are equal. `tensors`, for each name in both: l2 distance, the distance relative to A's norm, and
        the largest difference. `only_a` and `only_b`: names that only one of them has. `all`: all tensors as one vector.
    """
    first, second = _under(a, "model/"), _under(b, "model/")
    both = [name for name in first if name in second]
    tensors = {name: _distance(first[name], second[name]) for name in both}
    result = {
        "only_a": [name for name in first if name not in second],
        "only_b": [name for name in second if name not in first],
        "tensors": tensors,
        "all": _combined(list(tensors.values())),
    }
    return {
        "equal": not result["only_a"] and not result["only_b"] and all(tensor["equal"] for tensor in tensors.values())
    } | result


def replicas(content: Content, layout: Layout | None) -> dict[str, Any]:
    """Compare the workers of one checkpoint: parameters and buffers that differ between replicas.

    Args:
        content: The checkpoint.
        layout: The tensors in a worker's flat row. None if only untrusted user code can give it: then the row counts as one
            tensor.

    Returns:
        `equal`: whether all bits are equal. For each tensor: the consensus distance sqrt(mean |x_i - mean|^2), the distance
        relative to the mean's norm, the largest difference between two workers, and each worker's l2 distance from the mean.
    """
    workers: dict[str, dict[str, NDArray[Any]]] = {}
    for path, array in sorted(_under(content, "workers/").items()):
        rank, _, name = path.partition("/")
        if name == "params":
            workers.setdefault(rank, {}).update(_pieces(array, layout))
        elif name.startswith("buffers/"):
            workers.setdefault(rank, {})[name.removeprefix("buffers/")] = array
    ranks = sorted(workers, key=int)
    names = list(workers[ranks[0]]) if ranks else []
    tensors = {name: _spread([workers[rank][name] for rank in ranks]) for name in names}
    return {
        "equal": all(tensor["equal"] for tensor in tensors.values()),
        "workers": [int(rank) for rank in ranks],
        "tensors": tensors,
    }


def render_networks(result: Mapping[str, Any]) -> list[str]:
    rows = [(name, *_cells(row)) for name, row in [*result["tensors"].items(), ("all", result["all"])]]
    lines = table(("tensor", "l2 distance", "of A's norm", "largest"), rows)
    lines += [f"only in {side.upper()}: {', '.join(result[f'only_{side}'])}" for side in "ab" if result[f"only_{side}"]]
    return [*lines, "", "equal to the bit" if result["equal"] else "different"]


def render_replicas(result: Mapping[str, Any]) -> list[str]:
    if not result["tensors"]:
        return ["no replicas to compare: the sync rule makes all workers equal at the end of a round"]
    head = ("tensor", "consensus dist.", "of the norm", "largest", *(f"worker {rank}" for rank in result["workers"]))
    keys = ("distance", "relative", "max")
    rows = [(name, *(_shown(row[key]) for key in keys), *map(_shown, row["l2"])) for name, row in result["tensors"].items()]
    return [*table(head, rows), "", "equal to the bit" if result["equal"] else "different"]


def _under(content: Content, prefix: str) -> dict[str, NDArray[Any]]:
    return {path.removeprefix(prefix): array for path, array in content.arrays.items() if path.startswith(prefix)}


def _pieces(row: NDArray[Any], layout: Layout | None) -> dict[str, NDArray[Any]]:
    if layout is None:
        return {"params": row}
    return {field.name: row[field.start : field.start + field.size].reshape(field.shape) for field in layout.fields}


def _distance(a: NDArray[Any], b: NDArray[Any]) -> dict[str, Any]:
    if a.shape != b.shape or a.dtype != b.dtype:
        shown = [f"{array.dtype.name} {'x'.join(map(str, array.shape)) or '()'}" for array in (a, b)]
        return {"equal": False, "differs": f"{shown[0]} and {shown[1]}"}
    exact = np.result_type(a, np.float64)  # complex128 for complex numbers
    difference, norm = b.astype(exact) - a.astype(exact), float(np.linalg.norm(a.astype(exact)))
    l2 = float(np.linalg.norm(difference))
    return {
        "equal": a.tobytes() == b.tobytes(),
        "dtype": a.dtype.name,
        "l2": _finite(l2),
        "relative": _finite(l2 / norm) if norm else None,
        "max": _finite(float(np.abs(difference).max(initial=0.0))),
        "norm": _finite(norm),
    }


def _combined(distances: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the distance of all comparable tensors of floats, as one vector. Integer counters are left out."""
    numeric = [distance for distance in distances if "differs" not in distance and distance["dtype"].startswith("float")]
    if any(distance["l2"] is None or distance["norm"] is None for distance in numeric):
        return {"l2": None, "relative": None, "max": None}
    l2, norm = math.hypot(*(distance["l2"] for distance in numeric)), math.hypot(*(distance["norm"] for distance in numeric))
    return {"l2": l2, "relative": l2 / norm if norm else None, "max": max((distance["max"] for distance in numeric), default=0.0)}


def _spread(replicas: Sequence[NDArray[Any]]) -> dict[str, Any]:
    stacked = np.stack([replica.astype(np.float64) for replica in replicas])
    mean = stacked.mean(axis=0)
    deviations = [float(np.linalg.norm(replica - mean)) for replica in stacked]
    distance, norm = (
        math.sqrt(sum(deviation * deviation for deviation in deviations) / len(deviations)),
        float(np.linalg.norm(mean)),
    )
    return {
        "equal": len({replica.tobytes() for replica in replicas}) == 1,
        "distance": _finite(distance),
        "relative": _finite(distance / norm) if norm else None,
        "max": _finite(float(np.ptp(stacked, axis=0).max(initial=0.0))),
        "l2": [_finite(deviation) for deviation in deviations],
    }


def _cells(row: Mapping[str, Any]) -> list[str]:
    if "differs" in row:
        return [row["differs"], "", ""]
    return ["equal", "", ""] if row.get("equal") else [_shown(row[key]) for key in ("l2", "relative", "max")]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
