"""Every rule learns MNIST, from its own job file: a shortened form of each is trained. `make test-slow` trains most of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs import partrain, summary

JOBS = sorted((Path(__file__).parents[2] / "jobs" / "rules").glob("*.toml"))


QUICK = ("average",)
"""Rules of the gate; tests/contract trains each."""


@pytest.mark.representative
@pytest.mark.parametrize(
    "job", [pytest.param(job, id=job.stem, marks=() if job.stem in QUICK else pytest.mark.slow) for job in JOBS]
)
def test_it_learns(job: Path, tmp_path: Path) -> None:
    sets = ["stop.accuracy=0.9", "stop.judge_every=4"]
    if job.stem == "rprop":  # each iteration takes all items: a fifth of them are enough
        sets = ["stop.accuracy=0.9", "stop.judge_every=1", "dataset.validation=49000"]
    said = partrain("run", job, "--out", tmp_path / "run", "--quiet", *(part for one in sets for part in ("--set", one)))
    assert said.code == 0, said
    assert summary(tmp_path / "run")["metrics"]["accuracy"] >= 0.9
