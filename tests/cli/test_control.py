"""`partrain stop` and `partrain checkpoint`, on runs of other processes."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from support.runs import Command, events, eventually, newest, partrain, sabotage, summary, write_job

from partrain.errors import CannotCreate
from partrain.launch.control import NotTraining, _holders, ask_to_commit, ask_to_stop
from partrain.launch.folder import run_folder
from partrain.launch.folder.run_folder import locked
from partrain.record.run_folder import RunFolder, run_folders

SLOW = ('transport={kind="simulated"}', "stop={rounds=1000000}", 'checkpoint={commit="coalesce"}')


def test_a_checkpoint_now(tmp_path: Path) -> None:
    """The writer of a run with tiny rounds rests most of the time."""
    with Command(("run", write_job(tmp_path, *SLOW), "--out", "run", "-q"), tmp_path) as command:
        eventually(lambda: events(tmp_path / "run", "commit"), "a checkpoint")
        for _ in range(3):
            before = events(tmp_path / "run", "round")[-1]["round"]
            said = partrain("checkpoint", tmp_path, "--json")
            assert said.code == 0, said.err
            told = json.loads(said.out)
            assert told["round"] >= before
            assert Path(told["file"]).exists()
            assert events(tmp_path / "run", "commit")[-1]["round"] >= told["round"]
        assert partrain("stop", tmp_path / "run").code == 0
        assert command.wait().code == 143


@pytest.mark.slow
def test_checkpoints_that_were_asked_for_change_no_bit(tmp_path: Path) -> None:
    job = write_job(tmp_path, 'transport={kind="simulated"}', "stop={rounds=1500}", 'checkpoint={commit="coalesce"}')
    assert partrain("run", job, "--out", tmp_path / "a", "-q").code == 0
    with Command(("run", job, "--out", "b", "-q"), tmp_path) as command:
        eventually(lambda: events(tmp_path / "b", "round"), "a round")
        asked = 0
        while command.process.poll() is None and asked < 3:
            asked += partrain("checkpoint", tmp_path / "b").code == 0
        assert command.wait().code == 0
    assert asked
    assert newest(tmp_path / "a") == newest(tmp_path / "b")


@pytest.mark.representative
@pytest.mark.parametrize("words", [(), ("--now",)], ids=["after the round", "now"])
def test_a_run_is_stopped_and_goes_on(tmp_path: Path, words: tuple[str, ...]) -> None:
    with Command(("run", write_job(tmp_path, *SLOW), "--out", "run", "-q"), tmp_path) as command:
        eventually(lambda: events(tmp_path / "run", "commit"), "a checkpoint")
        said = partrain("stop", tmp_path / "run", *words)
        assert said.code == 0, said.err
        assert said.out.startswith("stopped (SIGTERM) in round ")
        assert f"partrain resume {tmp_path / 'run'}" in said.out
        assert not RunFolder(tmp_path / "run").is_training
        assert command.wait().code == 143
    reached = summary(tmp_path / "run")["rounds"]
    assert partrain("resume", tmp_path / "run", "--until", f"rounds={reached + 5}", "-q").code == 0
    assert summary(tmp_path / "run")["rounds"] == reached + 5


def test_a_run_that_is_stopped_before_it_begins_leaves_no_folder(tmp_path: Path) -> None:
    job = sabotage(tmp_path, "time.sleep(1000)", call=0)
    with Command(("run", job, "--out", "run", "-q"), tmp_path) as command:
        eventually((tmp_path / "done").exists, "the network to be built")
        said = partrain("stop", tmp_path / "run", "--now")
        assert said.code == 0, said.err
        assert said.out == "stopped before the first round: no run folder is left\n"
        assert command.wait().code == 143


def test_no_process_trains(tmp_path: Path) -> None:
    assert partrain("run", write_job(tmp_path), "--out", tmp_path / "run", "-q").code == 0
    for command in "stop", "checkpoint":
        said = partrain(command, tmp_path)
        assert said.code == 66
        assert f"{tmp_path}: no process trains a run here now" in said.err
    with pytest.raises(NotTraining, match="no process trains this run now"):
        ask_to_stop(tmp_path / "run")


def test_a_process_that_would_die_of_the_signal_gets_none(tmp_path: Path) -> None:
    """This process holds the lock and has no handler, as a program that trains in a thread."""
    with locked(tmp_path), pytest.raises(NotTraining, match="is not ready for SIGUSR1"):
        ask_to_commit(tmp_path)


def test_a_child_that_inherits_the_lock_is_not_asked(tmp_path: Path) -> None:
    """Its number may be the lower one: numbers begin anew when the largest is reached."""
    with locked(tmp_path):
        child = os.fork()
        if not child:
            try:
                signal.pause()
            finally:
                os._exit(0)  # never on as a second pytest
        try:
            assert list(_holders(tmp_path)) == [os.getpid()]
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_a_look_does_not_keep_a_run_from_starting(tmp_path: Path) -> None:
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            _ = RunFolder(tmp_path).is_training

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(100):
            with locked(tmp_path):
                pass
    finally:
        ended.set()
        thread.join()


def test_two_runs_in_one_folder_still_exclude_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "LOCK_TRIALS", 2)
    with locked(tmp_path), pytest.raises(CannotCreate, match="in use by a run that is under way"), locked(tmp_path):
        time.sleep(0)


def test_runs_below_a_folder(tmp_path: Path) -> None:
    for name in "runs/a/1", "runs/a/2", "runs/b/study/3":
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "events.jsonl").touch()
    assert [str(run.relative_to(tmp_path)) for run in run_folders(tmp_path / "runs")] == [
        "runs/a/1",
        "runs/a/2",
        "runs/b/study/3",
    ]
    assert list(run_folders(tmp_path / "runs/a/1")) == [tmp_path / "runs/a/1"]
