"""Seconds of training to 97.5 % test accuracy on MNIST: two workers against the best hand-written single-process loop.

Each contender runs the shortest plan that `--tune` found for it, under the same budget, on seeds that are not measured.
"""

from __future__ import annotations

import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runs import hand, machine, partrain, shown

JOB = Path(__file__).parents[1] / "jobs" / "mnist.toml"
TARGET = 0.975
HAND = {"iterations": 1600, "rate": 0.2}
ROUNDS, RATE = 90, 0.2
"""Times sqrt(2), the lr_scale of the job."""


def main(pairs: int) -> None:
    print(f"time to {TARGET:.1%} test accuracy, {pairs} seeds; {machine()}")
    times: dict[str, list[float]] = {"hand, 1 thread": [], "hand, 2 threads": [], "partrain, 2 workers": []}
    scores: dict[str, list[float]] = {name: [] for name in times}
    for seed in range(pairs):
        for threads in (1, 2):
            name = f"hand, {threads} thread{'s' * (threads > 1)}"
            done = hand(threads=threads, seed=seed, **HAND)
            times[name].append(done["seconds"])
            scores[name].append(done["accuracy"])
        summary = partrain(JOB, *_plan(ROUNDS, RATE, seed))
        times["partrain, 2 workers"].append(summary["seconds"]["train"])
        scores["partrain, 2 workers"].append(summary["test"]["accuracy"])
    for name in times:
        print(f"{name:20}: test accuracy {shown(scores[name], '.4f')}")
    best = [min(pair) for pair in zip(times["hand, 1 thread"], times["hand, 2 threads"], strict=True)]
    ratios = [one / other for one, other in zip(best, times["partrain, 2 workers"], strict=True)]
    print(f"best hand-written / two workers, seconds (judging of the mixed network included): {shown(ratios)}")


def tune(seeds: int) -> None:
    """Both contenders, the same budget: 6 lengths x 4 learning rates x seeds of their own (from 1000, which are never measured).

    The plan of a contender is the shortest length at which some learning rate has a median test accuracy of 97.5 %.
    """
    by_hand = {
        (length, rate): lambda seed, length=length, rate=rate: hand(iterations=length, rate=rate, seed=seed)["accuracy"]
        for length in (1500, 1600, 1700, 1800, 1900, 2000)
        for rate in (0.1, 0.15, 0.2, 0.3)
    }
    ours = {
        (length, rate): lambda seed, length=length, rate=rate: partrain(JOB, *_plan(length, rate, seed))["test"]["accuracy"]
        for length in (70, 75, 80, 85, 90, 100)
        for rate in (0.1, 0.15, 0.2, 0.25)
    }
    with ThreadPoolExecutor(2) as pool:  # accuracy, not time
        for name, settings in (("hand, iterations", by_hand), ("partrain, rounds", ours)):
            medians = {}
            for setting, train in settings.items():
                medians[setting] = statistics.median(pool.map(train, range(1000, 1000 + seeds)))
                print(f"{name} {setting[0]}, learning rate {setting[1]}: {medians[setting]:.4f}", flush=True)
            good = [setting for setting in settings if medians[setting] >= TARGET]
            print(
                f"{name}: the shortest plan is {max(good, key=lambda one: (-one[0], medians[one])) if good else None}", flush=True
            )


def _plan(rounds: int, lr: float, seed: int) -> list[str]:
    return [f"stop={{rounds={rounds}, judge_every={rounds}}}", f"optimizer.lr={lr}", f"seed={seed}"]


if __name__ == "__main__":
    if "--tune" in sys.argv:
        tune(7)
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
