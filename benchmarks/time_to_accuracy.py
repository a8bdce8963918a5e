"""Seconds of training to 97.5 % test accuracy on MNIST: two workers against the best hand-written single-process loop.

Each contender runs one plan that comes out at about 97.5 %; see NOTES.md for how the two were chosen. `--tune` gives both the
same budget of settings: every learning rate of a list at every length.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from runs import hand, machine, partrain, shown

JOB = Path(__file__).parents[1] / "jobs" / "mnist.toml"
TARGET = 0.975
HAND = {"iterations": 1700, "rate": 0.2}
ROUNDS, RATE = 100, 0.212132
"""Times sqrt(2), the job's lr_scale, that is a peak of 0.3."""


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
    """Median test accuracy of every plan under the same budget of settings."""
    for iterations in (1400, 1500, 1600, 1700):
        for peak in (0.1, 0.15, 0.2, 0.3):
            found = [hand(iterations=iterations, rate=peak, seed=seed)["accuracy"] for seed in range(seeds)]
            print(f"hand: {iterations} iterations, peak {peak}: {statistics.median(found):.4f}", flush=True)
    for rounds in (80, 90, 100, 110):
        for base in (0.15, 0.2, 0.212132, 0.25):
            found = [partrain(JOB, *_plan(rounds, base, seed))["test"]["accuracy"] for seed in range(seeds)]
            print(f"partrain: {rounds} rounds, lr {base} x sqrt(2): {statistics.median(found):.4f}", flush=True)


def _plan(rounds: int, lr: float, seed: int) -> list[str]:
    return [f"stop={{rounds={rounds}, judge_every={rounds}}}", f"optimizer.lr={lr}", f"seed={seed}"]


if __name__ == "__main__":
    if "--tune" in sys.argv:
        tune(5)
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
