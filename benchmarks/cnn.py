"""A CNN on MNIST to 99 % of the test images: the hand-written loop on one thread and two, one worker and two, equal items and settings each.

    python benchmarks/cnn.py [SEEDS] [BATCHES]        # records the results

Training seconds; judging lies outside of those of the loop, partrain judges once at its end.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

from recording import record
from runs import hand, partrain

JOB = Path(__file__).parents[1] / "jobs" / "mnist-cnn.toml"


def ours(workers: int, batches: int, seed: int) -> dict[str, float]:
    """Train `batches` batches in all by some workers."""
    rounds = batches // workers // 10
    words = [f"stop={{rounds={rounds}, judge_every={rounds}}}", f'workers=[{{device="cpu", count={workers}}}]', f"seed={seed}"]
    summary = partrain(JOB, *words)
    return {"seconds": summary["seconds"]["train"], "accuracy": summary["test"]["accuracy"]}


def main(seeds: int, batches: int) -> None:
    done: dict[str, list[dict[str, float]]] = {}
    for seed in range(seeds):
        for threads in (1, 2):
            name = f"hand-written loop, {threads} thread{'s' * (threads > 1)}"
            run = hand(network="cnn", threads=threads, iterations=batches, rate=0.1, seed=seed)
            done.setdefault(name, []).append(run)
        for workers in (1, 2):
            done.setdefault(f"partrain, {workers} worker{'s' * (workers > 1)}", []).append(ours(workers, batches, seed))
        print({name: runs[-1] for name, runs in done.items()}, flush=True)
    two = done["partrain, 2 workers"]
    rows: list[dict[str, Any]] = []
    for name, runs in done.items():
        pairs = zip(runs, two, strict=True)
        row: dict[str, Any] = {"trained by": name, "test accuracy": [run["accuracy"] for run in runs]}
        row["training seconds"] = [run["seconds"] for run in runs]
        row["training / two workers"] = [run["seconds"] / best["seconds"] for run, best in pairs]
        rows.append(row)
    least = min(statistics.median(row["test accuracy"]) for row in rows)
    note = f"{batches:,} batches of 64 in all. The least median of test accuracy is {least:.2%}; wanted: 99 %, and 2 in the last column."
    record("cnn", "A CNN on MNIST", rows, notes=[note])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3, int(sys.argv[2]) if len(sys.argv) > 2 else 3000)
