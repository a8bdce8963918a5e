"""Finished runs that a workflow does not throw away, and their place beside the newer ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.runs import JOB, partrain

from partrain.workflow.digests import Digests

TWO = """
name = "study"

[[steps]]
name = "first"
job = "job.toml"
set = {{"stop.rounds" = {rounds}}}

[[steps]]
name = "table"
compare = {{paths = ["{{first.folder}}"]}}
"""
SWEEP = TWO.replace("first", "search").replace("{rounds}}}\n", '{rounds}}}\nsweep = {{"optimizer.lr" = [0.01, 0.1]}}\n')


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(JOB + '\n[transport]\nkind = "simulated"\n')
    return Path("runs/study")


def run(text: str, rounds: int, *words: str, code: int = 0) -> dict[str, Any]:
    Path("study.toml").write_text(text.format(rounds=rounds))
    said = partrain("run", "study.toml", "--json", *words)
    assert said.code == code, said
    return {step["step"]: step for step in json.loads(said.out)["steps"]}


def flow(*words: str) -> dict[str, str]:
    said = partrain("flow", "show", "study.toml", "--json", *words)
    assert said.code == 0, said
    return {step["step"]: step["state"] for step in json.loads(said.out)["steps"]}


def test_a_trial_that_a_tag_keeps_is_not_ranked_with_its_former_settings(place: Path) -> None:
    run(SWEEP, 2)
    ranking = (place / "search/sweep.json").read_bytes()
    assert partrain("runs", "tag", place / "search/lr=0.1", "paper").code == 0
    Path("study.toml").write_text(SWEEP.format(rounds=3))
    states = flow()
    assert states["search/lr=0.1"].startswith("refused (")
    assert (states["search"], states["table"]) == ("blocked (needs search/lr=0.1)", "blocked (needs search)")
    done = run(SWEEP, 3, code=73)
    assert {name: step["status"] for name, step in done.items()} == {
        "search/lr=0.01": "done", "search/lr=0.1": "failed", "search": "blocked", "table": "blocked",
    }  # fmt: skip
    assert (place / "search/sweep.json").read_bytes() == ranking


def test_a_run_that_resume_finished_stays(place: Path) -> None:
    """The step's record says that it was stopped: `partrain resume` of the run went on without the workflow."""
    run(TWO, 2)
    record = json.loads((place / "first/step.json").read_text())
    (place / "first/step.json").write_text(json.dumps(record | {"status": "stopped"}))
    before = (place / "first/checkpoint.h5").read_bytes()
    assert "the finished run stays as first.1" in flow_reason("first", 3)
    run(TWO, 3)
    assert (place / "first.1/checkpoint.h5").read_bytes() == before


def flow_reason(step: str, rounds: int) -> str:
    Path("study.toml").write_text(TWO.format(rounds=rounds))
    rows = json.loads(partrain("run", "study.toml", "--dry-run", "--json").out)["steps"]
    return next(row["reason"] for row in rows if row["step"] == step)


def test_runs_of_former_settings_are_compared_no_more_and_can_be_removed(place: Path) -> None:
    run(TWO, 2)
    run(TWO, 3)
    said = partrain("compare", place, "--json")
    assert [row["label"] for row in json.loads(said.out)["rows"]] == ["first"]
    assert "first.1 is a run of former settings" in said.err
    assert json.loads(partrain("report", place, "--no-items", "--json").out)["runs"] == ["runs/study/first"]
    assert partrain("runs", "remove", place / "first", "--yes").code == 2
    assert partrain("runs", "remove", place / "first.1", "--yes").code == 0
    assert not (place / "first.1").exists()


def test_a_tag_makes_no_result_stale_and_protects(place: Path) -> None:
    run(TWO, 2)
    assert partrain("runs", "tag", place / "first", "paper").code == 0
    assert partrain("flow", "check", "study.toml").code == 0
    assert partrain("runs", "tag", place / "first", "absent", "--remove").err == "partrain: runs/study/first has no tag absent\n"
    assert partrain("run", "job.toml", "--out", "runs/alone", "--quiet").code == 0
    assert partrain("runs", "tag", "runs/alone", "paper").code == 0
    said = partrain("runs", "remove", "runs/alone", "--yes")
    assert (said.code, "take the tag away first: partrain runs tag runs/alone paper --remove" in said.err) == (73, True)


def test_a_file_of_the_user_may_have_the_name_of_tags(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for name in "tags.txt", "run/tags.txt", "run/events.jsonl":
        (tmp_path / name).write_text("a")
    before = Digests(None).of(tmp_path)
    (tmp_path / "run/tags.txt").write_text("b")
    assert Digests(None).of(tmp_path) == before
    (tmp_path / "tags.txt").write_text("b")
    assert Digests(None).of(tmp_path) != before


def test_the_reason_of_a_step_behind_another_one_is_told(place: Path) -> None:
    both = TWO.replace(
        'compare = {{paths = ["{{first.folder}}"]}}', 'job = "job.toml"\nneeds = ["first"]\nset = {{"stop.rounds" = {rounds}}}'
    )
    run(both, 2)
    Path("study.toml").write_text(both.format(rounds=3))
    assert flow()["table"] == "to do (`stop.rounds` 2 → 3; after first)"


def test_flow_of_what_is_no_workflow_is_one_line(place: Path) -> None:
    for word, message in ("job.toml", "job.toml is a job, not a workflow"), (".", ". is a folder; give the file of the workflow"):
        said = partrain("flow", "show", word)
        assert (said.code, message in said.err) == (66, True), said
    assert not place.exists()


@pytest.mark.parametrize(
    ("left", "because"),
    [
        ("0.01", "lr=0.1 is no longer in the sweep: kept, without a rank"),
        ("0.02", "lr=0.01, lr=0.1 are no longer in the sweep: kept, without a rank; after search/lr=0.02"),
    ],
)
def test_runs_that_are_no_longer_in_a_sweep_are_named(place: Path, left: str, because: str) -> None:
    run(SWEEP, 2)
    Path("study.toml").write_text(SWEEP.format(rounds=2).replace("0.01, 0.1", left))
    rows = json.loads(partrain("run", "study.toml", "--dry-run", "--json").out)["steps"]
    assert next(row["reason"] for row in rows if row["step"] == "search") == because
    lines = [line.split(maxsplit=4) for line in partrain("run", "study.toml", "--dry-run").out.splitlines()]
    row = next(line for line in lines if line[0] == "search")
    assert row[:3] == ["search", "(1", "run)"]
    assert row[3:] == ["run", because if left == "0.01" else "has not run yet"]
    run(SWEEP.replace("0.01, 0.1", left), 2)
    assert (place / "search/lr=0.1/checkpoint.h5").exists()
