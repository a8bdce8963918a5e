"""One worker and two to a held-out accuracy of 97.5 % on MNIST, with the same learning rate and with sqrt(2) times that: `partrain bench`, recorded.

python benchmarks/workers_to_target.py [SEEDS]
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from recording import record
from runs import command

JOB = Path(__file__).parents[1] / "jobs" / "mnist.toml"
STOP = "stop={accuracy=0.975, rounds=500, judge_every=10}"
VARIANTS = {"equal": "equal", "scaled": "times sqrt(2)"}


def main(seeds: int) -> None:
    words = ["bench", JOB, "--workers", "1,2", "--seeds", seeds, "--set", STOP, "--json"]
    variants = json.loads(command([sys.executable, "-m", "partrain", *words]).stdout)["variants"]
    rows: list[dict[str, Any]] = []
    for name, results in variants.items():
        for result in results[len(rows) > 0 :]:  # one worker has no other learning rate
            several = f"{result['workers']}, {VARIANTS[name]}" if result["workers"] > 1 else "1"
            rows.append(
                {
                    "workers, learning rate": several,
                    "seconds to target": result["seconds"],
                    "reached": f"{result['reached']}/{result['runs']}",
                    "items of each worker": result["items_per_worker"],
                    "test accuracy": result["test_accuracy"],
                    "speed-up": result["speed_up"],
                }
            )
    same = shlex.join(["partrain", "bench", "jobs/mnist.toml", "--workers", "1,2", "--seeds", str(seeds), "--set", STOP])
    record(
        "workers-to-target", "One worker and two, to a held-out accuracy of 97.5 %", rows, notes=[f"The script calls `{same}`."]
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 11)
