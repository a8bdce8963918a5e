"""A job in two trees of this repository in turn: how much longer the one takes than the other, and whether the bits are the same.

    git worktree add ../before COMMIT
    python benchmarks/trees.py ../before . jobs/rules/threshold.toml 7 'stop={rounds=150, judge_every=150}'

Seconds are those of worker 0: all it did, and what it spent on neither computing nor waiting.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from runs import machine, shown


def run(tree: Path, job: str, folder: Path, sets: list[str]) -> dict[str, Any]:
    """The summary of a run, which may miss its target, by the code of a tree."""
    command = [sys.executable, "-m", "partrain", "run", job, "--out", str(folder), "--json"]
    command += [part for one in sets for part in ("--set", one)]
    done = subprocess.run(command, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr)
    seconds: dict[str, float] = json.loads(done.stdout)["workers"][0]["seconds"]
    return {"all": sum(seconds.values()), "mixing": seconds["sync"]}


def main(before: Path, after: Path, job: str, pairs: int, sets: list[str]) -> None:
    print(f"{job}, {pairs} pairs; {machine()}")
    ratios: dict[str, list[float]] = {"all": [], "mixing": []}
    for seed in range(pairs):
        with tempfile.TemporaryDirectory() as scratch:
            folders = [Path(scratch, name) for name in ("before", "after")]
            one, other = (
                run(tree, job, out, [f"seed={seed}", *sets]) for tree, out in zip((before, after), folders, strict=True)
            )
            diff = [sys.executable, "-m", "partrain", "diff", *map(str, folders)]
            compared = subprocess.run(diff, capture_output=True, text=True)
            bits = (
                (compared.stdout or compared.stderr).strip().splitlines()[-1]
            )  # trees whose checkpoints differ in format compare no bits
        for name, values in ratios.items():
            values.append(one[name] / other[name])
        print(f"seed {seed}: {bits}", flush=True)
    for name, values in ratios.items():
        print(f"before / after, {name}: {shown(values)}")


if __name__ == "__main__":
    first, second, which, count, *changes = sys.argv[1:]
    main(Path(first).resolve(), Path(second).resolve(), which, int(count), changes)
