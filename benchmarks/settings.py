"""A job with one setting and with another, in turn: the ratio of their rates (items per second of training).

    python benchmarks/settings.py jobs/mnist.toml 7 faults.on_loss=replay faults.on_loss=stop 'stop={rounds=2000, judge_every=100}'

The settings behind the first two are those of both. Which one goes first changes from pair to pair.
"""

from __future__ import annotations

import sys
from pathlib import Path

from runs import machine, partrain, rate, shown


def main(job: str, pairs: int, one: str, other: str, common: list[str]) -> None:
    print(f"{job} {' '.join(common)}, {pairs} pairs; {machine()}")
    ratios = []
    for seed in range(pairs):
        rates = {}
        for setting in (one, other) if seed % 2 == 0 else (other, one):
            rates[setting] = rate(partrain(Path(job), f"seed={seed}", setting, *common))
        ratios.append(rates[one] / rates[other])
    print(f"rate with {one} / with {other}: {shown(ratios, '.3f')}")


if __name__ == "__main__":
    path, count, first, second, *both = sys.argv[1:]
    main(path, int(count), first, second, both)
