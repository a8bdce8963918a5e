"""What a terminal and its relatives send: the round ends, a checkpoint is there, one message says how to go on."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.aftermath import Aftermath
from support.cores import two_cores
from support.runs import (
    SIMULATED,
    Command,
    Said,
    events,
    eventually,
    newest,
    partrain,
    resume,
    round_file,
    sabotage,
    summary,
    write_job,
    writer,
)
from support.stalls import state

from partrain import checkpoint
from partrain.launch.signals import Signals


def committed(run: Path, count: int = 3) -> None:
    eventually(lambda: len(events(run, "commit")) >= count, "commits")


def check_stopped(said: Said, run: Path, code: int, name: str, planned: int = 100) -> None:
    """Check that the last round is on disk, that the run ended before its `planned` rounds, and what the command prints."""
    assert said.code == code, said
    assert said.errors == []
    assert "Traceback" not in said.err + said.out
    assert (summary(run)["status"], summary(run)["reason"]) == ("stopped", name)
    assert checkpoint.read(run / "checkpoint.h5").round == summary(run)["rounds"] < planned
    assert events(run)[-1]["status"] == "stopped"


def test_the_end_of_an_allocation_is_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_END_TIME", f"{int(time.time()) + 30}")
    job, run = write_job(tmp_path, SIMULATED, "stop.rounds=1000000"), tmp_path / "run"
    said = partrain("run", job, "--out", run)
    check_stopped(said, run, 143, "end of the allocation", planned=1000000)
    assert "end of the allocation: stopping after this round" in said.err
    assert "SIGTERM" not in said.err


@pytest.mark.representative
@pytest.mark.parametrize(
    ("number", "group", "code"),
    [
        (signal.SIGINT, True, 130),
        (signal.SIGTERM, False, 143),
        (signal.SIGHUP, True, 143),
        (signal.SIGUSR2, True, 143),
        (signal.SIGXCPU, True, 143),
    ],
    ids=["Ctrl-C", "SIGTERM", "the terminal closes", "SLURM", "a batch system"],
)
def test_once(job: Path, tmp_path: Path, number: signal.Signals, group: bool, code: int) -> None:
    run = tmp_path / "run"
    with Command(("run", job, "--out", "run"), tmp_path) as command:
        committed(run)
        command.interrupt(number) if group else command.process.send_signal(number)
        if number == signal.SIGHUP:  # the kernel and the shell
            command.interrupt(number)
        said = command.wait()
    check_stopped(said, run, code, number.name)
    assert len([line for line in said.err.splitlines() if number.name in line]) == 1
    reached = summary(run)["rounds"]
    assert newest(run) == round_file(job.with_name("run"), reached).read_bytes(), "as if nobody had asked"
    words = shlex.split(re.findall(r"^  (partrain resume .*)$", said.out, re.MULTILINE)[0])
    if number not in (signal.SIGINT, signal.SIGTERM):  # from the same bytes by the same words
        *command, path = words
        assert (command, tmp_path / path) == (["partrain", "resume"], run / "checkpoint.h5")
        return
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        assert partrain(*words[1:], "-q").code == 0
    finally:
        os.chdir(here)
    assert newest(run) == newest(job.with_name("run"))


def test_a_signal_for_a_checkpoint_to_all_processes(job: Path, tmp_path: Path) -> None:
    """SLURM sends it to the whole group: no worker and no other process is lost."""
    run, sets = tmp_path / "run", ("--set", "stop.rounds=100000", "--set", "checkpoint.commit='coalesce'")
    with Command(("run", job, "--out", "run", *sets), tmp_path) as command:
        eventually(lambda: len(events(run, "round")) > 20, "rounds")
        members = command.members()
        for _ in range(3):
            before = len(events(run, "commit"))
            command.interrupt(signal.SIGUSR1)
            eventually(lambda: len(events(run, "commit")) > before, "the checkpoint")  # noqa: B023
        assert command.members() == members
        command.interrupt()
        said = command.wait()
    assert events(run, "replay") == []
    check_stopped(said, run, 130, "SIGINT", planned=100_000)


ASK = """
import gc
from partrain.comm.arena import ASKED, Arena
server = os.getppid()
boss = int(open(f'/proc/{server}/stat').read().rpartition(')')[2].split()[1])
os.kill(boss, signal.SIGUSR1)
for board in gc.get_objects():
    if type(board) is Arena:
        break
while board.get("wanted") != ASKED:
    time.sleep(0.001)
"""
"""Ask for a checkpoint, and go on once the coordinator has told worker 0."""


@pytest.mark.parametrize(("commit", "kind"), [("every", "shared"), ("coalesce", "simulated")])
def test_a_checkpoint_that_no_other_reason_gives(tmp_path: Path, commit: str, kind: str) -> None:
    """A signal within round 2 gives a checkpoint of it; all else stays to the bit."""
    sets = (
        f"checkpoint={{commit='{commit}', every=1000000}}",
        f"transport.kind='{kind}'",
        "stop={rounds=40, judge_every=1000000}",
    )
    after = Aftermath(sabotage(tmp_path, ASK, *sets, worker=0, call=5))
    assert after.final
    assert [event["round"] for event in events(tmp_path / "whole", "commit")] == [40]
    assert after.train().code == 0
    asked, last = (event["round"] for event in events(after.run, "commit"))
    assert 2 <= asked < last == 40
    assert newest(after.run) == after.final
    (tmp_path / "whole/checkpoint.h5").unlink()
    resume(round_file(after.run, asked), "--out", tmp_path / "again", "--trust-code")
    assert newest(tmp_path / "again") == after.final


@pytest.mark.usefixtures("stranger")
def test_twice(tmp_path: Path) -> None:
    """Now, whatever the workers are at."""
    run = tmp_path / "run"
    job = sabotage(tmp_path, "time.sleep(1000)", "stop.rounds=150", call=60)
    with Command(("run", job, "--out", run), tmp_path) as command:
        eventually((tmp_path / "done").exists, "the long iteration")
        command.interrupt()
        eventually(lambda: events(run, "stopping"), "the first to be heard")
        time.sleep(0.5)
        assert command.process.poll() is None
        command.interrupt()
        said = command.wait()  # the long iteration would take longer
    check_stopped(said, run, 130, "SIGINT")
    assert summary(run)["rounds"] == 19
    assert f"partrain resume {run / 'checkpoint.h5'} --trust-code" in said.out
    resume(run, "--trust-code", "--until", "rounds=20")


@pytest.mark.parametrize("delay", [0.0, 0.6, 1.2])
def test_before_the_first_round(job: Path, tmp_path: Path, delay: float) -> None:
    with Command(("run", job, "--out", "run", "--set", "stop.rounds=100000"), tmp_path) as command:
        eventually(lambda: len(command.members()) > 1, "the forkserver")
        time.sleep(delay)
        command.interrupt()
        said = command.wait()
    assert said.code == 130, said
    assert said.errors == []
    assert "Traceback" not in said.err + said.out, said


@pytest.mark.slow
@two_cores
def test_a_reader_who_leaves(job: Path, tmp_path: Path) -> None:
    """`partrain run ... | head -1` trains to the end."""
    line = f"{shlex.quote(sys.executable)} -m partrain run {shlex.quote(str(job))} --out run; echo $? > code"
    said = subprocess.run(f"({line}) | head -1", shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (tmp_path / "code").read_text() == "0\n"
    assert said.stdout.partition("  ")[2].startswith("clouds: 2 cpu workers, rule average, ")
    assert len(said.stdout.splitlines()) == 1
    assert said.stderr == ""
    assert newest(tmp_path / "run") == newest(job.with_name("run"))


def test_nohup(job: Path, tmp_path: Path) -> None:
    """Who was started to ignore a signal does not take it for a wish."""
    with Command(("run", job, "--out", "run", "--set", "stop.rounds=30"), tmp_path, ignored=(signal.SIGHUP,)) as command:
        committed(tmp_path / "run")
        command.interrupt(signal.SIGHUP)
        said = command.wait()
    assert (said.code, summary(tmp_path / "run")["status"]) == (0, "finished"), said


def test_impatience_counts_and_an_echo_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal again and again, faster than two wishes are told apart, is more than one wish."""
    now = 0.0
    monkeypatch.setattr("partrain.launch.signals.time.monotonic", lambda: now)
    counts = []
    with Signals() as signals:
        for now in (10.0, 10.05, 10.15, 10.3, 10.4):  # noqa: B007  the clock says it
            os.kill(os.getpid(), signal.SIGTERM)  # not SIGINT, which is ignored where tests run in the background
            counts.append(signals.count)
    assert counts == [1, 1, 1, 2, 2]


@pytest.mark.parametrize("times", [1, 2])
def test_after_the_last_round(tmp_path: Path, times: int) -> None:
    """A run that is done is done: 0. The test may be left out, and is made up for."""
    run, job = tmp_path / "run", sabotage(tmp_path, "", "stop.rounds=2")
    slow = """        if not self.training and len(x) == 20:  # of the test items
            DONE.with_name("testing").touch()
            while not DONE.with_name("tested").exists():
                time.sleep(0.01)
"""
    saboteur, plain = tmp_path / "saboteur.py", (tmp_path / "saboteur.py").read_text()
    saboteur.write_text(plain.replace("        if self.training:\n", f"{slow}        if self.training:\n"))
    with Command(("run", job, "--out", "run"), tmp_path) as command:
        committed(run, 2)
        eventually((tmp_path / "testing").exists, "the test")
        eventually(lambda: state(command.process.pid) == "S", "the coordinator to have heard that training is over")
        for number in range(1, times + 1):
            command.interrupt()
            eventually(lambda: len(events(run, "stopping")) == 1, "the first to be heard")
            time.sleep(0.3 * (number < times))  # else they would count as one
        if times == 1:
            (tmp_path / "tested").touch()
        said = command.wait()
    assert "warning: SIGINT: training is over, and the test goes on; once more to leave it out" in said.err
    assert (said.code, summary(run)["status"]) == ((0, "finished") if times == 1 else (130, "stopped")), said
    assert summary(run)["rounds"] == 2
    assert bool(summary(run)["test"]) == (times == 1)
    saboteur.write_text(plain)
    resume(run, "--trust-code")
    assert (summary(run)["status"], bool(summary(run)["test"])) == ("finished", True)


@pytest.mark.slow
@pytest.mark.parametrize("commit", ["every", "coalesce"])
def test_a_file_that_is_not_waited_for(job: Path, tmp_path: Path, commit: str) -> None:
    """Whoever asks once more leaves the last file to a disk that does not answer; the one before it is whole."""
    run, sets = tmp_path / "run", ("--set", f"checkpoint.commit='{commit}'", "--set", "stop.rounds=100000")
    with Command(("run", job, "--out", "run", *sets), tmp_path) as command:
        committed(run, 1)
        os.kill(writer(command), signal.SIGSTOP)
        last = checkpoint.read(run / "checkpoint.h5").round
        time.sleep(0.5)
        command.interrupt()
        if commit == "coalesce":
            eventually(lambda: len(events(run, "stopping")) > 1, "words")
        else:  # workers wait for the file in the middle of a round
            time.sleep(0.5)
        if commit == "every" or "leave the test out" in events(run, "stopping")[-1]["what"]:
            command.interrupt()  # the best round was none of the newest
        eventually(lambda: [event for event in events(run, "stopping") if event["what"].startswith("waiting")], "words")
        command.interrupt()
        said = command.wait()
    assert said.code == 130, said
    words = r"waiting for the last checkpoint's file; once more to leave it out: the checkpoint of round (\d+) is intact"
    assert int(re.findall(words, said.err)[0]) in (last - 1, last), "it may not have been told of the newest"
    assert "Traceback" not in said.err
    assert summary(run)["status"] == "stopped"
    assert checkpoint.read(run / "checkpoint.h5").round == last
    resume(run, "--until", f"rounds={last + 2}")
    assert newest(run) == round_file(run, last + 2).read_bytes()
    assert not list(run.rglob("*.tmp"))


STUCK = """
import os, signal, time
from partrain.launch import signals
signals.UNHEARD_S = 0.2
with signals.Signals():
    for _ in range(2):
        os.kill(os.getpid(), signal.{name})
        time.sleep(signals.ONE_WISH_S + 0.1)
    time.sleep(1000)
"""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_twice_ends_a_command_that_is_stuck(name: str, code: int) -> None:
    """The main thread waits for a frozen process and handles no signal."""
    told = subprocess.run(
        [sys.executable, "-c", STUCK.format(name=name)], capture_output=True, text=True, timeout=110, check=False
    )
    assert (told.returncode, told.stderr.count("\n")) == (code, 1), told
    assert f"{name} twice: a process that this one waits for is frozen" in told.stderr
