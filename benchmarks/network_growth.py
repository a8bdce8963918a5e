"""Time to a target over the number of machines, by rule and network: simulated workers, each a machine of its own.

    python benchmarks/network_growth.py [--most N] [--only RULE]      # an hour; records results/network-growth-*.json

An MLP of 25,450 parameters learns MNIST to 93 % with the same small batches and learning rate everywhere: more workers average out more
noise. An iteration takes 10 ms, and NETWORKS have a hundredth of the bandwidth in their names: so computing and links weigh as for a network a
hundred times as large. Synchronous rules compute the same on all networks: one run gives the rounds to the target, and a short one the seconds of
a round on each network.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from statistics import median

from recording import FOLDER, record

NETWORKS = {
    "data centre": "{bandwidth = 12.5e6, latency = 5e-5}",  # 10 Gbit/s
    "office": "{bandwidth = 1.25e6, latency = 1e-3}",  # 1 Gbit/s
    "home": "{bandwidth = 2.5e4, latency = 0.02, loss = 0.001}",  # 20 Mbit/s
}
RULES = {
    "bsp": (1, ""),
    "average, 10 iterations": (10, ""),
    "average, 100 iterations": (100, ""),
    "diloco, 100 iterations": (100, ", outer_lr = 0.7, outer_momentum = 0.5"),
    "sparseloco, 100 iterations": (100, ""),
    "gossip, 10 iterations": (10, ""),
}
WORKERS = 2, 10, 100, 1000
SLOW = "bsp"
"""Rule that meets so often that its largest runs would take hours."""
ITERATIONS = 6000
"""Most local iterations of a worker."""
JOB = """\
name = "growth"
model = {{name = "mlp", hidden = [32]}}
dataset = {{name = "mnist", validation = 2000}}
optimizer = {{name = "sgd", lr = 0.1, batch_size = 2}}
sync = {{rule = "{rule}", iterations = {iterations}{settings}}}
workers = [{{count = {count}, threads = 1}}]
stop = {{{target}rounds = {rounds}, judge_every = {judge}}}
checkpoint = {{every = 100000}}
transport = {{kind = "simulated", speed = [0.1], network = {network}}}
"""


def run(name: str, count: int, network: str, rounds: int, target: str = "") -> tuple[int, float, bool]:
    """Train; return rounds, median simulated seconds of a round, and whether the target was reached."""
    iterations, settings = RULES[name]
    judge = max(1, 10 // iterations)
    values = {"rule": name.partition(",")[0], "iterations": iterations, "settings": settings, "count": count, "network": network}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "job.toml").write_text(JOB.format(**values, target=target, rounds=rounds, judge=judge))
        words = [sys.executable, "-m", "partrain", "run", f"{folder}/job.toml", "--out", f"{folder}/run", "-q"]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            raise RuntimeError(done.stderr)
        events = [json.loads(line) for line in (Path(folder) / "run/events.jsonl").read_text().splitlines()]
    ends = [event["seconds"] for event in events if event["event"] == "round" and event["rank"] == 0]
    spans = [later - former for former, later in pairwise(ends)]
    return len(ends), median(spans or ends), done.returncode == 0


def former(network: str, chosen: Collection[str]) -> list[dict[str, str | float]]:
    """The recorded rows of the other rules."""
    file = FOLDER / f"network-growth-{network.replace(' ', '-')}.json"
    rows: list[dict[str, str | float]] = json.loads(file.read_bytes())["rows"] if file.exists() else []
    return [row for row in rows if row["rule"] not in chosen]


def main(most: int, only: str) -> None:
    chosen = [name for name in RULES if only in name]
    rows = {network: former(network, chosen) for network in NETWORKS}
    for name in chosen:
        iterations, _ = RULES[name]
        for count in (count for count in WORKERS if count <= most):
            if name == SLOW and count > 100:
                continue
            rounds, _, reached = run(name, count, NETWORKS["office"], ITERATIONS // iterations, "accuracy = 0.93, ")
            for network, link in NETWORKS.items():
                _, seconds, _ = run(name, count, link, 3)
                if reached:
                    rows[network].append({"workers": count, "rule": name, "seconds": rounds * seconds, "rounds": rounds})
                print(network, name, count, rounds, f"{rounds * seconds:.4g} s" if reached else "not reached", flush=True)
    for network, points in rows.items():
        chart = {"x": "workers", "y": "seconds", "series": "rule", "log": ["x", "y"]}
        title = f"Simulated seconds to 93 % of MNIST over workers: {network} network"
        record(f"network-growth-{network.replace(' ', '-')}", title, points, chart=chart)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1000, help="most workers")
    parser.add_argument("--only", default="", help="rules with this word in their names; the others stay as recorded")
    given = parser.parse_args()
    main(given.most, given.only)
