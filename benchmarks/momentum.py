"""How far the center may follow updates: what the remarks on `outer_lr` and `momentum` of `async`, and on `diloco`, go by.

    python benchmarks/momentum.py [SEEDS]

Each rule's job in jobs/rules, with rounds of 10 iterations under diloco, to the end of its item-iterations without a target, at
outer learning rates eta and momenta beta; reach is eta / (1 - beta), the lengths of itself that an update is followed in all.
Simulated workers: the same figures on any machine of one kind, whatever else it does.
"""

from __future__ import annotations

import sys
from pathlib import Path

from runs import machine, partrain, shown

JOBS = Path(__file__).parents[1] / "jobs" / "rules"
COMMON = ["stop={item_iterations=320000}", 'transport={kind="simulated", delay=[0.0003]}']
OWN = {"async": [], "diloco": ["sync.iterations=10"]}
MOMENTUM = {"async": "momentum", "diloco": "outer_momentum"}
MOMENTA = (0.5, 0.6, 0.7, 0.8, 0.9)
CASES = [
    *(("async", workers, eta, 0.0) for workers in (2, 3, 4, 8) for eta in (1.0, 0.5, 0.25, 0.125)),
    *(("async", workers, 1.0, beta) for workers in (2, 8) for beta in MOMENTA),
    *(("diloco", workers, 0.7, beta) for workers in (2, 8) for beta in (0.0, 0.5, 0.9, 0.95, 0.97, 0.99)),
]
"""Rule, workers, eta, beta."""


def accuracy(rule: str, workers: int, eta: float, beta: float, seed: int) -> float:
    """Percent of the held-out items, at the end."""
    outer = [f"sync.outer_lr={eta}", f"sync.{MOMENTUM[rule]}={beta}"]
    own = [f"seed={seed}", f'workers=[{{device="cpu", count={workers}}}]', *OWN[rule]]
    return 100 * float(partrain(JOBS / f"{rule}.toml", *COMMON, *outer, *own)["metrics"]["accuracy"])


def main(seeds: int) -> None:
    print(f"{seeds} seeds; {machine()}\n")
    print("| rule | workers | eta | beta | reach | judged accuracy, % |\n|---|---|---|---|---|---|", flush=True)
    for case in CASES:
        rule, workers, eta, beta = case
        found = [accuracy(*case, seed) for seed in range(seeds)]
        print(f"| {rule} | {workers} | {eta:g} | {beta:g} | {eta / (1 - beta):.1f} | {shown(found, '.1f')} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 3)
