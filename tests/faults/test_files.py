"""Files of a run that cannot be written, are not there yet, or were moved away: each command says what is true, and how to go on."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from support.runs import newest, partrain, resume, round_file, sabotage, summary, write_job

from partrain import checkpoint
from partrain.launch import checkpoint_writer
from partrain.record import event_log
from partrain.record.event_log import unwritable


class FullDisk:
    """An `os` that cannot write."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, *_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def killed(*_: object) -> None:
    os.kill(os.getpid(), 9)


def test_killed_before_the_first_file_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer dies between `round-N.h5` and `checkpoint.h5`. `resume` of the folder goes on, and ends as if nothing had been."""
    job, run = write_job(tmp_path), tmp_path / "run"
    assert partrain("run", job, "--out", tmp_path / "whole", "-q").code == 0
    monkeypatch.setattr(checkpoint_writer.checkpoint, "link_latest", killed)
    said = partrain("run", job, "--out", run, "-q")
    monkeypatch.undo()
    assert (said.code, said.errors) == (74, ["io"]), said
    assert not (run / "checkpoint.h5").exists()
    assert f"{round_file(run, 1)} can be resumed" in said.err
    assert "no checkpoint was committed" not in said.err
    again = partrain("run", job, "--out", run, "-q")
    assert (again.code, again.errors) == (73, ["cannot-create"]), again
    assert f"continue it: partrain resume {run}" in again.err
    for command in ["verify"], ["inspect", "--newest"], ["evaluate", "--newest"]:
        said = partrain(*command, run)
        assert (said.code, said.errors) == (0, []), said
        assert "ended before it named one" in said.err
    resume(run)
    assert newest(run) == newest(tmp_path / "whole")


def test_the_first_failure_is_told_when_the_end_fails_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is lost, and then summary.json cannot be written."""
    job = sabotage(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)", "faults.on_loss='stop'", call=8)
    real = event_log.atomic_file

    def failing(path: Path, **options: Any) -> Any:
        if path.name == "summary.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, **options)

    monkeypatch.setattr(event_log, "atomic_file", failing)
    said = partrain("run", job, "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (69, ["workers-lost"]), said
    assert "worker 1 (cpu) was killed by SIGKILL" in said.err
    assert "summary.json: cannot be written: No space left on device" in said.err


def test_a_log_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was committed, and so nothing can be resumed elsewhere."""
    monkeypatch.setattr(event_log, "os", FullDisk())
    said = partrain("run", write_job(tmp_path), "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (74, ["io"]), said
    assert "resumed elsewhere" not in said.err
    assert "no checkpoint is there" in said.err


def test_what_is_said_of_the_newest_checkpoint(tmp_path: Path) -> None:
    error = OSError(errno.EIO, os.strerror(errno.EIO))
    assert "no checkpoint is there" in unwritable(tmp_path / "summary.json", error).message
    (tmp_path / "checkpoint.h5").touch()
    assert "the newest checkpoint can be resumed elsewhere" in unwritable(tmp_path / "summary.json", error).message


@pytest.mark.parametrize("commit", ["every", "coalesce"])
def test_the_log_is_moved_away(tmp_path: Path, commit: str) -> None:
    """Training, files and the last lines are those of a run that ended well."""
    deed = f"pathlib.Path({str(tmp_path / 'run/events.jsonl')!r}).unlink()"
    said = partrain("run", sabotage(tmp_path, deed, f"checkpoint.commit='{commit}'", call=8), "--out", tmp_path / "run")
    assert (said.code, said.errors) == (0, []), said
    assert summary(tmp_path / "run")["status"] == "finished"
    assert checkpoint.read(tmp_path / "run/checkpoint.h5").round == 4
    assert "no run folder is left" not in said.out
    assert f"results: {tmp_path / 'run'}" in said.out
