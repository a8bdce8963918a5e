"""Recurrent layers in compiled code against torch's: items per second of one worker.

    python benchmarks/recurrent.py [SEEDS]        # records the results

Both runs of a seed follow one another. Sequences of unequal length are packed.
"""

from __future__ import annotations

import sys
from typing import Any

from precision import run
from recording import record

CASES = {
    f"{kind}, {name}": (job, rounds, [f'model.name="{kind}"', *changes])
    for kind in ("lstm", "gru", "rnn")
    for name, job, rounds, changes in (
        ("64 tokens, 128 hidden units, batch 16", "text-lstm", 8, []),
        ("series of 50 steps, 150 hidden units, batch 1", "lstm-series", 2, []),
        ("series of unequal lengths", "unequal-lengths", 40, []),
    )
}
"""Job, rounds, and what is changed."""


def main(seeds: int) -> None:
    rows = []
    for name, case in CASES.items():
        pairs = [[run(*case, seed, f"compiled={compiled}") for compiled in ("false", "true")] for seed in range(seeds)]
        row: dict[str, Any] = {"layers": name}
        row["items per second, compiled / torch"] = [ours[0] / torchs[0] for torchs, ours in pairs]
        rows.append(row)
        print(row, flush=True)
    record("recurrent", "Recurrent layers in compiled code against torch's", rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
