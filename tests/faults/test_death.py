"""Processes die or hang: noticed at once, told in one line, nothing left, and the run can go on from its newest checkpoint."""

from __future__ import annotations

import json
import multiprocessing.forkserver
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.aftermath import Aftermath
from support.cores import two_cores
from support.runs import (
    Command,
    descendants,
    events,
    eventually,
    is_forkserver,
    newest,
    parent,
    partrain,
    resume,
    round_file,
    sabotage,
    write_job,
    writer,
)
from support.stalls import count_stopped_only

from partrain import checkpoint
from partrain.errors import InputOutputFailed
from partrain.launch import checkpointer, coordinator, forkserver
from partrain.launch.attempt import Attempt
from partrain.launch.checkpoint_writer import CheckpointContext, Writer
from partrain.training.snapshot_layout import SlotMap

KILL = "os.kill(os.getpid(), signal.SIGKILL)"

MOMENTS = {
    "when it is built": (KILL, 0),
    "in its first iteration": (KILL, 1),
    "within a round": (KILL, 8),
    "while it mixes": (f"import partrain.comm.group as g; g.ArenaGroup._read_back = lambda *_: {KILL}", 4),
    "while others wait for it": (
        f"from partrain.comm.shared import SharedTransport; SharedTransport.barrier = lambda *_: {KILL}",
        4,
    ),
    "while it copies its state": (f"import partrain.launch.worker.coordinator_hooks as r; r.save = lambda *_: {KILL}", 4),
    "after its state is copied": (
        f"import partrain.launch.worker.coordinator_hooks as r; r.save = lambda *a, save=r.save: (save(*a), {KILL})",
        4,
    ),
}


def each_moment() -> pytest.MarkDecorator:
    """Kill worker 0 or worker 1 in turn; `make soak` kills the other."""
    rows = []
    for number, (name, (deed, call)) in enumerate(MOMENTS.items()):
        for worker in range(2):
            marks = () if worker == number % 2 else pytest.mark.soak
            rows.append(pytest.param(deed, call, worker, id=f"{name}-{worker}", marks=marks))
    return pytest.mark.parametrize(("deed", "call", "worker"), rows)


@pytest.mark.representative
@each_moment()
def test_a_worker_is_killed(tmp_path: Path, deed: str, call: int, worker: int) -> None:
    """All start again from the newest copy of the state."""
    after = Aftermath(sabotage(tmp_path, deed, worker=worker, call=call))
    said = after.train()
    if call == 0:
        assert (
            f"worker {worker} (cpu) was killed by SIGKILL (possibly out of memory) before the first round: all workers start again"
            in said.err
        )
        assert (said.code, events(after.run, "replay")) == (0, [])
        assert newest(after.run) == after.final
    else:
        told = after.check_replayed(said)
        assert told["rank"] == worker
        assert f"worker {worker} (cpu) was killed by SIGKILL" in told["what"]


@pytest.mark.parametrize("moment", ["when it is built", "within a round", "after its state is copied"])
def test_a_killed_worker_ends_the_run_if_the_user_wants_so(tmp_path: Path, moment: str) -> None:
    deed, call = MOMENTS[moment]
    after = Aftermath(sabotage(tmp_path, deed, "faults.on_loss='stop'", call=call))
    after.check(after.train(), 69, "workers-lost", "worker 1 (cpu) was killed by SIGKILL")


@pytest.mark.parametrize("commit", ["every", "coalesce"])
def test_all_workers_are_killed(tmp_path: Path, commit: str) -> None:
    deed = "[os.kill(int(p), 9) for p in open(f'/proc/{os.getppid()}/task/{os.getppid()}/children').read().split()]"
    after = Aftermath(sabotage(tmp_path, deed, f"checkpoint.commit='{commit}'", call=9))
    after.check_replayed(after.train())


def test_the_one_process_of_simulated_workers(tmp_path: Path) -> None:
    after = Aftermath(sabotage(tmp_path, KILL, 'transport.kind="simulated"', worker=0, call=8))
    after.check_replayed(after.train())


def test_a_crash_names_its_signal(tmp_path: Path) -> None:
    after = Aftermath(sabotage(tmp_path, "import ctypes; ctypes.string_at(0)", call=5))
    assert "worker 1 (cpu) was killed by SIGSEGV" in after.check_replayed(after.train())["what"]


@pytest.mark.representative
def test_a_worker_stands_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL works on a stopped process; then the round runs again."""
    count_stopped_only(monkeypatch)
    after = Aftermath(sabotage(tmp_path, "os.kill(os.getpid(), signal.SIGSTOP)", "transport.stall_seconds=1.0", call=8))
    told = after.check_replayed(after.train())
    assert told["rank"] == 1
    assert "worker 1 made no progress for 1 s in round 3" in told["what"]


@pytest.mark.parametrize("faults", ["faults.on_loss='stop'", "faults.on_loss='replay'"])
def test_a_round_stalls_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: str) -> None:
    """The run ends with 75. The message names the worker and the key that gives it more time."""
    count_stopped_only(monkeypatch)
    again = "DONE.unlink(); os.kill(os.getpid(), signal.SIGSTOP)"
    after = Aftermath(sabotage(tmp_path, again, faults, "transport.stall_seconds=1.0", call=1))
    said = partrain("run", after.job, "--out", after.run, "-q")
    assert (said.code, said.errors) == (75, ["stalled"]), said
    assert "worker 1 made no progress for 1 s in round 1" in said.err
    assert "stall_seconds" in said.err
    assert events(after.run, "fault")[0]["rank"] == 1
    assert len(events(after.run, "replay")) == ("replay" in faults)


def test_too_many_replays(tmp_path: Path) -> None:
    """69, and the newest checkpoint is whole."""
    again = "DONE.unlink(); os.kill(os.getpid(), signal.SIGKILL)"
    after = Aftermath(sabotage(tmp_path, again, "faults.max_replays=2", call=4))
    said = partrain("run", after.job, "--out", after.run, "-q")
    assert (said.code, said.errors) == (69, ["workers-lost"]), said
    assert "it was replay 3 within 100 rounds, and [faults] max_replays is 2" in said.err
    assert len(events(after.run, "replay")) == 2
    (tmp_path / "done").touch()
    after.check_folder()


def test_a_worker_is_slow(tmp_path: Path) -> None:
    """Slower than the others, but not stuck."""
    job = sabotage(tmp_path, "time.sleep(0.8)", "transport.stall_seconds=20.0", call=8)
    assert partrain("run", job, "--out", tmp_path / "run", "-q").code == 0
    assert not events(tmp_path / "run", "fault")


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["shared", pytest.param("simulated", marks=pytest.mark.slow)])
@pytest.mark.parametrize("again", [False, True])
def test_a_worker_never_gets_to_its_first_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: str, again: bool
) -> None:
    """As a constructor that waits for ever does, or a device that does not answer. The second time it ends the run."""
    worker = int(transport == "shared")  # simulated ones live in one process, which has the first one's name
    deed = "DONE.unlink(); " * again + "os.kill(os.getpid(), signal.SIGSTOP)"
    count_stopped_only(monkeypatch)
    sets = ["transport.stall_seconds=1", f'transport.kind="{transport}"']
    after = Aftermath(sabotage(tmp_path, deed, *sets, worker=worker, call=0))
    with monkeypatch.context() as patch:
        patch.setattr(coordinator, "STARTUP_LIMIT_S", 0.0)
        said = partrain("run", after.job, "--out", after.run, "-q")
    who = "worker 1" if worker else "workers 0, 1"
    silence = f"{who} gave no sign of life for 1 s before the first round"
    assert f"{silence}: all workers start again" in said.err
    if again:
        (tmp_path / "done").touch()
        after.check(said, 75, "stalled", f"{silence}; raise [transport] stall_seconds")
    else:
        assert (said.code, said.errors) == (0, []), said
        assert newest(after.run) == after.final


@pytest.mark.parametrize("commit", ["every", "coalesce"])
def test_the_disk_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: str) -> None:
    """75, naming the writer: also where workers do not wait for it, and where all are done."""
    stopped: list[int] = []

    class Stopped(Writer):
        def __init__(self, context: CheckpointContext) -> None:
            super().__init__(context)
            stopped.append(self._child.pid)
            os.kill(stopped[0], signal.SIGSTOP)

    monkeypatch.setattr(checkpointer, "Writer", Stopped)
    monkeypatch.setattr(checkpointer, "STARTUP_LIMIT_S", 0.0)
    count_stopped_only(monkeypatch)
    job = write_job(tmp_path, f"checkpoint.commit='{commit}'", "stop.rounds=60", "transport.stall_seconds=2")
    said = partrain("run", job, "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (75, ["stalled"]), said
    assert "the checkpoint writer has done nothing for 2 s: the disk does not answer; raise [transport] stall_seconds" in said.err
    assert "Traceback" not in said.err
    assert not Path(f"/proc/{stopped[0]}").exists()


def test_children_of_a_worker(tmp_path: Path) -> None:
    """A process that user code starts and forgets may live on until the command ends; it does not keep the run from ending."""
    deed = "import subprocess; self.child = subprocess.Popen(['sleep', '0.5'], stdin=-3, stdout=-3, stderr=-3); " + KILL
    after = Aftermath(sabotage(tmp_path, deed, call=5))
    after.check_replayed(after.train())


def test_the_folder_of_checkpoints_vanishes(tmp_path: Path) -> None:
    """What cannot be written ends the run: 74."""
    deed = f"import shutil; shutil.rmtree({json.dumps(str(tmp_path / 'run' / 'checkpoints'))})"
    said = partrain("run", sabotage(tmp_path, deed, call=8), "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (74, ["io"]), said
    assert "Traceback" not in said.err
    assert checkpoint.read(tmp_path / "run/checkpoint.h5").round in (1, 2)


WRITER_DIES = """
server = os.getppid()
boss, found = int(open(f'/proc/{server}/stat').read().rpartition(')')[2].split()[1]), False
while not found:
    for child in open(f'/proc/{boss}/task/{boss}/children').read().split():
        if open(f'/proc/{child}/cmdline').read() == open(f'/proc/{boss}/cmdline').read():
            os.kill(int(child), signal.SIGKILL)
            found = True
"""


@pytest.mark.parametrize("commit", ["every", "coalesce"])
def test_the_writer_before_it_has_work(tmp_path: Path, commit: str) -> None:
    """Another one writes the first checkpoint."""
    after = Aftermath(sabotage(tmp_path, WRITER_DIES, f"checkpoint.commit='{commit}'"))
    told = after.check_replayed(after.train(), after=1 if commit == "every" else None)
    assert told["what"] == "the checkpoint writer was killed by SIGKILL (possibly out of memory)"
    assert (told["rank"], told["discarded"]) == (None, [])


@pytest.mark.representative
@pytest.mark.parametrize(
    ("step", "commit"),
    [
        pytest.param(step, commit, marks=() if number % 2 == turn else pytest.mark.soak)
        for number, step in enumerate(("encode", "write", "link_best", "link_latest", "prune"))
        for turn, commit in enumerate(("every", "coalesce"))
    ],
)
def test_the_writer_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, commit: str) -> None:
    """Before and after each step of the first checkpoint; the files and events of the run are those of a run that lost no writer."""
    sets = "stop.rounds=6", "optimizer.momentum=0.9", f"checkpoint.commit='{commit}'", "checkpoint.keep=2"
    after = Aftermath(write_job(tmp_path, *sets))
    assert after.final, "by a writer that lives"
    calls = dying_writer(monkeypatch, tmp_path, step, before={0}, after={1})
    said = partrain("run", after.job, "--out", after.run, "-q")
    told = after.check_replayed(said)
    assert len(events(after.run, "replay")) == 2
    assert len(calls.read_text()) == 2 + len(events(after.run, "commit"))
    assert "the checkpoint writer was killed by SIGKILL" in told["what"]
    committed = [event["round"] for event in events(after.run, "commit")]
    assert committed == sorted(set(committed))
    names = {path.name for path in after.run.rglob("*")} - {"best.h5"}
    assert not [name for name in names if "tmp" in name or "part" in name]
    if commit == "every":
        assert committed == list(range(1, 7))
        assert names == {path.name for path in (tmp_path / "whole").rglob("*")} - {"best.h5"}
        assert (after.run / "best.h5").read_bytes() == (tmp_path / "whole/best.h5").read_bytes()


def test_a_writer_that_always_dies_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = dying_writer(monkeypatch, tmp_path, "write", before=set(range(9)))
    said = partrain("run", write_job(tmp_path, "faults.max_replays=2"), "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (74, ["io"]), said
    assert "[faults] max_replays is 2; no checkpoint was committed yet" in said.err
    assert len(calls.read_text()) == 3


def dying_writer(monkeypatch: pytest.MonkeyPatch, folder: Path, step: str, before: set[int], after: Collection[int] = ()) -> Path:
    """Kill the writer before and after these calls of a step. Returns a file with a letter for each call."""
    calls, whole, ours = folder / "calls", getattr(checkpoint, step), os.getpid()
    calls.touch()

    def step_or_die(*words: Any, **options: Any) -> Any:
        if os.getpid() == ours:
            return whole(*words, **options)
        count = len(calls.read_text())
        with calls.open("a") as file:
            file.write("#")
        if count in before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = whole(*words, **options)
        if count in after:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    monkeypatch.setattr(checkpoint, step, step_or_die)
    return calls


def test_the_writer_before_any_commit(tmp_path: Path) -> None:
    """A loss that ends the run names the worker."""
    job = sabotage(tmp_path, WRITER_DIES, "checkpoint.commit='coalesce'", "faults.on_loss='stop'")
    said = partrain("run", job, "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (74, ["io"]), said
    assert "the checkpoint writer was killed by SIGKILL (possibly out of memory); no checkpoint was committed yet" in said.err


def test_what_a_dead_writer_was_to_be_sent_is_let_go(tmp_path: Path) -> None:
    """Python 3.12.1 crashes where the garbage collection finds its buffer open, and 3.13 tells of it on stderr."""
    before = descendants(os.getpid())
    bereaved = Writer(CheckpointContext(tmp_path, 1, "", {}, SlotMap(), []))
    try:
        for child in descendants(os.getpid()) - before:
            os.kill(child, signal.SIGKILL)
        eventually(bereaved.pipe.poll, "the end of its pipe")
        with pytest.raises(InputOutputFailed, match="the checkpoint writer was killed by SIGKILL") as lost:
            bereaved.write(0, {}, [])
        assert lost.value.__context__ is None
    finally:
        bereaved.close()


@two_cores
def test_what_was_committed_last_is_told(tmp_path: Path) -> None:
    """The best so far waits for the writer when a worker dies: it still reaches the disk.

    The worker dies only once the other one is in round 2 as well, and so has offered what was copied after round 1.
    """
    met = "while not DONE.with_name('second').exists(): time.sleep(0.001)\n"
    job = sabotage(tmp_path, met + KILL, "checkpoint.commit='coalesce'", "faults.on_loss='stop'", call=5)
    net, counts = tmp_path / "saboteur.py", "        self.calls += self.training\n"
    second = (
        "multiprocessing.current_process().name == 'partrain worker 0' and self.calls == 4 and DONE.with_name('second').touch()"
    )
    net.write_text(net.read_text().replace(counts, f"{counts}        {second}\n"))
    said = partrain("run", job, "--out", tmp_path / "run", "-q")
    assert [event["round"] for event in events(tmp_path / "run", "commit")] == [1], "it was not as meant"
    told = "worker 1 (cpu) was killed by SIGKILL (possibly out of memory); the checkpoint of round 1 is intact"
    assert (said.code, said.err) == (69, f"partrain: error[workers-lost]: {told}\n")
    (fault,) = events(tmp_path / "run", "fault")
    assert (fault["what"], fault["rank"]) == (told, 1)


def test_what_a_resumed_run_goes_back_to_is_told(tmp_path: Path) -> None:
    """Also before it has committed anything itself."""
    job = sabotage(tmp_path, KILL, "stop.rounds=2", "faults.on_loss='stop'", call=2)
    (tmp_path / "done").touch()
    assert partrain("run", job, "--out", tmp_path / "run", "-q").code == 0
    (tmp_path / "done").unlink()
    said = partrain("resume", tmp_path / "run", "--trust-code", "--until", "rounds=4", "-q")
    assert (said.code, said.errors) == (69, ["workers-lost"]), said
    assert "the checkpoint of round 2 is intact" in said.err


# Real commands


def trained(job: Path) -> bytes:
    return newest(job.with_name("run"))


def committed(run: Path, count: int = 3) -> int:
    """Wait for some commits; the newest one's round."""
    return int(eventually(lambda: len(events(run, "commit")) >= count and events(run, "commit")[-1]["round"], "commits"))


def test_a_worker_process(job: Path, tmp_path: Path) -> None:
    with Command(("run", job, "--out", "run"), tmp_path) as command:
        committed(tmp_path / "run")
        os.kill(events(tmp_path / "run", "start")[0]["workers"][1]["pid"], signal.SIGKILL)
        said = command.wait()
    assert (said.code, said.errors) == (0, []), said
    (told,) = events(tmp_path / "run", "replay")
    assert (told["rank"], "worker 1 (cpu) was killed by SIGKILL" in told["what"]) == (1, True)
    assert (said.out + said.err).count("killed by SIGKILL") == 1, "told once"
    assert newest(tmp_path / "run") == trained(job)


def test_the_coordinator(job: Path, tmp_path: Path) -> None:
    """Workers, forkserver and writer die with it, and need not be asked. No temporary file is left."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # a socket's path is short
    with Command(("run", job, "--out", "run"), tmp_path, environment={"TMPDIR": str(folder)}) as command:
        committed(tmp_path / "run")
        assert len(command.members()) >= 5
        command.process.kill()
        command.process.wait()
        eventually(lambda: not command.members(), "its processes to be gone")
    folder.rmdir()
    resume(tmp_path / "run")
    assert newest(tmp_path / "run") == trained(job)


def test_the_coordinator_at_the_start(job: Path, tmp_path: Path) -> None:
    """At moments when children are about to learn who their parent is."""
    for number in range(2):
        with Command(("run", job, "--out", f"{number}"), tmp_path) as command:
            eventually(lambda: len(command.members()) > 1, "the forkserver")
            time.sleep(0.8 * number)
            command.process.kill()
            command.process.wait()
            eventually(lambda: not command.members(), "its processes to be gone")


def test_a_forkserver_that_learns_late_that_it_has_no_parent(job: Path, tmp_path: Path) -> None:
    """It does not import torch first. A new interpreter: forks have imported it."""
    with Command(("run", job, "--out", "run"), tmp_path, launcher=(sys.executable, "-s")) as command:
        server = eventually(lambda: forkservers(command), "the forkserver")[0]
        os.kill(server, signal.SIGSTOP)
        command.process.kill()
        command.process.wait()
        with suppress(OSError):
            os.kill(server, signal.SIGCONT)

        def gone() -> bool:
            with suppress(OSError):
                assert "libtorch" not in Path(f"/proc/{server}/maps").read_text()
            return not command.members()

        eventually(gone, "its processes to be gone")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_forkserver_ends_with_the_command(job: Path, tmp_path: Path, number: signal.Signals) -> None:
    """At once, not when torch is imported: here it never will be.

    A new interpreter, for SIGINT: a fork would soon have imported all, and begin the run.
    """
    words, launcher = ("run", job, "--out", "run", "--json"), (sys.executable, *["-s"] * (number == signal.SIGINT))
    with Command(words, tmp_path, launcher=launcher) as command:
        server = eventually(lambda: forkservers(command), "the forkserver")[0]
        if number == signal.SIGKILL:
            eventually(lambda: ignored(server) >> signal.SIGINT - 1 & 1, "it to be shielded")
        os.kill(server, signal.SIGSTOP)
        command.process.send_signal(number)
        said = command.wait()
    assert said.code == {signal.SIGKILL: -9, signal.SIGINT: 130}[number]
    if number == signal.SIGINT:  # the only line of a command that was stopped so early
        assert said.err == "partrain: stopped by SIGINT before there was a result\n"
        assert json.loads(said.out)["error"]["code"] == 130


def test_the_forkserver_at_the_start(job: Path, tmp_path: Path) -> None:
    """While the coordinator waits for its first process."""
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        Command(("run", job, "--out", "run"), tmp_path, environment={"TMPDIR": folder}) as command,
    ):
        server = eventually(lambda: forkservers(command), "the forkserver")[0]
        os.kill(server, signal.SIGSTOP)
        eventually(lambda: Path("/proc/net/unix").read_text().count(folder) > 1, "the coordinator to ask for a process")
        os.kill(server, signal.SIGKILL)
        said = command.wait()
    assert (said.code, said.errors) == (0, []), said
    assert "partrain worker 0 could not be started" in said.err
    assert "all workers start again" in said.err
    assert newest(tmp_path / "run") == trained(job)


def test_the_checkpoint_writer(job: Path, tmp_path: Path) -> None:
    with Command(("run", job, "--out", "run"), tmp_path) as command:
        committed(tmp_path / "run")
        os.kill(writer(command), signal.SIGKILL)
        said = command.wait()
    assert (said.code, said.errors) == (0, []), said
    (told,) = events(tmp_path / "run", "replay")
    assert "the checkpoint writer was killed by SIGKILL" in told["what"]
    assert f"another one writes the checkpoint of round {told['after']}\n" in said.out + said.err
    assert newest(tmp_path / "run") == trained(job)


@pytest.mark.slow
def test_a_slow_disk(job: Path, tmp_path: Path) -> None:
    """Workers that wait for a file are not stuck."""
    with Command(("run", job, "--out", "run", "--set", "transport.stall_seconds=5"), tmp_path) as command:
        committed(tmp_path / "run")
        os.kill(writer(command), signal.SIGSTOP)
        time.sleep(8)
        os.kill(writer(command), signal.SIGCONT)
        said = command.wait()
    assert said.code == 0, said
    assert not events(tmp_path / "run", "fault")


def test_the_forkserver(job: Path, tmp_path: Path) -> None:
    """Workers die with it, and start again from another one."""
    with Command(("run", job, "--out", "run"), tmp_path) as command:
        committed(tmp_path / "run")
        (server,) = forkservers(command)
        os.kill(server, signal.SIGKILL)
        said = command.wait()
    assert (said.code, said.errors) == (0, []), said
    assert "the process that starts workers was killed, and they ended with it" in events(tmp_path / "run", "replay")[0]["what"]
    assert newest(tmp_path / "run") == trained(job)


@pytest.mark.slow
def test_the_forkserver_dies_as_often_as_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the dry run forks from it, before the workers do, and twice more before they start again."""
    after = Aftermath(sabotage(tmp_path, KILL, call=8))
    deaths = dying_forkserver(monkeypatch, {"start_dry_run": {1}, "start_workers": {1, 3, 4}})
    after.check_replayed(after.train())
    assert deaths == ["start_dry_run"] + ["start_workers"] * 3


def test_a_forkserver_that_always_dies_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deaths = dying_forkserver(monkeypatch, {"start_workers": set(range(1, 9))})
    said = partrain("run", write_job(tmp_path, "faults.max_replays=2"), "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (69, ["workers-lost"]), said
    assert "[faults] max_replays is 2" in said.err
    assert len(deaths) == 3


def dying_forkserver(monkeypatch: pytest.MonkeyPatch, turns: dict[str, set[int]]) -> list[str]:
    """Kill the forkserver while these calls of methods of Attempt wait for their first process. Returns the calls so far."""
    deaths: list[str] = []
    armed: list[str] = []
    connect = multiprocessing.forkserver.connect_to_new_process

    def connect_and_kill(fds: Any) -> Any:
        if not armed:
            return connect(fds)
        deaths.append(armed.pop())
        os.kill(forkserver.pid(), signal.SIGSTOP)  # so that it does not answer before
        connection = connect(fds)
        os.kill(forkserver.pid(), signal.SIGKILL)
        return connection

    def counted(name: str) -> Callable[[Attempt], None]:
        whole, calls = getattr(Attempt, name), [0]

        def call(attempt: Attempt) -> None:
            calls[0] += 1
            armed[:] = [name] * (calls[0] in turns[name])
            whole(attempt)

        return call

    for name in turns:
        monkeypatch.setattr(Attempt, name, counted(name))
    monkeypatch.setattr("multiprocessing.forkserver.connect_to_new_process", connect_and_kill)
    return deaths


@pytest.mark.slow
def test_two_signals_end_a_command_whose_writer_is_frozen(job: Path, tmp_path: Path) -> None:
    """The disk hangs, and workers wait for it: the newest complete file stays."""
    with Command(("run", job, "--out", "run", "--set", "stop.rounds=1000000"), tmp_path) as command:
        committed(tmp_path / "run")
        os.kill(writer(command), signal.SIGSTOP)
        command.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        command.process.send_signal(signal.SIGTERM)
        said = command.wait()
    assert (said.code, said.errors) == (143, []), said
    assert checkpoint.read(tmp_path / "run/checkpoint.h5").round >= 3


@pytest.mark.slow
def test_everything_again_and_again(job: Path, tmp_path: Path) -> None:
    """Power cuts at random moments, also while a run resumes; it ends in the bytes of the run that was left alone.

    On a slow machine it may have ended before its last power cut, and is then resumed in vain.
    """
    drawn, words = random.Random(5), ("run", job, "--out", "run")
    for _ in range(4):
        with Command(words, tmp_path) as command:
            eventually(lambda: len(command.members()) >= 5 or not command.members(), "all its processes, or its end")
            if words[0] == "run":
                committed(tmp_path / "run", 1)
            time.sleep(drawn.uniform(0, 0.3))
            command.interrupt(signal.SIGKILL)
            command.wait()
        words = ("resume", "run")
    resume(tmp_path / "run")
    assert newest(tmp_path / "run") == trained(job)
    assert events(tmp_path / "run")[-1]["event"] == "end"
    assert len(events(tmp_path / "run", "start")) <= 6


@pytest.mark.slow
def test_a_pause(job: Path, tmp_path: Path) -> None:
    """Ctrl-Z and fg: the time between counts for nobody."""
    with Command(("run", job, "--out", "run", "--set", "transport.stall_seconds=5"), tmp_path) as command:
        committed(tmp_path / "run")
        command.interrupt(signal.SIGSTOP)
        time.sleep(8)
        command.interrupt(signal.SIGCONT)
        said = command.wait()
    assert said.code == 0, said
    assert not events(tmp_path / "run", "fault")


def test_two_at_once(job: Path, tmp_path: Path) -> None:
    """The second is told so, and takes nothing from the first."""
    with Command(("run", job, "--out", "run", "--set", "stop.rounds=100000"), tmp_path) as command:
        last = committed(tmp_path / "run")
        for words in (
            ("run", job, "--out", tmp_path / "run"),
            ("resume", tmp_path / "run"),
            ("resume", round_file(tmp_path / "run", 1)),
        ):
            said = partrain(*words)
            assert (said.code, said.errors) == (73, ["cannot-create"]), said
        eventually(lambda: events(tmp_path / "run", "commit")[-1]["round"] > last + 3, "more commits")
        command.interrupt()
        assert command.wait().code == 130
    told = [event["round"] for event in events(tmp_path / "run", "round") if event["rank"] == 0]
    assert told == list(range(1, len(told) + 1))


def forkservers(command: Command) -> list[int]:
    """The coordinator's child that forks workers, once there is one."""
    with suppress(OSError):
        return [pid for pid in command.members() if is_forkserver(pid) and parent(pid) == command.process.pid]
    return []


def ignored(pid: int) -> int:
    """Mask of the signals a process ignores."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("SigIgn:")[2].split()[0], 16)


@pytest.mark.slow
def test_a_frozen_forkserver(job: Path, tmp_path: Path) -> None:
    """It tells who has exited. The run ends without its word, and all is on disk."""
    with Command(("run", job, "--out", "run"), tmp_path) as command:
        (server,) = eventually(lambda: forkservers(command), "the forkserver")
        eventually(lambda: events(tmp_path / "run", "commit"), "a commit")
        os.kill(server, signal.SIGSTOP)
        said = command.wait()
    assert said.code == 0, said
    assert newest(tmp_path / "run") == newest(job.with_name("run"))
