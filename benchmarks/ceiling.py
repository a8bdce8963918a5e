"""What two cores of this machine can give at all: two unrelated hand-written loops at once against one."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from runs import hand, machine, shown


def main(pairs: int) -> None:
    print(f"ceiling, {pairs} pairs; {machine()}")
    ratios = []
    with ThreadPoolExecutor(2) as pool:
        for _ in range(pairs):
            alone = hand(iterations=4000)["items_per_second"]
            together = list(pool.map(lambda seed: hand(iterations=4000, seed=seed)["items_per_second"], range(2)))
            ratios.append(sum(together) / alone)
    print(f"two unrelated loops / one loop, items per second: {shown(ratios)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
