"""Hooks of another package follow a run, and whatever they do costs the run nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from support.hooks import install, recorded
from support.runs import Command, events, eventually, newest, partrain, resume, sabotage, summary, train, write_job

from partrain import train as train_here
from partrain.launch import hook_process


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the installed package. No run tells that it waits for its hooks, which may take long on a busy machine."""
    monkeypatch.setattr(hook_process, "ANNOUNCED_S", 1000.0)
    folder = install(tmp_path / "site")
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.mark.representative
def test_a_hook_of_another_package_gets_every_event(tmp_path: Path, theirs: Path) -> None:
    said = partrain("run", write_job(tmp_path), "--out", tmp_path / "run", "-q", "--log", "recorder")
    assert (said.code, said.err) == (0, "")
    first, *rest, last = recorded(tmp_path / "run")
    told = events(tmp_path / "run")
    assert [each["kind"] for each in rest] == [event["event"] for event in told]
    assert (first["kind"], first["job"], first["started"]) == ("open", "clouds", told[0]["t"])
    assert rest[-1] | {"kind": "end"} == rest[-1]
    assert rest[-1]["status"] == "finished"
    assert (rest[-1]["round"], rest[-1]["item_iterations"]) == (4, summary(tmp_path / "run")["item_iterations"])
    assert last == {"kind": "close"}
    assert not (tmp_path / "run" / "hooks.log").exists()


@pytest.mark.slow
def test_a_script_chooses_hooks(tmp_path: Path, theirs: Path) -> None:
    job = write_job(tmp_path)
    with pytest.raises(ValueError, match="there is no hook `recorders`; known: absent, dying, "):
        train_here(job, out=tmp_path / "run", log=["recorders"])
    train_here(job, out=tmp_path / "run", log=["recorder"])
    assert recorded(tmp_path / "run")[-1] == {"kind": "close"}


def test_checkpoints_are_the_same_with_and_without_hooks(tmp_path: Path, theirs: Path) -> None:
    without = train(tmp_path)
    assert (
        partrain("run", tmp_path / "job.toml", "--out", tmp_path / "with", "-q", "--log", "recorder", "--log", "failing").code
        == 0
    )
    assert newest(tmp_path / "with") == newest(without)


def test_a_resumed_run_goes_on_or_is_replayed(tmp_path: Path, theirs: Path) -> None:
    run = tmp_path / "run"
    assert partrain("run", write_job(tmp_path, "stop.rounds=2"), "--out", run, "-q", "--log", "recorder").code == 0
    before = recorded(run)
    resume(run, "--until", "rounds=4", "--log", "recorder")
    opened, start, *_, end, closed = recorded(run)[len(before) :]
    assert opened == before[0]  # the same run: same id, same beginning
    assert (start["kind"], start["round"]) == ("start", 2)
    assert (end["kind"], end["round"], closed["kind"]) == ("end", 4, "close")
    (run / "recorded.jsonl").unlink()
    resume(run, "--until", "rounds=5", "--log", "replaying")
    assert [each["kind"] for each in recorded(run)[1:-1]] == [event["event"] for event in events(run)]


@pytest.mark.parametrize(("hook", "warning", "log"), [
    ("failing", "the hook `failing` failed and gets no more events: RuntimeError: no more; ", "of this"),
    ("failing-close", "the hook `failing-close` failed and gets no more events: OSError: disk full; ", "disk full"),
    ("refusing", "the hook `refusing` failed and gets no more events: PermissionError: not for you; ", "not for you"),
    ("absent", "the hook `absent` failed and gets no more events: AttributeError: module 'theirs'", "AttributeError"),
    ("dying", "the process of the hooks ended with exit status 7 before its work was done; ", "about to die"),
])  # fmt: skip
def test_a_failing_hook_is_told_once(tmp_path: Path, theirs: Path, hook: str, warning: str, log: str) -> None:
    run = tmp_path / "run"
    said = partrain("run", write_job(tmp_path), "--out", run, "-q", "--log", hook)
    assert (said.code, summary(run)["status"]) == (0, "finished")
    (line,) = said.err.splitlines()
    assert line.startswith(f"partrain: warning: {warning}")
    assert f"{run}/hooks.log" in line
    assert log in (run / "hooks.log").read_text()


def test_other_hooks_go_on_when_one_fails(tmp_path: Path, theirs: Path) -> None:
    said = partrain("run", write_job(tmp_path), "--out", tmp_path / "run", "-q", "--log", "refusing", "--log", "recorder")
    assert said.code == 0
    assert recorded(tmp_path / "run")[-1] == {"kind": "close"}


def test_a_run_that_fails_closes_its_hooks(tmp_path: Path, theirs: Path) -> None:
    job = sabotage(tmp_path, "raise ValueError", call=7)
    said = partrain("run", job, "--out", tmp_path / "run", "-q", "--log", "recorder")
    assert said.code == 71
    *_, end, closed = recorded(tmp_path / "run")
    assert (end["kind"], end["status"], closed["kind"]) == ("end", "failed", "close")


LONG = ("stop={rounds=1000000, judge_every=1000}", "checkpoint.commit='coalesce'", "checkpoint.keep=2")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_closes_its_hooks(tmp_path: Path, number: signal.Signals) -> None:
    job, run, site = write_job(tmp_path, *LONG), tmp_path / "run", install(tmp_path / "site")
    with Command(
        ("run", job, "--out", run, "-q", "--log", "recorder"), tmp_path / "shell", {"PYTHONPATH": path(site)}
    ) as command:
        eventually(lambda: len(recorded(run)) > 10, "events at the hook")
        if number == signal.SIGINT:
            command.interrupt()
        else:
            command.process.kill()
        assert command.wait().code == (130 if number == signal.SIGINT else -signal.SIGKILL)
    kinds = [each["kind"] for each in recorded(run)]
    assert kinds[-1] == "close"
    assert len(kinds) == len(events(run)) + 2  # the last flushed event, too
    assert ("end" in kinds) == (number == signal.SIGINT)


@pytest.mark.slow
def test_a_second_signal_ends_hooks_that_are_stuck(tmp_path: Path) -> None:
    job, run, site = write_job(tmp_path), tmp_path / "run", install(tmp_path / "site")
    with Command(("run", job, "--out", run, "-q", "--log", "stuck"), tmp_path / "shell", {"PYTHONPATH": path(site)}) as command:
        eventually(lambda: recorded(run)[-1:] == [{"kind": "stuck"}], "the hook to be stuck")
        command.interrupt()
        said = command.wait()
    assert (said.code, summary(run)["status"]) == (0, "finished")  # the run had ended
    assert "finished (rounds): 4 rounds" in said.out
    assert "the hooks were ended after" in said.err


def path(site: Path) -> str:
    """PYTHONPATH with the package."""
    return os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
