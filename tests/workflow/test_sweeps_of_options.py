"""Sweeps that `--set` makes, and sweeps without a result."""

from __future__ import annotations

import json
from pathlib import Path

from support.runs import partrain, write_job


def test_a_sweep_of_the_command_line_trains_its_trials(tmp_path: Path) -> None:
    job = write_job(tmp_path, "stop.rounds=1")
    said = partrain("run", job, "--set", 'sweep={"optimizer.lr"=[0.01, 0.1]}', "--out", tmp_path / "out", "-q")
    assert said.code == 0, said
    (ranking,) = (tmp_path / "out").rglob("sweep.json")
    assert {row["settings"]["optimizer.lr"] for row in json.loads(ranking.read_text())["rows"]} == {0.01, 0.1}


def test_a_sweep_is_turned_off_by_any_spelling(tmp_path: Path) -> None:
    job = write_job(tmp_path, "stop.rounds=1", 'sweep={"optimizer.lr"=[0.01, 0.1]}')
    for number, word in enumerate(("sweep={}", "sweep = { }", "~sweep")):
        assert partrain("run", job, "--set", word, "--out", tmp_path / f"{number}", "-q").code == 0
        assert (tmp_path / f"{number}" / "checkpoint.h5").exists()


def test_a_sweep_whose_trials_all_diverge_has_no_best(tmp_path: Path) -> None:
    job = write_job(tmp_path, "stop.rounds=2", 'sweep={"optimizer.lr"=[1e30, 1e35], by="loss"}', "faults.on_nonfinite='stop'")
    said = partrain("run", job, "--out", tmp_path / "out", "-q")
    assert said.code == 76, said
    assert "no trial has a result" in said.err
    assert "best:" not in said.out


def test_a_trial_that_diverges_does_not_fail_the_sweep(tmp_path: Path) -> None:
    job = write_job(tmp_path, "stop.rounds=2", 'sweep={"optimizer.lr"=[0.01, 1e35], by="loss"}', "faults.on_nonfinite='stop'")
    said = partrain("run", job, "--out", tmp_path / "out")
    assert said.code == 0, said
    assert "lr=1e+35: done in" in said.out
    assert "diverged: " in said.out
