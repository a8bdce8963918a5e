"""Two workers against one while others use the cores: what a fixed number of iterations per round costs beside neighbours.

    python benchmarks/busy.py 5                     # pairs of runs for each case; records results/busy.json
    python benchmarks/busy.py 5 'sync.iterations=1' # the same with changes to the job; records nothing

A busy process computes without end; half of one computes for 5 ms, then sleeps for 5 ms. A quota is that of a control group, which
takes the rights of root. One worker and two run in turn beside the same neighbours. Both judge once, at the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recording import record
from runs import machine, partrain, rate, shown

JOB = Path(__file__).parents[1] / "jobs" / "mnist.toml"
ROUNDS = 300
WHOLE = "while True: pass"
HALF = "import time\nwhile True:\n end = time.perf_counter() + 0.005\n while time.perf_counter() < end: pass\n time.sleep(0.005)"
NEIGHBOURS = {"0": [], "0.5": [HALF], "1": [WHOLE], "2": [WHOLE, WHOLE]}
QUOTAS = (1.0, 1.5)
"""Cores that a control group gives to partrain's processes."""


@contextmanager
def quota(cores: float) -> Iterator[None]:
    """Let this process and those that it starts use so much processor time."""
    first = Path("/sys/fs/cgroup/cpu")  # version 1
    root = first if first.exists() else Path("/sys/fs/cgroup")
    group, members = root / "partrain-busy", "tasks" if root == first else "cgroup.procs"
    group.mkdir(exist_ok=True)
    limits = {"cpu.cfs_quota_us": f"{cores * 100_000:.0f}"} if root == first else {"cpu.max": f"{cores * 100_000:.0f} 100000"}
    for file, text in limits.items():
        (group / file).write_text(text)
    (group / members).write_text(str(os.getpid()))
    try:
        yield
    finally:
        (root / members).write_text(str(os.getpid()))
        group.rmdir()


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


def compare(pairs: int, sets: list[str]) -> tuple[list[float], list[float]]:
    """Ratios of items per second, two workers / one, and the shares of their time that two workers waited."""
    ratios, waiting = [], []
    for seed in range(pairs):
        stop = f"stop={{rounds={ROUNDS}, judge_every={ROUNDS}}}"
        one, two = (partrain(JOB, f"workers=[{{count={count}}}]", stop, f"seed={seed}", *sets) for count in (1, 2))
        ratios.append(rate(two) / rate(one))
        seconds = [worker["seconds"] for worker in two["workers"]]
        waiting.append(sum(each["wait"] for each in seconds) / sum(sum(each.values()) for each in seconds))
    return ratios, waiting


def main(pairs: int, sets: list[str]) -> None:
    print(f"two workers beside busy processes, {pairs} pairs each, {' '.join(sets) or 'the job as it is'}; {machine()}")
    cases = [(f"{name} busy processes", busy(programs)) for name, programs in NEIGHBOURS.items()]
    cases += [(f"quota of {cores:g} cores", quota(cores)) for cores in QUOTAS if os.getuid() == 0]
    rows = []
    for name, case in cases:
        with case:
            ratios, waiting = compare(pairs, sets)
        print(f"{name}: two workers / one, items per second: {shown(ratios)}; waiting {shown(waiting)}", flush=True)
        rows.append({"beside": name, "two workers / one, items per second": ratios, "share of waiting": waiting})
    if not sets:
        record("busy", "Two workers beside busy processes", rows, notes=["Wanted: 0.95 or more in each row."])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
