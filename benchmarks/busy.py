"""Two workers against one while other processes keep cores busy: what a fixed number of iterations per round costs beside neighbours.

    python benchmarks/busy.py 5                     # pairs of runs for each number of busy processes: 0, 0.5, 1 and 2
    python benchmarks/busy.py 5 'sync.iterations=1' # the same with changes to the job

A busy process computes without end; half of one computes for 5 ms, then sleeps for 5 ms. One worker and two run in turn beside the
same neighbours. Seconds are those of training; both judge once, at the end.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runs import machine, partrain, rate, shown

JOB = Path(__file__).parents[1] / "jobs" / "mnist.toml"
ROUNDS = 300
WHOLE = "while True: pass"
HALF = "import time\nwhile True:\n end = time.perf_counter() + 0.005\n while time.perf_counter() < end: pass\n time.sleep(0.005)"
NEIGHBOURS = {"0": [], "0.5": [HALF], "1": [WHOLE], "2": [WHOLE, WHOLE]}


@contextmanager
def busy(programs: list[str]) -> Iterator[None]:
    """Processes that compute meanwhile."""
    running = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def main(pairs: int, sets: list[str]) -> None:
    print(f"two workers beside busy processes, {pairs} pairs each, {' '.join(sets) or 'the job as it is'}; {machine()}")
    for name, programs in NEIGHBOURS.items():
        ratios, waiting = [], []
        with busy(programs):
            for seed in range(pairs):
                one, two = (
                    partrain(
                        JOB,
                        f"workers=[{{count={count}}}]",
                        f"stop={{rounds={ROUNDS}, judge_every={ROUNDS}}}",
                        f"seed={seed}",
                        *sets,
                    )
                    for count in (1, 2)
                )
                ratios.append(rate(two) / rate(one))
                seconds = [worker["seconds"] for worker in two["workers"]]
                waiting.append(sum(each["wait"] for each in seconds) / sum(sum(each.values()) for each in seconds))
        print(f"{name:>3} busy: two workers / one, items per second: {shown(ratios)}; waiting {shown(waiting)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
