"""Workers whose items differ: averaging and federated rules, with five workers of which each has two digits of MNIST.

    python benchmarks/drift.py [SEEDS]

An MLP 784-128-10, plain SGD of batch 32, rounds of 100 iterations, simulated workers. Per rule the learning rate of {0.1, 0.2, 0.4, 0.8} and
the form in RULES whose first seed has the best judged accuracy after 60 rounds; then the median test accuracy over seeds (default 5),
and the rounds to a judged accuracy of 95 %, judged every second round.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

from recording import record
from runs import partrain, shown

JOB = Path(__file__).parents[1] / "jobs" / "mnist.toml"
ROUNDS, TARGET = 60, 0.95
RATES = 0.1, 0.2, 0.4, 0.8
RULES = {
    "average": ['rule="average"'],
    "fedprox": [f'rule="fedprox", proximal={mu}' for mu in (0.01, 0.1, 1.0)],
    "scaffold": ['rule="scaffold"'],
    "feddyn": [f'rule="feddyn", proximal={alpha}' for alpha in (0.001, 0.01, 0.1)],
    "fedadam": [f'rule="fedopt", outer_lr={eta}' for eta in (0.003, 0.01, 0.03)],
    "fedyogi": [f'rule="fedopt", server="yogi", outer_lr={eta}' for eta in (0.01, 0.03, 0.1)],
    "fedadagrad": [f'rule="fedopt", server="adagrad", outer_lr={eta}' for eta in (0.03, 0.1, 0.3)],
}


def run(sync: str, rate: float, seed: int, *stop: str) -> dict[str, Any]:
    """The summary of a run."""
    return partrain(
        JOB,
        'model={name="mlp", hidden=[128]}',
        'partition.order="by-label"',
        f'optimizer={{name="sgd", lr={rate}, batch_size=32}}',
        f"sync={{{sync}, iterations=100}}",
        'workers=[{device="cpu", count=5}]',
        f"stop={{rounds={ROUNDS}, judge_every=2{''.join(stop)}}}",
        'transport={kind="simulated"}',
        f"seed={seed}",
    )


def main() -> None:
    """Tune and measure each rule, and record the table."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    rows = []
    for name, forms in RULES.items():
        tuned = {(form, rate): run(form, rate, 0)["metrics"].get("accuracy", 0.0) for form in forms for rate in RATES}
        form, rate = max(tuned, key=tuned.__getitem__)
        whole = [run(form, rate, seed) for seed in range(1, seeds + 1)]
        short = [run(form, rate, seed, f", accuracy={TARGET}") for seed in range(1, seeds + 1)]
        reached = [summary["rounds"] for summary in short if summary["status"] == "reached"]
        rows.append({
            "rule": name, "settings": f"{form}, lr={rate}",
            "test accuracy": shown([summary["test"]["accuracy"] for summary in whole], ".4f"),
            "reached": f"{len(reached)}/{seeds}",
            "rounds to 95 %": statistics.median(reached) if reached else "-",
        })  # fmt: skip
        print(rows[-1], flush=True)
    record("drift", "Workers whose items differ: two digits each", rows)


if __name__ == "__main__":
    main()
