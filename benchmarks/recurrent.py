"""Recurrent layers in compiled code against torch's: items per second of one worker.

    python benchmarks/recurrent.py [SEEDS]        # records the results

Both runs of a seed follow one another. Sequences of unequal length are packed.
"""

from __future__ import annotations

import sys

from precision import compared
from recording import record

CASES = {
    f"{kind}, {name}": (job, rounds, [f'model.name="{kind}"'])
    for kind in ("lstm", "gru", "rnn")
    for name, job, rounds in (
        ("64 tokens, 128 hidden units, batch 16", "text-lstm", 8),
        ("series, 150 hidden units, batch 1", "lstm-series", 2),
        ("2 to 16 tokens, 16 hidden units, batch 32", "unequal-lengths", 40),
    )
}
"""Job, rounds, and what is changed."""


def main(seeds: int) -> None:
    rows = []
    for row, _ in compared(CASES, seeds, ("compiled=false", "compiled=true"), "items per second, compiled / torch"):
        rows.append(row)
        print(row, flush=True)
    record("recurrent", "Recurrent layers in compiled code against torch's", rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
