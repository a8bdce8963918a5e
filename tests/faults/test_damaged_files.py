"""Damaged checkpoints, jobs and data files get an answer: no crash, no traceback, bounded memory. The children run under limits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]


def outcomes(*words: object) -> list[list[int]]:
    """Numbers of refused and of accepted files, a pair for each line that a child printed."""
    done = subprocess.run([sys.executable, "-m", *map(str, words)], cwd=HERE, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [[int(word) for word in line.split() if word.isdigit()] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
def test_jobs_and_data(tmp_path: Path, count: int) -> None:
    for refused, accepted in outcomes("support.damaged_files", count, count, tmp_path):
        assert refused + accepted == count
        assert refused > accepted > 0, "they are damaged, and not beyond recognition"


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("repaired", [True, False])
def test_checkpoints(repaired: bool) -> None:
    """10,000 in all, in children of 1,000: half with digests and checksums that were repaired after the damage."""
    for seed in range(5):
        ((refused, accepted),) = outcomes("support.checkpoint_fuzz", 100 + seed, 1000, *(() if repaired else ("--unrepaired",)))
        assert refused + accepted == 1000
        assert refused > accepted if repaired else accepted == 0
