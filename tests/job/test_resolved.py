"""`partrain config`: all settings of a job, their origins, and the differences between jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.runs import partrain, train, write_job

from partrain.errors import BadJob, InputMissing
from partrain.job.load import parse
from partrain.job.resolved import full_text, load_any

JOBS = sorted(path for path in (Path(__file__).parents[2] / "jobs").rglob("*.toml") if "workflows" not in path.parts)


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_the_full_text_is_the_same_job(path: Path) -> None:
    """Also where defaults, written out, would be refused because they have no effect."""
    try:
        loaded, found = load_any(path)
    except (BadJob, InputMissing) as error:
        pytest.skip(f"it needs what is not here: {error.message}")
    again = parse(full_text(found), path.parent, local=True)
    assert again.job == loaded.job
    assert again.job.model_dump(exclude_unset=True) == loaded.job.model_dump(exclude_unset=True)
    assert len({each.key for each in found}) == len(found)


def test_origins(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    told = json.loads(partrain("config", job, "--origin", "--set", "optimizer.lr=0.5", "--json").out)
    found = {one["key"]: (one["value"], one["origin"]) for one in told}
    line = job.read_text().splitlines().index("momentum = 0.9") + 1
    assert found["optimizer.momentum"] == (0.9, f"{job}:{line}")
    assert found["optimizer.lr"] == (0.5, "--set optimizer.lr=0.5")
    assert found["optimizer.nesterov"] == (False, "default")
    assert found["workers.0.count"][0] == 2
    assert found["workers.0.threads"] == (1, "default")


def test_the_difference_from_a_run(tmp_path: Path) -> None:
    run = train(tmp_path, "stop.rounds=1", "optimizer.lr=0.25")
    other = write_job(tmp_path / "other", "stop.rounds=1", "sync.lr_scale='sqrt'")
    told = json.loads(partrain("config", run, "--diff", other, "--json").out)
    assert told == [
        {"key": "optimizer.lr", "this": "0.25", "other": "0.05"},
        {"key": "sync.lr_scale", "this": '"none"', "other": '"sqrt"'},
    ]
    assert partrain("config", other, "--diff", other).out == "the same settings\n"


def test_without_options_it_is_the_text_after_the_overrides(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    said = partrain("config", job, "--set", "seed=8")
    assert said.out == job.read_text().replace("seed = 3", "seed = 8")


def test_mistakes(tmp_path: Path) -> None:
    assert partrain("config", write_job(tmp_path), "--full", "--origin").code == 2
    assert partrain("config", tmp_path / "no.toml").code == 66
