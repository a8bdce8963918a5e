"""The LSTM of the older parallel trainer with one to four workers, as it was run there and corrected.

    python benchmarks/lstm_series.py [ROUNDS]

There RMSprop (decay 0.999, no bias correction) lost its squares at each averaging, and "three times as fast with threads" was found.
After k iterations the first steps are 1 / sqrt(1 - 0.999^k) times as long as later ones, on any number of workers: so the
table has a lone worker that forgets, too. Item-iterations until the judged loss is at most 2e-4, for each worker and in all.
"""

from __future__ import annotations

import sys
from pathlib import Path

from recording import record
from runs import partrain

RATE = 5e-6
"""A tenth of the rate there, which takes this network to the target within two rounds: too few to compare."""
JOB = Path(__file__).parents[1] / "jobs" / "lstm-series.toml"
OVERLAP = {1: 0.0, 2: 0.333, 3: 0.389, 4: 0.381}
"""Of partitions of 200, 120, 90 and 70 series, as there."""

NOTE = (
    "There a lone worker kept its squares and several forgot them at each averaging: 18,400 item-iterations against "
    '7,680, 6,916 and 6,248 per worker, "about three times as fast, with no gain beyond two threads". Both halves '
    "of that are in the table without threads having a part in it: a lone worker that forgets needs 10,400, and "
    "workers whose squares are averaged need as many item-iterations each as a lone one. More workers gain little "
    "here, and the work in all grows."
)


def main(rounds: int) -> None:
    rows = []
    for state in ("reset", "average"):
        for workers, overlap in OVERLAP.items():
            content = partrain(
                JOB,
                f'sync={{rule="average", passes=4, optimizer_state="{state}"}}',
                f"partition.overlap={overlap}",
                f'workers=[{{device="cpu", count={workers}}}]',
                f"stop={{loss=2e-4, rounds={rounds}, judge_every=1}}",
                f"optimizer.lr={RATE}",
            )
            total = content["item_iterations"]
            rows.append(
                {
                    "workers": str(workers),
                    "moments when mixed": state,
                    "status": content["status"],
                    "rounds": str(content["rounds"]),
                    "item-iterations per worker": total // workers,
                    "in all": total,
                    "judged loss": content["loss"],
                }
            )
            print(rows[-1], flush=True)
    title = f"The older trainer's LSTM: RMSprop with lr {RATE} to a judged loss of 2e-4, seed 0"
    record("lstm-series", title, rows, notes=[NOTE])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
