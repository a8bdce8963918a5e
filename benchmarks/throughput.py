"""Items per second: one worker against the hand-written loop, two workers against one. A, B, A, B ... in one run.

python benchmarks/throughput.py [PAIRS] [--workers]         # records; --workers: only the second, and prints
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from recording import record
from runs import hand, partrain, rate, shown

JOB = Path(__file__).parents[1] / "jobs" / "mnist.toml"
BSP = 'sync={{rule="bsp", iterations={iterations}}}'
ITERATIONS = 4000


Rows = list[dict[str, Any]]


def one_worker_against_a_loop(pairs: int) -> Rows:
    rows: Rows = []
    for batch in (16, 64, 256):
        ratios: dict[int, list[float]] = {0: [], 1: []}
        for seed in range(pairs):
            one = rate(partrain(JOB, *_plain(batch, 1, ITERATIONS // 10, seed)))
            for onednn in ratios:
                by_hand = hand(batch=batch, iterations=ITERATIONS, seed=seed, onednn=onednn)["items_per_second"]
                ratios[onednn].append(one / by_hand)
        rows += [
            {"items per second": f"one worker / hand-written loop, batch {batch}", "ratio": ratios[0]},
            {"items per second": f"one worker / the loop with its products by oneDNN, batch {batch}", "ratio": ratios[1]},
        ]
    return rows


def two_workers_against_one(pairs: int) -> Rows:
    """Beside it what the machine can give at that moment: two runs of one worker at once, which never meet.

    Workers that meet wait for the slower one in each round, even if meetings cost nothing: the bound is what two runs at once would keep
    of their speed if each pair of rounds took as long as its slower one.
    """
    ratios, ceilings = [], []
    gradients: dict[int, list[float]] = {1: [], 10: []}
    bounds: dict[str, list[float]] = {"10 iterations": [], "one iteration": []}
    with ThreadPoolExecutor(2) as pool:
        for seed in range(pairs):
            one_worker = rate(partrain(JOB, *_plain(64, 1, ITERATIONS // 10, seed)))
            two_workers = rate(partrain(JOB, *_plain(64, 2, ITERATIONS // 10, seed)))
            apart = _at_once(pool, *_plain(64, 1, ITERATIONS // 10, seed))
            ratios.append(two_workers / one_worker)
            ceilings.append(sum(map(rate, apart)) / one_worker)
            bounds["10 iterations"].append(_kept(apart))
            bounds["one iteration"].append(_kept(_at_once(pool, *_plain(64, 1, ITERATIONS // 2, seed), BSP.format(iterations=1))))
            for iterations, by_pair in gradients.items():
                sync, rounds = BSP.format(iterations=iterations), ITERATIONS // 2 // iterations
                bsp = [rate(partrain(JOB, *_plain(64, workers, rounds, seed), sync)) for workers in (2, 1)]
                by_pair.append(bsp[0] / bsp[1])
    return [
        {"items per second": "two workers / one worker, 10 iterations of batch 64 per round", "ratio": ratios},
        {"items per second": "two runs of one worker at once / one run", "ratio": ceilings},
        {
            "items per second": "two workers / two runs at once",
            "ratio": [one / other for one, other in zip(ratios, ceilings, strict=True)],
        },
        *(
            {"items per second": f"two workers / one worker, `bsp`: {iterations} averaged gradients per round", "ratio": by_pair}
            for iterations, by_pair in gradients.items()
        ),
        *(
            {"items per second": f"bound of two workers / two runs at once, {name} of batch 64 per round", "ratio": kept}
            for name, kept in bounds.items()
        ),
    ]


def _at_once(pool: ThreadPoolExecutor, *sets: str) -> list[dict[str, Any]]:
    """The summaries of two equal runs at once."""
    return list(pool.map(lambda number: partrain(JOB, *sets), range(2)))


def _kept(apart: list[dict[str, Any]]) -> float:
    """The mean time of local iterations, as a share of the slower one's of each pair of rounds."""
    seconds = [[event["compute"] for event in run["events"]] for run in apart]
    return sum(map(sum, seconds)) / 2 / sum(map(max, *seconds))


def _plain(batch: int, workers: int, rounds: int, seed: int) -> list[str]:
    """The MNIST job judged once, at its end, as the loop is."""
    return [
        f"optimizer.batch_size={batch}",
        f'workers=[{{device="cpu", count={workers}}}]',
        f"stop={{rounds={rounds}, judge_every={rounds}}}",
        f"seed={seed}",
    ]


def main(pairs: int, only_workers: bool) -> None:
    rows = [] if only_workers else one_worker_against_a_loop(pairs)
    rows += two_workers_against_one(pairs)
    for row in rows:
        print(row["items per second"], shown(row["ratio"]), sep=": ")
    if not only_workers:
        record("throughput", f"Items per second, {pairs} pairs", rows)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    main(numbers[0] if numbers else 5, only_workers="--workers" in sys.argv)
