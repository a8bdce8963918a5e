"""A folder of runs stands for its newest run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.runs import JOB, partrain
from support.shared_runs import once

from partrain.checkpoint.runs import checkpoint_of, run_of
from partrain.errors import InputMissing
from partrain.record.run_folder import RunFolder


def make_run(folder: Path, age: int) -> Path:
    folder.mkdir(parents=True)
    (folder / "checkpoint.h5").touch()
    (folder / "job.toml").write_text('name = "a"')
    os.utime(folder / "checkpoint.h5", (1_700_000_000 - age, 1_700_000_000 - age))
    return folder


def test_a_folder_of_runs_stands_for_the_newest(tmp_path: Path) -> None:
    old, new = make_run(tmp_path / "runs/a/1", 20), make_run(tmp_path / "runs/b/1", 10)
    (tmp_path / "runs/b/2").mkdir()
    notes: list[str] = []
    assert run_of(tmp_path / "runs", notes.append) == new
    assert notes == [f"{tmp_path / 'runs'} holds 2 runs; this is the newest: {new}"]
    assert run_of(tmp_path / "runs/a") == old
    (new / "checkpoints").mkdir()
    assert checkpoint_of(new / "checkpoints") == new / "checkpoint.h5"
    notes.clear()
    assert run_of(new, notes.append) == new
    assert notes == []


def test_a_folder_of_several_jobs_or_steps_stands_for_none_of_them(tmp_path: Path) -> None:
    for name in "ab":
        (make_run(tmp_path / "jobs" / name / "1", 10) / "job.toml").write_text(f'name = "{name}"')
        (make_run(tmp_path / "study" / name, 10) / "step.json").write_text("{}")
    (tmp_path / "study/workflow.toml").touch()
    for folder in tmp_path / "jobs", tmp_path / "study":
        with pytest.raises(InputMissing, match=f"{folder.name} holds runs of 2 jobs, so name one of them: .*/a.*, .*/b"):
            run_of(folder)


def test_a_run_that_ended_before_it_named_its_first_file(tmp_path: Path) -> None:
    """Its newest round stands for it, and a sentence says so."""
    make_run(tmp_path / "runs/a/1", 20)
    rounds = tmp_path / "runs/b/1/checkpoints"
    rounds.mkdir(parents=True)
    for number in 40, 999_999, 1_000_000:
        (rounds / f"round-{number:06d}.h5").touch()
    (rounds.parent / "job.toml").write_text('name = "a"')
    newest = rounds / "round-1000000.h5"
    for path in rounds.parent, rounds, tmp_path / "runs/b", tmp_path / "runs":
        notes: list[str] = []
        assert checkpoint_of(path, notes.append) == newest
        assert "ended before it named one" in notes[-1]
    assert RunFolder(tmp_path).newest_checkpoint is None


def test_what_is_no_run_says_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "began").mkdir()
    (tmp_path / "began/events.jsonl").touch()
    (tmp_path / "job.toml").write_text(JOB)
    for path, message in {
        tmp_path / "began": "has no checkpoint.h5: nothing was committed there",
        tmp_path: "has no checkpoint.h5, and no run below it has",
        tmp_path / "job.toml": "is a job, not a checkpoint; to train it: partrain run",
    }.items():
        with pytest.raises(InputMissing, match=message):
            checkpoint_of(path)


@pytest.fixture
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `runs/x` and `runs/y`, of which y is newer, and `runs/none`, which never began."""

    def make(folder: Path) -> None:
        (folder / "job.toml").write_text(JOB)
        for name, rounds in ("x", 1), ("y", 2):
            said = partrain("run", folder / "job.toml", "--out", folder / "runs" / name, "--set", f"stop.rounds={rounds}", "-q")
            assert said.code == 0, said
        none = folder / "runs/none"  # as earlier versions left it
        none.mkdir()
        for name in "job.toml", "summary.json":
            (none / name).write_bytes((folder / "runs/x" / name).read_bytes())
        (none / "events.jsonl").write_text('{"event":"fault","t":1.0,"what":"no such module","rank":null}\n')

    return once(tmp_path_factory, "folder of runs", make)


@pytest.mark.parametrize("words", [["inspect", "runs"], ["evaluate", "runs"], ["verify", "runs"], ["diff", "runs", "runs/y"]])
def test_commands_take_a_folder_of_runs(runs: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    said = partrain(*words)
    assert said.code == 0, said
    assert "partrain: runs holds 2 runs; this is the newest: runs/y" in said.err


def test_resume_the_latest(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    said = partrain("resume", "--latest")
    assert (said.code, "runs/y" in said.out + said.err) == (0, True), said
    assert partrain("resume").code == 2
    assert partrain("resume", "runs/x", "--latest").code == 2


def test_compare_leaves_out_what_never_began(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    said = partrain("compare", "runs/x", "runs/y", "runs/none")
    assert said.code == 0, said
    assert "left out: runs/none" in said.err
    assert partrain("compare", "runs", "runs/x").code == 0
