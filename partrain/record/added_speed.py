"""The gain in speed from more workers: from each worker of a run whose workers wait for each other, and between runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from partrain.record.waiting import participation_of

LITTLE, PART = 0.03, 0.5
"""Gain in speed below which a worker is not worth its place, if it is also below this share of an equal worker's gain."""
TELLING_SECONDS = 1.0
"""Seconds of training below which the workers' times are too uncertain."""

CLEAR = 1.25
"""Ratio of the seconds of a pair of runs from which another pair has the same order (benchmarks/verdicts_workers.py)."""


SHORT = 0.25
"""Seconds to a result below which they mean nothing: these are the first judgements."""


def paid(speed_ups: Sequence[float], shortest: float) -> bool | None:
    """Return whether more workers paid, from the speed-ups of some pairs of runs; None if these are too close to 1, or disagree.

    `shortest`: seconds of the shortest of these runs to the result; below SHORT the answer is None.
    """
    middle = median(speed_ups)
    clear = CLEAR ** (1 / len(speed_ups) ** 0.5)  # medians of more pairs vary less
    alike = min(speed_ups) > 1 or max(speed_ups) < 1
    return middle > 1 if shortest >= SHORT and alike and not 1 / clear < middle < clear else None


def added_speed(workers: Sequence[Mapping[str, Any]], seconds: float) -> dict[int, float]:
    """Estimate by how much each worker raises the item-iterations per second, by rank; negative: the others would be faster
    without it.

    Without a worker the others would not wait for it: the run would be shorter by the least of their waiting, minus the worker's
    own waiting. That is the time of meetings, which remains.

    Args:
        workers: The workers in summary.json.
        seconds: Seconds of training.
    """
    if len(workers) < 2 or seconds < TELLING_SECONDS or participation_of(workers) is not None:
        return {}  # if a worker that sits rounds out were missing, others would be drawn
    items, gains = sum(worker["item_iterations"] for worker in workers), {}
    for worker in workers:
        others = [other["seconds"]["wait"] for other in workers if other is not worker]
        saved = max(0.0, min(others) - worker["seconds"]["wait"])
        rest, shorter = items - worker["item_iterations"], max(seconds - saved, 1e-9)
        if rest:
            gains[worker["rank"]] = items / seconds / (rest / shorter) - 1
    return gains


def least_worker(workers: Sequence[Mapping[str, Any]], seconds: float) -> str:
    """Name the worker that adds the least speed, if that is little; "" otherwise."""
    gains = added_speed(workers, seconds)
    rank = min(gains, key=gains.__getitem__, default=None)
    if rank is None or gains[rank] >= min(LITTLE, PART / (len(workers) - 1)):
        return ""
    device = next(worker["device"] for worker in workers if worker["rank"] == rank)
    effect = f"adds {gains[rank]:.0%} to the speed" if gains[rank] >= 0.005 else "makes the others no faster"
    if gains[rank] <= -0.005:
        effect = f"costs {-gains[rank]:.0%} of the speed"
    return f"worker {rank} ({device}) {effect}: leave it out"
