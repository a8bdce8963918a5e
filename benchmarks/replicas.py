"""Several workers of one process, `[[workers]] replicas`, against as many processes, for tiny networks.

python benchmarks/replicas.py 3      # runs of each kind, in turn; records results/replicas.json
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from recording import record
from runs import machine

ROUNDS, SETTLED = 12, 3
"""Rounds of a run, and the first of those that count: before it memory is new."""
JOB = """
name = "replicas"
[model]
name = "mlp"
hidden = {hidden}
[dataset]
kind = "synthetic"
function = "blobs"
items = 13000
features = {features}
validation = 200
[optimizer]
name = "sgd"
lr = 0.01
momentum = 0.9
batch_size = {batch}
[sync]
rule = "average"
iterations = 100
[[workers]]
{workers}
[stop]
rounds = {rounds}
judge_every = {rounds}
[checkpoint]
every = 1000
"""
NETWORKS = {
    "xor (2, 4), batch 4": {"features": 2, "hidden": [4], "batch": 4},
    "wine (13, 32), batch 16": {"features": 13, "hidden": [32], "batch": 16},
    "function fit (16, 50, 50), batch 1": {"features": 16, "hidden": [50, 50], "batch": 1},
}


def speed(workers: str, network: dict[str, Any]) -> float:
    """Train, and return the item-iterations per second."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.toml"
        job.write_text(JOB.format(workers=workers, rounds=ROUNDS, **network))
        done = subprocess.run(
            [sys.executable, "-m", "partrain", "run", str(job), "--out", f"{folder}/run", "-q"], capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        events = [json.loads(line) for line in (Path(folder) / "run" / "events.jsonl").read_text().splitlines()]
    rounds = [event for event in events if event["event"] == "round" and event["round"] >= SETTLED]
    items = sum(event["items"] for event in rounds if event["round"] > SETTLED)
    seconds = [event["seconds"] for event in rounds if event["rank"] == 0]
    return items / (max(seconds) - min(seconds))


def main(runs: int) -> None:
    print(f"replicas, {runs} runs each; {machine()}")
    rows: list[dict[str, Any]] = []
    for name, network in NETWORKS.items():
        for count in (1, 2, 4, 16, 64):
            kinds = {"processes": f"count = {count}", "one process": f"replicas = {count}"}
            if count > 2:
                kinds["two processes"] = f"count = 2\nreplicas = {count // 2}"
            speeds: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(runs):
                for kind, workers in kinds.items():
                    speeds[kind].append(speed(workers, network))
            row: dict[str, Any] = {"network": name, "workers": float(count)}
            row |= {f"items/s, {kind}": numbers for kind, numbers in speeds.items()}
            for kind in list(kinds)[1:]:
                ratios = [one / other for one, other in zip(speeds[kind], speeds["processes"], strict=True)]
                row[f"{kind} / processes"] = ratios
            rows.append(row)
            print(name, count, *(f"{kind} {median(numbers):,.0f}" for kind, numbers in speeds.items()), flush=True)
    record("replicas", "Several workers in one process, tiny networks", rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
