"""How far the network may follow updates: what the remarks on `outer_lr` and momentum of `async`, `slowmo` and `diloco` go by.

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
SGD = 'optimizer={name="sgd", lr=0.2, momentum=0.9, batch_size=64, schedule="linear", warmup=0.1}'
OWN: dict[str, list[str]] = {
    "async": [],
    "slowmo": [],
    "diloco": ["sync.iterations=10"],
    "diloco, sgd": ["sync.iterations=10", SGD],
}
"""What is changed in a rule's job."""
CASES = [
    *(("async", workers, eta, 0.0) for workers in (2, 3, 4, 8) for eta in (1.0, 0.5, 0.25, 0.125)),
    *(("async", workers, 1.0, beta) for workers in (2, 4, 8) for beta in (0.5, 0.6, 0.7, 0.8, 0.9)),
    *(("slowmo", workers, 1.0, beta) for workers in (2, 8) for beta in (0.0, 0.3, 0.5, 0.7, 0.8, 0.9)),
    *(("diloco", workers, 0.7, beta) for workers in (2, 8) for beta in (0.0, 0.5, 0.9, 0.95, 0.97, 0.99)),
    *(("diloco, sgd", workers, 0.7, beta) for workers in (2, 8) for beta in (0.0, 0.5, 0.8, 0.9)),
]
"""Rule, workers, eta, beta."""


def accuracy(name: str, workers: int, eta: float, beta: float, seed: int) -> float:
    """Percent of the held-out items, at the end."""
    rule = name.partition(",")[0]
    outer = [f"sync.outer_lr={eta}", f"sync.{'outer_' * (rule == 'diloco')}momentum={beta}"]
    own = [f"seed={seed}", f'workers=[{{device="cpu", count={workers}}}]', *OWN[name]]
    return 100 * float(partrain(JOBS / f"{rule}.toml", *COMMON, *outer, *own)["metrics"]["accuracy"])


def main(seeds: int) -> None:
    print(f"{seeds} seeds; {machine()}\n")
    print("| rule | workers | eta | beta | reach | judged accuracy, % |\n|---|---|---|---|---|---|", flush=True)
    for case in CASES:
        name, workers, eta, beta = case
        found = [accuracy(*case, seed) for seed in range(seeds)]
        print(f"| {name} | {workers} | {eta:g} | {beta:g} | {eta / (1 - beta):.1f} | {shown(found, '.1f')} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 3)
