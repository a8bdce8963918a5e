"""Start-up, as whole processes: help, validate, and from the command to the first local iteration, against `import torch`.

The table has 300,000 rows of 23 columns, as CSV; its job is that of `init`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from read_tables import table
from recording import record
from runs import partrain

JOB = Path(__file__).parents[1] / "jobs" / "mnist.toml"


def main(pairs: int) -> None:
    help_s, validate_s, ratios, tables = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        table(300_000, 20, Path(folder))
        made = ["-m", "partrain", "init", f"{folder}/job.toml", "--from", f"{folder}/table.csv", "--target", "y", "--no-schema"]
        subprocess.run([sys.executable, *made], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(pairs):
            tables.append(partrain(Path(folder) / "job.toml", "stop.rounds=1")["seconds"]["startup"])
    for _ in range(pairs):
        torch_s = _timed("-c", "import torch")
        first = partrain(JOB, "stop={rounds=1}")["seconds"]["startup"]
        ratios.append(first / torch_s)
        help_s.append(_timed("-m", "partrain", "--help"))
        validate_s.append(_timed("-m", "partrain", "validate", str(JOB)))
    rows = [
        {"command": "partrain --help, seconds", "number": help_s},
        {"command": "partrain validate jobs/mnist.toml, seconds", "number": validate_s},
        {"command": "partrain run, to the first local iteration / python -c 'import torch'", "number": ratios},
        {"command": "partrain run of a table of 300,000 x 23, to the first local iteration, seconds", "number": tables},
    ]
    record("startup", f"Start-up of commands, {pairs} times", rows)


def _timed(*arguments: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
