"""Show on a device all that only a device can show: the tests, speeds, exactness, faults and copies, each part in some minutes.

    make gpu-day                                                  # all parts that have no result yet
    python -m benchmarks.gpu_day --out FOLDER --only doctor bits  # these parts
    python -m benchmarks.gpu_day --list

A part writes FOLDER/PART.json when it ends, and a call skips a part whose file is there, unless `--again`. So a call that was cut off, or a
machine that is lent for a short time, costs one part at most. `--minutes` limits a part: the file names the cases that no time was left for,
under "not run". A failed case is recorded in one line, and the part goes on. The exit code is 1 if any case failed, in a file of before, too.

The machine needs: Python and torch with support of the device, the packages that `pyproject.toml` asks for, pytest and
pytest-timeout (pytest-xdist if it is there), a C compiler for the compiled CPU code, and this repository with datasets/. It needs no
network. Missing packages can be carried there as wheels. With another environment than .venv, `python -m benchmarks.gpu_day` does what
`make gpu-day` does; where partrain is not installed, PYTHONPATH has to name this repository. `--small` runs each part with the fewest
cases on few items: a test runs it so on the emulated device.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import torch

from benchmarks.gpu_day import BENCHMARKS, copies, exact, faults, mixed, several, speeds, suite
from benchmarks.gpu_day.day import Part, Setting, perform, write

PARTS: dict[str, Part] = {
    "doctor": suite.doctor,
    "tests": suite.tests,
    "mnist-mixed": mixed.perceptron,
    "mnist-cnn": mixed.convolutions,
    "rules": exact.rules,
    "bits": exact.bits,
    "faults": faults.faults,
    "precision": copies.precision,
    "copies": copies.copies,
    "speeds": speeds.speeds,
    "one-more": partial(speeds.one_more, count=1),
    "one-more-of-eight": partial(speeds.one_more, count=7),
    "several": several.several,
}


def main() -> int:
    """Run the parts that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_day", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--out", type=Path, default=BENCHMARKS / "results" / "gpu-day", metavar="FOLDER", help="folder of the results"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help="run these parts")
    parser.add_argument("--again", action="store_true", help="run parts whose results are there, too")
    parser.add_argument("--minutes", type=float, default=8.0, help="limit of each part; default: 8")
    parser.add_argument("--device", default="cuda:0", help="the device, as torch names it; default: cuda:0")
    parser.add_argument("--small", action="store_true", help="the fewest cases on few items")
    parser.add_argument("--list", action="store_true", help="print the names of the parts")
    options = parser.parse_args()
    if options.list:
        print(*PARTS, sep="\n")
        return 0
    device = torch.device(options.device)
    present = torch.accelerator.current_accelerator(check_available=True)
    if present is None or present.type != device.type or (device.index or 0) >= torch.accelerator.device_count():
        parser.error(f"torch finds no device {options.device} on this machine")
    code = 0
    for name in options.only:
        file = options.out / f"{name}.json"
        if options.again or not file.exists():
            print(f"{name}: begins", flush=True)
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
                end = time.monotonic() + 60 * options.minutes
                setting = Setting(f"{device.type}:{device.index or 0}", options.small, Path(scratch), end)
                write(file, perform(PARTS[name], setting, lambda line: print(f"  {line}", flush=True)))
        result = json.loads(file.read_text(encoding="utf-8"))
        counts = ", ".join(f"{len(result[key])} {key}" for key in ("failed", "skipped", "not run"))
        print(f"{name}: {len(result['cases'])} cases in {result['seconds']:g} s; {counts}; {file}", flush=True)
        code |= bool(result["failed"])
    return code


if __name__ == "__main__":
    sys.exit(main())
