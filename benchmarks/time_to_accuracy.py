"""Seconds of training to 97.5 % test accuracy on MNIST: two workers against the best hand-written single-process loop.

Each contender runs the shortest plan that `--tune` found for it, under the same budget, on seeds that are not measured.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from runs import hand, machine, partrain, shown

JOBS = Path(__file__).parents[1] / "jobs"
TARGET = 0.975
HAND = (1600, 0.2)
AVERAGE = (90, 0.2)
"""Rounds of 10 iterations, and the learning rate, times sqrt(2): the lr_scale of the job."""
HOGWILD = (30, 0.1)
"""Visits of each worker, of 8 iterations, in each of 4 rounds; and the learning rate, with a momentum of 0.9."""


def average(rounds: int, rate: float, seed: int) -> dict[str, Any]:
    """Two workers, their replicas averaged every 10 iterations."""
    words = [f"stop={{rounds={rounds}, judge_every={rounds}}}", f"optimizer.lr={rate}", f"seed={seed}"]
    return partrain(JOBS / "mnist.toml", *words)


def hogwild(visits: int, rate: float, seed: int) -> dict[str, Any]:
    """Two workers that train the same numbers in shared memory."""
    words = ["stop={rounds=4, judge_every=4}", f"sync={{rule='hogwild', iterations=8, visits={visits}}}", f"seed={seed}"]
    return partrain(JOBS / "rules/hogwild.toml", *words, f"optimizer.lr={rate}", "optimizer.momentum=0.9")


LOOPS = {
    f"hand, {threads} thread{'s' * (threads > 1)}{', oneDNN' * onednn}": {"threads": threads, "onednn": onednn}
    for onednn in (0, 1)
    for threads in (1, 2)
}
OURS: dict[str, tuple[Callable[[int, float, int], dict[str, Any]], tuple[int, float]]] = {
    "average, 2 workers": (average, AVERAGE),
    "hogwild, 2 workers": (hogwild, HOGWILD),
}


def main(pairs: int) -> None:
    print(f"time to {TARGET:.1%} test accuracy, {pairs} seeds; {machine()}")
    times: dict[str, list[float]] = {name: [] for name in (*LOOPS, *OURS)}
    scores: dict[str, list[float]] = {name: [] for name in times}
    for seed in range(pairs):
        for name, settings in LOOPS.items():
            done = hand(**settings, seed=seed, iterations=HAND[0], rate=HAND[1])
            times[name].append(done["seconds"])
            scores[name].append(done["accuracy"])
        for name, (train, plan) in OURS.items():
            summary = train(*plan, seed)
            times[name].append(summary["seconds"]["train"])
            scores[name].append(summary["test"]["accuracy"])
    for name in times:
        print(f"{name:26}: test accuracy {shown(scores[name], '.4f')}")
    for what, loops in ("as torch comes", list(LOOPS)[:2]), ("or with its products by oneDNN", list(LOOPS)):
        best = [min(one) for one in zip(*(times[loop] for loop in loops), strict=True)]
        for name in OURS:
            ratios = [one / other for one, other in zip(best, times[name], strict=True)]
            print(f"best hand-written loop, {what} / {name}, seconds (judging of the mixed network included): {shown(ratios)}")


def tune(seeds: int) -> None:
    """All contenders, the same budget: 6 lengths x 4 learning rates x seeds of their own (from 1000, which are never measured).

    (hogwild had such a budget twice, for two momenta: see NOTES.md.) The plan of a contender is the shortest length at which some learning rate has a median test accuracy of 97.5 %.
    """
    _tune("hand, iterations", lambda length, rate, seed: hand(iterations=length, rate=rate, seed=seed)["accuracy"],
          (1500, 1600, 1700, 1800, 1900, 2000), (0.1, 0.15, 0.2, 0.3), seeds, 2)  # fmt: skip
    _tune("average, rounds", lambda length, rate, seed: average(length, rate, seed)["test"]["accuracy"],
          (70, 75, 80, 85, 90, 100), (0.1, 0.15, 0.2, 0.25), seeds, 2)  # fmt: skip
    _tune("hogwild, visits", lambda length, rate, seed: hogwild(length, rate, seed)["test"]["accuracy"],
          (26, 28, 30, 32, 34, 36), (0.1, 0.125, 0.15, 0.2), seeds, 1)  # fmt: skip


def _tune(
    name: str,
    train: Callable[[int, float, int], float],
    lengths: tuple[int, ...],
    rates: tuple[float, ...],
    seeds: int,
    at_once: int,
) -> None:
    """`at_once`: runs beside each other; where only accuracy counts and what one does is no other's business, two are quicker."""
    medians = {}
    with ThreadPoolExecutor(at_once) as pool:
        for length, rate in [(length, rate) for length in lengths for rate in rates]:
            found = pool.map(lambda seed, length=length, rate=rate: train(length, rate, seed), range(1000, 1000 + seeds))
            medians[length, rate] = statistics.median(found)
            print(f"{name} {length}, learning rate {rate}: {medians[length, rate]:.4f}", flush=True)
    good = [setting for setting in medians if medians[setting] >= TARGET]
    print(f"{name}: the shortest plan is {max(good, key=lambda one: (-one[0], medians[one])) if good else None}", flush=True)


if __name__ == "__main__":
    if "--tune" in sys.argv:
        tune(7)
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
