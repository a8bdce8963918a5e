"""`refit` trains a run's job once more, on its held-out items too, for the rounds of its best network."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from support.runs import SIMULATED, partrain, sabotage, summary, train, write_job

import partrain as package
from partrain import checkpoint
from partrain.errors import BadJob
from partrain.record.run_folder import RunFolder


def numbers(run: Path) -> dict[str, bytes]:
    """The arrays of the newest checkpoint."""
    return {name: array.tobytes() for name, array in checkpoint.read(run / "checkpoint.h5").arrays.items()}


def test_it_is_the_job_without_held_out_items_for_the_best_rounds(tmp_path: Path) -> None:
    train(tmp_path, SIMULATED, "stop.rounds=6", "stop.patience=5", "seed=11", "optimizer.lr=0.3")
    run = tmp_path / "run"
    best = summary(run)["best"]["round"]
    assert 1 < best < 6
    said = partrain("refit", run, "--out", tmp_path / "again", "-q", "--trust-code")
    assert said.code == 0, said
    told = summary(tmp_path / "again")
    assert told["rounds"] == best
    assert "best" not in told
    assert told["test"].keys() == summary(run)["test"].keys()
    assert f"test, round {best}" in said.out
    job = tomllib.loads((tmp_path / "again/job.toml").read_text())
    assert job["stop"] == {"rounds": best}
    assert "validation" not in job["dataset"]
    start = RunFolder(tmp_path / "again").start
    assert start
    assert start.held_out == 0
    by_hand = train(
        tmp_path / "hand", SIMULATED, f"stop={{rounds={best}}}", "seed=11", "optimizer.lr=0.3", "dataset.validation=0"
    )
    assert numbers(tmp_path / "again") == numbers(by_hand)
    assert numbers(tmp_path / "again") != numbers(run)


def test_folds_hooks_of_judgements_and_targets_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text("def after(*arguments):\n    raise RuntimeError\n\ndef quiet(*arguments):\n    pass\n")
    sets = (
        "dataset.validation=0",
        "dataset.fold='1/3'",
        "hooks={after_judgement='hooks.py:quiet'}",
        "stop={rounds=3, loss=0.01}",
    )
    train(tmp_path, *sets, code=1)
    (tmp_path / "hooks.py").write_text("def quiet(*arguments):\n    raise RuntimeError\n")
    said = partrain("refit", tmp_path / "run", "--out", tmp_path / "again", "-q", "--trust-code")
    assert said.code == 0, said
    job = tomllib.loads((tmp_path / "again/job.toml").read_text())
    assert "fold" not in job["dataset"]
    assert "after_judgement" not in job.get("hooks", {})
    assert job["stop"] == {"rounds": summary(tmp_path / "run")["best"]["round"]}


def test_a_run_that_held_nothing_out_is_refused(tmp_path: Path) -> None:
    train(tmp_path, SIMULATED, "stop={rounds=2}", "dataset.validation=0")
    said = partrain("refit", tmp_path / "run", "--out", tmp_path / "again", "--trust-code")
    assert said.code == 78, said
    assert said.err.count("\n") == 1
    assert "held no items out" in said.err
    assert not (tmp_path / "again").exists()


def test_refitting_asks_for_permission_as_training_does(tmp_path: Path) -> None:
    """The checkpoint alone, without the folder that its user signed."""
    said = partrain("run", sabotage(tmp_path, "pass"), "--out", tmp_path / "run", "-q")
    assert said.code == 0, said
    (tmp_path / "run/checkpoint.h5").rename(tmp_path / "alone.h5")
    said = partrain("refit", tmp_path / "alone.h5", "--out", tmp_path / "again")
    assert said.code == 77, said
    assert "--trust-code" in said.err


def test_the_last_lines_of_a_run_name_it_where_items_were_held_out(tmp_path: Path) -> None:
    for name, validation in ("with", 50), ("without", 0):
        job = write_job(tmp_path / name, f"dataset.validation={validation}", "stop={rounds=2}")
        said = partrain("run", job, "--out", tmp_path / name / "run", "-q")
        assert said.code == 0, said
        assert (f"  partrain refit {tmp_path / name / 'run'}" in said.out) == bool(validation)


def test_python(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(120, 4)).astype(np.float32)
    targets = (inputs.sum(1) > 0).astype(np.int64)
    trained = package.train(model="auto", dataset=(inputs, targets), workers=1, stop={"rounds": 4}, out=tmp_path / "run")
    again = trained.refit(out=tmp_path / "again")
    assert again.folder == tmp_path / "again"
    assert again.summary["rounds"] == trained.summary["best"]["round"]
    assert again.predict(inputs).shape == (120,)
    with pytest.raises(BadJob, match="held no items out"):
        again.refit()


def test_a_network_trained_on_all_items_can_be_evaluated_on_others_only(tmp_path: Path) -> None:
    run = train(tmp_path, SIMULATED, "stop={rounds=1}", "dataset.validation=0", "dataset.test_items=0")
    said = partrain("evaluate", run)
    assert said.errors == ["no-input"]
    assert "the data set has no held-out and no test items; give --input FILE, or --split training" in said.err
    assert partrain("evaluate", run, "--split", "training").code == 0
    again = partrain("run", run / "job.toml", "--out", tmp_path / "again", "-q")
    assert f"  partrain evaluate {tmp_path / 'again'} --input FILE\n" in again.out
