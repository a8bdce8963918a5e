"""`[engine] precision = "bfloat16"` against float32: items per second of one worker, and the test score after equal work.

    python benchmarks/precision.py [SEEDS]        # records the results; needs a processor with bfloat16 units, such as avx512_bf16

Both runs of a seed follow one another. Each job has one worker and so many rounds that a run takes seconds; its learning rate's schedule
ends with it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recording import record
from runs import partrain

JOBS = Path(__file__).parents[1] / "jobs"
CASES: dict[str, tuple[str, int, list[str]]] = {
    "MLP 784-128-10, batch 64": ("mnist", 400, []),
    "MLP 784-128-10, batch 256": ("mnist", 200, ["optimizer.batch_size=256"]),
    "MLP 784-1024-1024-10, batch 256": ("mnist", 40, ["optimizer.batch_size=256", "model.hidden=[1024, 1024]"]),
    "CNN (mnist-cnn)": ("mnist-cnn", 30, []),
    "LSTM (text-lstm)": ("text-lstm", 20, []),
    "transformer (text-transformer)": ("text-transformer", 12, []),
}
"""Job, rounds, and what is changed."""


def run(job: str, rounds: int, changes: list[str], seed: int, engine: str) -> tuple[float, float]:
    """Items per second of training, and test accuracy, with a setting of `[engine]`."""
    words = [f"stop={{rounds={rounds}, judge_every={rounds}}}", 'workers=[{device="cpu", count=1, threads=1}]', f"seed={seed}"]
    summary: dict[str, Any] = partrain(JOBS / f"{job}.toml", *words, f"engine.{engine}", *changes)
    worker = summary["workers"][0]
    return worker["item_iterations"] / worker["seconds"]["compute"], (summary["test"] or {}).get("accuracy", float("nan"))


def compared(
    cases: dict[str, tuple[str, int, list[str]]], seeds: int, engines: tuple[str, str], column: str
) -> Iterator[tuple[dict[str, Any], list[list[tuple[float, float]]]]]:
    """Run all cases with two settings of `[engine]` in turn: a row with the second's speed by the first's, and the runs."""
    for name, case in cases.items():
        pairs = [[run(*case, seed, engine) for engine in engines] for seed in range(seeds)]
        yield {"network": name, column: [second[0] / first[0] for first, second in pairs]}, pairs


def main(seeds: int) -> None:
    rows = []
    engines = 'precision="float32"', 'precision="bfloat16"'
    for row, pairs in compared(CASES, seeds, engines, "items per second, bfloat16 / float32"):
        row["test accuracy, float32"] = [full[1] for full, _ in pairs]
        row["test accuracy, bfloat16"] = [half[1] for _, half in pairs]
        rows.append(row)
        print(row, flush=True)
    record("precision", "bfloat16 against float32", rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
