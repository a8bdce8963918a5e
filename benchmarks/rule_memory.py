"""Measure the memory of a worker's round under each rule, in vectors (d,), beside what `plan` says.

    python benchmarks/rule_memory.py            # all rules: two minutes
    python benchmarks/rule_memory.py topk

A network of 9 million parameters trains for two rounds with two workers; meanwhile the kernel's count of anonymous memory of each process is
read. What a network of 100 parameters takes is subtracted: libraries. Rows and snapshots are shared memory, and not counted here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from partrain.rules import RULES

JOB = """
name = "memory"
model = {{name = "mlp", hidden = {hidden}}}
dataset = {{kind = "synthetic", function = "blobs", items = 300}}
optimizer = {{name = "sgd", lr = 0.001, batch_size = 8}}
sync = {{rule = "{rule}", iterations = 2}}
workers = [{{count = 2}}]
stop = {{rounds = 2}}
"""
LARGE, SMALL = [3000, 3000], [10]
VECTOR = 4 * (2 * 3000 + 3000 + 3000 * 3000 + 3000 + 3000 * 3 + 3)
"""Bytes of the large network's parameters: blobs have two numbers and three classes."""


def command(folder: str, rule: str, hidden: list[int], *words: str) -> list[str]:
    """Write the job, and return the words of a command that takes it."""
    Path(folder, "job.toml").write_text(JOB.format(rule=rule, hidden=hidden))
    return [sys.executable, "-m", "partrain", words[0], f"{folder}/job.toml", *words[1:]]


def anonymous(rule: str, hidden: list[int]) -> int:
    """Run a job, and return the anonymous memory in bytes of one of its workers, at the most."""
    with tempfile.TemporaryDirectory() as folder:
        words = command(folder, rule, hidden, "run", "--out", f"{folder}/run", "--quiet")
        run = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        most: dict[str, int] = {}
        while run.poll() is None:
            for entry in Path("/proc").iterdir():
                with suppress(OSError, TypeError):
                    if entry.name.isdigit() and (entry / "cwd").readlink() == Path(folder):
                        kilobytes = re.search(r"RssAnon:\s+(\d+)", (entry / "status").read_text())
                        most[entry.name] = max(most.get(entry.name, 0), 1024 * int(kilobytes[1]))  # type: ignore[index]
            time.sleep(0.002)
        return sorted(most.values())[-2]  # two are the workers


def planned(rule: str) -> float:
    """Return the vectors of a worker that `plan` counts beside parameters and gradient in its row, and its part of the center."""
    with tempfile.TemporaryDirectory() as folder:
        told = subprocess.run(command(folder, rule, LARGE, "plan", "--json"), capture_output=True, text=True, check=True)
        return json.loads(told.stdout)["memory"]["workers"] / 2 / VECTOR - 2


def main() -> None:
    """Print a row for each rule."""
    print(f"{'rule':12} {'measured':>9} {'planned':>9}")
    for rule in sys.argv[1:] or RULES:
        measured = (anonymous(rule, LARGE) - anonymous(rule, SMALL)) / VECTOR
        print(f"{rule:12} {measured:9.1f} {planned(rule):9.1f}", flush=True)


if __name__ == "__main__":
    main()
