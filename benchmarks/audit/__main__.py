"""Run the audit: print a table of differences; exit 1 if one is beyond its bound.

    make audit                                            # all comparisons, in an environment with the other packages
    python -m benchmarks.audit --only slowmo              # those whose names have this text
    python -m benchmarks.audit --output benchmarks/audit.md

All comparisons take several minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import torch

from benchmarks.audit import (
    averages,
    commands,
    counting,
    draws,
    figures,
    formulas,
    layers,
    leaks,
    losses,
    messages,
    optimizers,
    page,
    peers,
    schedules,
    sweeps,
)
from benchmarks.audit.trainings import Trainings

MODULES = (
    peers, formulas, averages, messages, optimizers, layers, schedules, losses, draws, leaks, commands, sweeps, figures, counting,
)  # fmt: skip


def main() -> int:
    """Run the comparisons that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="run the comparisons whose names have this text")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the page with the table to this file")
    options = parser.parse_args()
    wanted = [case for module in MODULES for case in module.cases() if options.only in case.what]
    if not wanted:
        parser.error(f"no comparison has {options.only!r} in its name")
    try:
        others = [case.peer for case in wanted]
    except PackageNotFoundError as missing:
        parser.error(f"{missing.name} is not installed: `make audit` installs it in an environment of its own")
    torch.set_num_threads(1)
    rows, failed = [], 0
    print(page.HEAD)
    with tempfile.TemporaryDirectory() as folder:
        trainings = Trainings(Path(folder))
        for case, peer in zip(wanted, others, strict=True):
            difference = case.difference(trainings)
            passes = difference <= case.bound  # false for NaN
            failed += not passes
            rows.append(page.row(case, peer, difference, passes))
            print(rows[-1], flush=True)
    print(f"\n{page.verdict(len(rows), failed)}")
    if options.output:
        options.output.write_text(page.text(rows, failed))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
