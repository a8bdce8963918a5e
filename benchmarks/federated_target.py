"""Clients of a round and local passes against the time to a target: 1,000 simulated clients on two kinds of links.

    python benchmarks/federated_target.py [SEEDS]

FedAvg trains an MLP 784-128-10 on MNIST to a judged accuracy of 90 %. Each of 1,000 clients has 50 items of few digits (Dirichlet, alpha 3), one in
five cannot be reached, an iteration on 10 items takes 10 ms. Clients send their networks to a server of 1 Gbit/s, whose link they share. All seconds are
simulated, so no load changes them. Medians over seeds (default 3).
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

from recording import record
from runs import partrain

JOB = Path(__file__).parents[1] / "jobs" / "federated.toml"
LINKS = {
    "20 Mbit/s, 20 ms": "{bandwidth=2.5e6, latency=0.02, server=125e6}",
    "1 Mbit/s, 100 ms": "{bandwidth=1.25e5, latency=0.1, server=125e6}",
}
DRAWN, PASSES = (5, 20, 80), (1, 5, 20)
ROUNDS = 400


def run(link: str, drawn: int, passes: int, seed: int) -> dict[str, Any]:
    """The summary of a run to the target."""
    return partrain(
        JOB,
        "partition.clients=1000",
        "optimizer.batch_size=10",
        f'sync={{rule="average", passes={passes}}}',
        f'transport={{kind="simulated", availability=[0.8], speed=[0.1], network={LINKS[link]}}}',
        f'workers=[{{device="cpu", count={drawn}}}]',
        f"stop={{rounds={ROUNDS}, judge_every=2, accuracy=0.9}}",
        f"seed={seed}",
    )


def main() -> None:
    """Measure all cases, and record the table and the chart."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    rows: list[dict[str, Any]] = []
    for link in LINKS:
        for passes in PASSES:
            for drawn in DRAWN:
                ended = [run(link, drawn, passes, seed) for seed in range(seeds)]
                reached = [summary for summary in ended if summary["status"] == "reached"]
                print(link, passes, drawn, [summary["rounds"] for summary in ended], flush=True)
                if len(reached) < seeds:
                    continue
                rows.append({
                    "link": link,
                    "local passes": passes,
                    "clients of a round": drawn,
                    "rounds": statistics.median(summary["rounds"] for summary in reached),
                    "seconds": statistics.median(summary["seconds"]["train"] for summary in reached),
                    "MB from all clients": round(statistics.median(
                        sum(event["bytes"] for event in summary["events"]) / 1e6 for summary in reached)),
                    "series": f"{link}, {passes} {'pass' if passes == 1 else 'passes'}",
                })  # fmt: skip
    chart = {"x": "clients of a round", "y": "seconds", "series": "series", "log": ["x", "y"]}
    title = "1,000 simulated clients: seconds to 90 % of MNIST over the clients of a round"
    record("federated-target", title, rows, notes=[__doc__.split("\n\n")[2]], chart=chart)


if __name__ == "__main__":
    main()
