"""Runs that this user trained need no --trust-code. Runs of other users do."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.runs import partrain, sabotage

from partrain.checkpoint import signature
from partrain.record.file_names import SIGNATURES

JOB, FOLDER = "name = 'x'", Path("/somewhere")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of settings of the user's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


def test_own_runs_go_on_without_a_word(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = sabotage(tmp_path, "", "stop.rounds=2")
    run = tmp_path / "run"
    trained = partrain("run", job, "--out", run, "-q")
    assert trained.code == 0
    assert "partrain evaluate" in trained.out
    assert "--trust-code" not in trained.out, "commands to paste have no option that they do not need"
    ended = partrain("resume", run)
    assert "to continue: partrain resume" in ended.out
    assert "--trust-code" not in ended.out
    assert partrain("evaluate", run).code == 0
    assert partrain("resume", run, "--until", "rounds=3", "-q").code == 0
    assert partrain("resume", run / "checkpoints/round-000003.h5", "--until", "rounds=4", "-q").code == 0
    assert len((run / SIGNATURES).read_text().splitlines()) == 3

    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(run, elsewhere)
    assert partrain("evaluate", elsewhere).code == 0, "a run folder may move"
    (elsewhere / SIGNATURES).unlink()
    assert partrain("evaluate", elsewhere).errors == ["not-trusted"]
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "of another user"))
    assert partrain("evaluate", run).errors == ["not-trusted"]


def test_a_job_that_names_neither_code_nor_files_is_not_signed(home: Path, tmp_path: Path) -> None:
    from support.runs import train

    run = train(tmp_path, "stop.rounds=1")
    assert not (run / SIGNATURES).exists()
    assert not home.exists()


def test_a_signature_is_of_one_job_in_one_folder(home: Path, tmp_path: Path) -> None:
    signature.sign(tmp_path, JOB, FOLDER)
    signature.sign(tmp_path, JOB, FOLDER)
    assert len((tmp_path / SIGNATURES).read_text().splitlines()) == 1
    assert signature.is_signed(tmp_path, JOB, FOLDER)
    assert not signature.is_signed(tmp_path, JOB + " ", FOLDER)
    assert not signature.is_signed(tmp_path, JOB, FOLDER / "deeper")
    assert not signature.is_signed(None, JOB, FOLDER)
    assert not signature.is_signed(tmp_path / "no run", JOB, FOLDER)
    (tmp_path / SIGNATURES).write_bytes(b"\xff\n")
    assert not signature.is_signed(tmp_path, JOB, FOLDER)


@pytest.mark.parametrize("fault", ["readable", "short", "link", "folder"])
def test_a_key_that_others_could_know_does_not_count(home: Path, tmp_path: Path, fault: str) -> None:
    signature.sign(tmp_path, JOB, FOLDER)
    key = home / "partrain" / "key"
    assert (key.stat().st_mode & 0o777, key.stat().st_size) == (0o600, signature.KEY_BYTES)
    assert [each.name for each in key.parent.iterdir()] == ["key"]
    if fault == "readable":
        key.chmod(0o644)
    elif fault == "short":
        key.write_bytes(b"x")
    else:
        key.rename(home / "key")
        key.symlink_to(home / "key") if fault == "link" else key.mkdir()
    assert not signature.is_signed(tmp_path, JOB, FOLDER)
    signature.sign(tmp_path / "other", JOB, FOLDER)


def test_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", os.devnull)
    signature.sign(tmp_path, JOB, FOLDER)
    assert not (tmp_path / SIGNATURES).exists()
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError))
    assert signature.key_path() is None
    assert not signature.is_signed(tmp_path, JOB, FOLDER)
