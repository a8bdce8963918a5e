"""One core: items per second of one worker against JAX (jit and scan over 100 steps), the same MLP at batch 16, 64 and 256, in turn.

    .venv-peers/bin/python benchmarks/jax_core.py [SEEDS]     # after `make bench-peers` has installed JAX; records the results

"computing" are the worker's local iterations, "whole training" has its meetings, records and one judgement, too. JAX's clock holds its
iterations alone, without compilation.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from recording import record
from runs import partrain, rate

ROOT = Path(__file__).parents[1]
BATCHES = {16: 12_000, 64: 4000, 256: 1200}
"""Batch size, and the number of batches."""


def jax(batch: int, iterations: int, seed: int) -> float:
    """Return JAX's items per second."""
    settings = {"threads": 1, "iterations": iterations, "rate": 0.1, "momentum": 0.9, "batch": batch, "seed": seed}
    command = [sys.executable, "-m", "benchmarks.peers.jax_scan", *(f"--{name}={value}" for name, value in settings.items())]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return iterations * batch / float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def main(seeds: int) -> None:
    rows: list[dict[str, Any]] = []
    for batch, iterations in BATCHES.items():
        row: dict[str, Any] = {"batch": batch, "computing / JAX": [], "whole training / JAX": []}
        for seed in range(seeds):
            theirs, rounds = jax(batch, iterations, seed), iterations // 10
            stop = f"stop={{rounds={rounds}, judge_every={rounds}}}"
            words = [stop, 'workers=[{device="cpu", count=1}]', f"optimizer.batch_size={batch}", f"seed={seed}"]
            summary = partrain(ROOT / "jobs/mnist.toml", *words)
            (worker,) = summary["workers"]
            row["computing / JAX"].append(worker["item_iterations"] / worker["seconds"]["compute"] / theirs)
            row["whole training / JAX"].append(rate(summary) / theirs)
        print(row, flush=True)
        rows.append(row)
    record("jax-core", "One core against JAX: items per second", rows, notes=["Wanted: 0.95."])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
