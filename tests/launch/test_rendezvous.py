"""Several machines under torchrun: here on loopback, or in network namespaces of their own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.machines import MANY, Site, free_port, networks, train_on_two
from support.runs import (
    Command,
    descendants,
    events,
    eventually,
    is_forkserver,
    partrain,
    round_file,
    sabotage,
    summary,
    train,
    write_job,
)
from support.shared_runs import once
from torch.distributed import TCPStore

from partrain import checkpoint
from partrain.comm.machine import Machine, first_host, shutdown_timeout
from partrain.errors import BadJob
from partrain.job.load import load
from partrain.job.plan import make_plan
from partrain.launch.folder.resume_point import ResumePoint
from partrain.launch.machines.rendezvous import Rendezvous, announced, meet, note_run_folder, refusal


def arrays(path: Path) -> dict[str, bytes]:
    return {name: np.ascontiguousarray(array).tobytes() for name, array in checkpoint.read(path).arrays.items()}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture(scope="module")
def one_machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that two machines of two workers are to repeat: four workers on one."""
    return once(tmp_path_factory, "one-machine", lambda folder: train(folder, "workers.0.count=4", text=MANY)) / "run"


@pytest.fixture(scope="module")
def two_machines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of that run on two machines; the messages of the second are in `messages` beside it."""
    return once(tmp_path_factory, "two-machines", train_on_two) / "run"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return write_job(tmp_path / "job", text=MANY)


def test_two_machines_give_the_bits_of_one(two_machines: Path, one_machine: Path) -> None:
    run = two_machines
    assert "machine 1 of 2 trains workers 2 to 3" in (run.parent / "messages").read_text()
    assert not (run.parent / "unused").exists()
    for number in range(1, 5):
        assert arrays(round_file(run, number)) == arrays(round_file(one_machine, number))
    assert [worker["item_iterations"] for worker in summary(run)["workers"]] == [96] * 4
    assert {event["rank"] for event in events(run, "round")} == {0, 1, 2, 3}


@pytest.mark.slow
def test_two_machines_under_torchrun_give_the_bits_of_one(site: Site, job: Path, one_machine: Path) -> None:
    """torchrun itself starts both commands; the gate gives them the environment that it would give."""
    run = site.folder / "run"
    said = site.run(("run", job, "--out", run, "--quiet"), ("run", job, "--out", site.folder / "unused"), restarts=0)
    assert [one.code for one in said] == [0, 0], said
    assert "machine 1 of 2 trains workers 2 to 3" in said[1].err
    assert not (site.folder / "unused").exists()
    for number in range(1, 5):
        assert arrays(round_file(run, number)) == arrays(round_file(one_machine, number))


@pytest.mark.slow
@pytest.mark.parametrize("rule", ['rule="gossip", topology="complete"', 'rule="diloco", fragments=2'])
def test_messages_that_travel_while_workers_train_give_the_bits_of_one_machine(site: Site, rule: str) -> None:
    text = f'sync={{{rule}, order="before", iterations=3}}'
    job, run = write_job(site.folder / "job", text, text=MANY), site.folder / "run"
    said = site.run(("run", job, "--out", run, "--quiet"))
    assert [one.code for one in said] == [0, 0], said
    train(site.folder / "alone", "workers.0.count=4", text, text=MANY)
    assert arrays(run / "checkpoint.h5") == arrays(site.folder / "alone/run/checkpoint.h5")


@pytest.mark.soak
def test_four_machines_give_the_bits_of_one(tmp_path: Path, one_machine: Path) -> None:
    """Of one worker each: none has a neighbour whose memory it could read."""
    job, run = write_job(tmp_path / "job", "workers.0.count=1", text=MANY), tmp_path / "run"
    said = Site(tmp_path, prefixes=((),) * 4).run(("run", job, "--out", run, "--quiet"))
    assert [one.code for one in said] == [0] * 4, said
    assert arrays(run / "checkpoint.h5") == arrays(one_machine / "checkpoint.h5")


def test_a_resume_needs_the_checkpoint_on_the_first_machine_only(site: Site, two_machines: Path, one_machine: Path) -> None:
    kept = site.folder / "kept.h5"
    kept.write_bytes(round_file(two_machines, 2).read_bytes())
    words = "resume", kept, "--quiet", "--out", site.folder / "again"
    said = site.run(words, ("resume", site.folder / "nowhere.h5", "--quiet"))
    assert [one.code for one in said] == [0, 0], said
    assert arrays(site.folder / "again/checkpoint.h5") == arrays(one_machine / "checkpoint.h5")


def test_machines_with_unlike_jobs_do_not_start(site: Site, job: Path) -> None:
    other = write_job(site.folder / "other", "seed=4", text=MANY)
    said = site.run(("run", job, "--out", site.folder / "run", "--quiet"), ("run", other, "--quiet"))
    for one in said:
        assert "error[bad-job]: machine 1" in one.err
        assert "its job file differs from the first machine's" in one.err
    assert not events(site.folder / "run", "start")


def test_what_cannot_run_on_several_machines_is_refused_by_all(tmp_path: Path) -> None:
    """The first machine's proposal raises on it and, through the store, on the other."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    loaded = load(write_job(tmp_path, 'transport.kind="simulated"', text=MANY))
    first, other = (Rendezvous(Machine(number, 2, "127.0.0.1", store.port)) for number in range(2))
    data, manifest = SimpleNamespace(fingerprint="data"), SimpleNamespace(start_file=None)
    prepared: Any = SimpleNamespace(loaded=loaded, plan=make_plan(loaded.job, 430, machines=2), dataset=data, manifest=manifest)
    with pytest.raises(BadJob, match="simulated workers live in one process"):
        first.propose(prepared, ResumePoint(), tmp_path / "run")
    with pytest.raises(BadJob, match="simulated workers live in one process"):
        other.receive()


@pytest.mark.parametrize(("theirs", "agrees"), [({"net.py": "a", "more.py": "b"}, True), ({"net.py": "c"}, False)])
def test_user_code_that_is_not_the_same_on_all_machines_is_refused_by_all(theirs: dict[str, str], agrees: bool) -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    machines = [Rendezvous(Machine(number, 2, "127.0.0.1", store.port)) for number in range(2)]
    with ThreadPoolExecutor() as threads:
        votes = [
            threads.submit(*each)
            for each in zip((one.vote for one in machines), ("", ""), ({"net.py": "a"}, theirs), strict=True)
        ]
        raised = [vote.exception() for vote in votes]
    if agrees:
        assert raised == [None, None]
    else:
        assert [str(error) for error in raised] == [
            "machine 1: net.py: not the file of the first machine; copy it to all machines"
        ] * 2


def test_what_the_first_machine_cannot_begin_ends_the_others_at_once(
    tmp_path: Path, one_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is not there, and a run that is at its end."""
    monkeypatch.setattr("partrain.system.parent_death.die_with_parent", lambda parent: None)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    given = {
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_ERROR_FILE": tmp_path / "attempt_0/0/error.json",
        "LOCAL_WORLD_SIZE": 1,
        "WORLD_SIZE": 2,
        "RANK": 0,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": store.port,
    }
    for name, value in given.items():
        monkeypatch.setenv(name, str(value))
    for words in [("run", tmp_path / "no.toml"), ("resume", one_machine)]:
        with ThreadPoolExecutor() as threads:
            met = threads.submit(meet, Machine(1, 2, "127.0.0.1", store.port, tmp_path, timeout_s=100))
            said = partrain(*words, "--quiet")
        other = Rendezvous(met.result())
        if said.code == 0:
            assert other.receive() is None
        else:
            with pytest.raises(BadJob, match=r"machine 0 .*: ") as failure:
                other.receive()
            assert failure.value.message.rpartition("): ")[2] in said.err


@pytest.mark.slow
def test_a_lost_machine_ends_the_run_and_leaves_the_checkpoint(site: Site) -> None:
    job = write_job(site.folder / "job", "stop.rounds=1000000", text=MANY)
    port, run = free_port(), site.folder / "run"
    words = "run", job, "--out", run, "--quiet"
    with site.start(0, port, *words, restarts=0) as first, site.start(1, port, *words, restarts=0) as other:
        eventually(lambda: (run / "checkpoint.h5").exists(), "a checkpoint")
        os.kill(other.process.pid, signal.SIGKILL)  # and nobody outlives its torchrun
        said = first.wait(120)
    assert "error[workers-lost]: another machine does not answer" in said.err
    assert checkpoint.read(run / "checkpoint.h5").round > 0


@pytest.mark.soak
def test_torchrun_starts_lost_workers_anew_and_the_run_goes_on_to_the_bit(site: Site, job: Path) -> None:
    port, run = free_port(), site.folder / "run"
    words = "run", job, "--out", run, "--quiet", "--set", "stop.rounds=60"
    expected = train(site.folder / "whole", "workers.0.count=4", "stop.rounds=60", text=MANY)
    with site.start(0, port, *words, restarts=2) as first, site.start(1, port, *words, restarts=2) as other:
        eventually(lambda: (run / "checkpoint.h5").exists(), "a checkpoint")
        os.kill(max(descendants(other.process.pid)), signal.SIGKILL)
        said = [first.wait(180), other.wait(180)]
    assert [one.code for one in said] == [0, 0], said
    assert any(event["resumed_from"] for event in events(run, "start"))
    assert arrays(run / "checkpoint.h5") == arrays(expected / "checkpoint.h5")


def test_a_second_attempt_goes_on_from_the_checkpoint_of_the_first_to_the_bit(
    site: Site, two_machines: Path, one_machine: Path
) -> None:
    """The first attempt left a run folder with round 2, and its path in torchrun's store.

    `make soak` lets torchrun itself make the second attempt.
    """
    job, run = write_job(site.folder / "job", text=MANY), site.folder / "run"
    shutil.copytree(two_machines, run, ignore=shutil.ignore_patterns("round-000003.h5", "round-000004.h5", "checkpoint.h5"))
    os.link(round_file(run, 2), run / "checkpoint.h5")
    port = site.store_port()
    note_run_folder(Machine(0, 2, "127.0.0.1", port, site.logs(0, port)), run)
    words = "run", job, "--out", run, "--quiet"
    with site.start(0, port, *words) as first, site.start(1, port, *words) as other:
        said = [first.wait(120), other.wait(120)]
    assert [one.code for one in said] == [0, 0], said
    assert [bool(event["resumed_from"]) for event in events(run, "start")] == [False, True]
    assert arrays(run / "checkpoint.h5") == arrays(one_machine / "checkpoint.h5")


@pytest.mark.soak
def test_a_restart_before_the_first_checkpoint_begins_once_more_in_the_same_folder(site: Site) -> None:
    """Worker 3 kills itself in its first iteration, the first time."""
    job = sabotage(site.folder / "job", "os.kill(os.getpid(), signal.SIGKILL)", worker=3, call=1)
    run = site.folder / "run"
    said = site.run(("run", job, "--out", run, "--quiet"), restarts=2)
    assert [one.code for one in said] == [0, 0], said
    assert (site.folder / "job/done").exists(), "it was killed"
    assert [event["resumed_from"] for event in events(run, "start")] == [None]
    assert summary(run)["status"] == "finished"


@pytest.mark.representative
def test_a_terminated_machine_ends_the_run_after_the_round(site: Site) -> None:
    job = write_job(site.folder / "job", "stop.rounds=1000000", text=MANY)
    port, run = site.store_port(), site.folder / "run"
    with site.start(0, port, "run", job, "--out", run, "--quiet") as first, site.start(1, port, "run", job) as other:
        eventually(lambda: (run / "checkpoint.h5").exists(), "a checkpoint")
        other.interrupt(signal.SIGTERM)
        eventually(lambda: (run / "summary.json").exists(), "the end")  # torchrun itself waits longer for its like
        assert summary(run)["status"] == "stopped"
        assert first.process.poll() in (None, 0)
    assert summary(run)["reason"] == "another machine"
    assert summary(run)["rounds"] == checkpoint.read(run / "checkpoint.h5").round


@pytest.mark.soak
def test_two_machines_with_networks_of_their_own(tmp_path: Path, one_machine: Path, job: Path) -> None:
    with networks(tmp_path, 2) as site:
        said = site.run(("run", job, "--out", tmp_path / "run", "--quiet"), restarts=0)
    assert [one.code for one in said] == [0, 0], said
    assert arrays(tmp_path / "run/checkpoint.h5") == arrays(one_machine / "checkpoint.h5")


TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "1", "RANK": "2", "MASTER_ADDR": "host",
    "MASTER_PORT": "29500", "TORCHELASTIC_ERROR_FILE": "/logs/none_1/attempt_2/0/error.json", "TORCHELASTIC_USE_AGENT_STORE": "True",
}  # fmt: skip


def test_which_machine_this_is() -> None:
    assert Machine.find(TORCHRUN) == Machine(2, 3, "host", 29500, Path("/logs/none_1"), serves=False)
    assert Machine.find(TORCHRUN | {"TORCHELASTIC_USE_AGENT_STORE": "False"}) == Machine(
        2, 3, "host", 29500, Path("/logs/none_1"), serves=True
    )
    assert Machine.find({}) is None
    alone = Machine.find(TORCHRUN | {"WORLD_SIZE": "1", "RANK": "0"})
    assert alone
    assert alone.alone


def test_a_round_that_torchrun_would_not_let_end(site: Site, job: Path) -> None:
    site.environment["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = "0.001"
    said = site.run(("run", job, "--out", site.folder / "run", "--quiet"))
    assert [one.code for one in said] == [0, 0], said
    assert said[0].err.count("and torchrun kills the run 0.001 s after SIGTERM") == 1, said


def test_the_time_that_torchrun_leaves(tmp_path: Path) -> None:
    words = "import time; time.sleep(1000)", "--nnodes", "2", "--shutdown-timeout"
    for more, seconds in ((["600"], 600.0), ([], 30.0)):
        process = subprocess.Popen([sys.executable, "-c", *words, *more])
        try:
            eventually(lambda: b"--nnodes" in Path(f"/proc/{process.pid}/cmdline").read_bytes(), "the program")  # noqa: B023
            assert shutdown_timeout(process.pid, {}) == seconds
        finally:
            process.kill()
            process.wait()
    assert shutdown_timeout(1 << 30, {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "7"}) == 7.0


SRUN = {
    "SLURM_JOB_ID": "71", "SLURM_STEP_ID": "2", "SLURM_STEP_NUM_NODES": "3", "SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "1",
    "SLURM_STEP_NODELIST": "gpu[003-005]",
}  # fmt: skip


def test_under_srun_each_node_is_a_machine() -> None:
    machine = Machine.find(SRUN)
    assert machine == Machine(1, 3, "gpu003", 15712, serves=True)
    assert not machine.restarts
    assert Machine.find(SRUN | {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "7"}) == Machine(1, 3, "10.0.0.1", 7, serves=True)
    assert Machine.find(SRUN | TORCHRUN) == Machine.find(TORCHRUN), "torchrun under srun"
    assert Machine.find(SRUN | {"SLURM_STEP_NUM_NODES": "1"}) is None
    with pytest.raises(BadJob, match="srun has started 6 processes on 3 nodes; use --ntasks-per-node=1"):
        Machine.find(SRUN | {"SLURM_STEP_NUM_TASKS": "6"})


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("n[1-2]", "n1"),
        ("gpu[003,007-9],login", "gpu003"),
        ("a[01-02]-ib,b", "a01-ib"),
        ("a-b.c", "a-b.c"),
    ],
)
def test_the_first_of_the_nodes(nodes: str, first: str) -> None:
    assert first_host(nodes) == first


def test_one_process_per_machine() -> None:
    with pytest.raises(BadJob, match="--nproc-per-node 1"):
        Machine.find(TORCHRUN | {"LOCAL_WORLD_SIZE": "2"})
    with pytest.raises(BadJob, match="give torchrun a --log-dir"):
        Machine.find(TORCHRUN | {"TORCHELASTIC_ERROR_FILE": ""})


# Asynchronous rules: the center is a process of the first machine, or one for each of its parts, on all of them

ASYNCHRONOUS = {
    "async": ('sync={rule="async", iterations=2, visits=3}', 12),
    "async in parts": ('sync={rule="async", iterations=2, visits=3, soft_sync=2, parts=3, compensation=0.04}', 6),
    "async with momentum": ('sync={rule="async", iterations=2, visits=3, momentum=0.5, bound=1}', 12),
    "easgd": ('sync={rule="easgd", asynchronous=true, iterations=2, visits=3}', 12),
    "push-sum": ('sync={rule="gossip", style="push-sum", iterations=2, visits=3, probability=0.5}', None),
}
"""Rules, and how often a round of four workers changes the center."""


def complete(run: Path, rounds: int, changes: int | None) -> None:
    """The newest checkpoint counts every iteration and every update once."""
    held = checkpoint.read(run / "checkpoint.h5").arrays
    assert sum(int(held[f"workers/{rank}/counts"][2]) for rank in range(4)) == rounds * 4 * 3 * 2 * 8
    if changes is None:
        assert sum(float(held[f"workers/{rank}/rule/share"]) for rank in range(4)) == pytest.approx(1)
    else:
        assert held["rule/versions"].max() == rounds * changes
        assert np.abs(held["rule/center"][0]).sum() > 1


@pytest.mark.soak
@pytest.mark.parametrize(("rule", "changes"), ASYNCHRONOUS.values(), ids=ASYNCHRONOUS)
def test_asynchronous_rules_train_on_two_machines(site: Site, rule: str, changes: int | None) -> None:
    """Four workers, three visits each, two iterations a visit, of eight items."""
    job, run = write_job(site.folder / "job", rule, "stop.rounds=6", text=MANY), site.folder / "run"
    said = site.run(("run", job, "--out", run, "--quiet"))
    assert [one.code for one in said] == [0, 0], said
    rounds = events(run, "round")
    assert [sum(event["items"] for event in rounds if event["round"] == number) for number in range(1, 7)] == [192] * 6
    losses = [event["loss"] for event in events(run, "judgement")]
    assert min(losses[3:]) < losses[0]
    complete(run, 6, changes)
    if changes:
        trained = [event for event in rounds if event["items"]]  # a late worker may find all visits taken
        assert all(event["bytes"] > 0 and event["staleness"] is not None for event in trained)


@pytest.mark.soak
@pytest.mark.parametrize("rule", ASYNCHRONOUS)
def test_asynchronous_rules_train_on_four_machines(tmp_path: Path, rule: str) -> None:
    """Of one worker each; three of them have a part of the center where there are parts."""
    text, changes = ASYNCHRONOUS[rule]
    job, run = write_job(tmp_path / "job", text, "workers.0.count=1", text=MANY), tmp_path / "run"
    said = Site(tmp_path, prefixes=((),) * 4).run(("run", job, "--out", run, "--quiet"))
    assert [one.code for one in said] == [0] * 4, said
    complete(run, 4, changes)


@pytest.mark.slow
def test_an_asynchronous_run_goes_on_where_its_checkpoint_stands(site: Site) -> None:
    rule, changes = ASYNCHRONOUS["async in parts"]
    job, run, again = write_job(site.folder / "job", rule, text=MANY), site.folder / "run", site.folder / "again"
    site.run(("run", job, "--out", run, "--quiet"))
    kept = site.folder / "kept.h5"
    kept.write_bytes(round_file(run, 2).read_bytes())
    said = site.run(("resume", kept, "--quiet", "--out", again), ("resume", site.folder / "nowhere.h5", "--quiet"))
    assert [one.code for one in said] == [0, 0], said
    complete(again, 4, changes)
    assert events(again, "judgement")[0]["loss"] < events(run, "judgement")[0]["loss"]


def centers(machine: Command) -> list[int]:
    """The center's processes on a machine: the first that its forkserver has started; the last two are the workers."""
    forked = (pid for pid in descendants(machine.process.pid) if is_forkserver(pid))
    _, *started = sorted(forked)
    return started[:-2]


@pytest.mark.soak
def test_a_lost_part_of_the_center_ends_the_attempt_and_torchrun_starts_anew(site: Site) -> None:
    """Of three, two are on the first machine and one is on the other."""
    rule, changes = ASYNCHRONOUS["async in parts"]
    job, run = write_job(site.folder / "job", rule, "stop.rounds=60", text=MANY), site.folder / "run"
    port, words = free_port(), ("run", job, "--out", run, "--quiet")
    with site.start(0, port, *words, restarts=2) as first, site.start(1, port, *words, restarts=2) as other:
        eventually(lambda: (run / "checkpoint.h5").exists(), "a checkpoint")
        assert [len(centers(one)) for one in (first, other)] == [2, 1]
        os.kill(centers(other)[0], signal.SIGKILL)
        said = [first.wait(180), other.wait(180)]
    assert [one.code for one in said] == [0, 0], said
    assert said[1].errors == ["workers-lost"]
    lost = "the center's process 1 (of machine 1) was killed by SIGKILL"
    assert f"error[workers-lost]: {lost}" in said[1].err, said  # torchrun may stop the other before it says so
    assert any(event["resumed_from"] for event in events(run, "start"))
    complete(run, 60, changes)


def test_a_lost_worker_ends_an_asynchronous_run_on_both_machines(site: Site) -> None:
    job = write_job(site.folder / "job", ASYNCHRONOUS["async with momentum"][0], "stop.rounds=1000000", text=MANY)
    port, run = site.store_port(), site.folder / "run"
    with site.start(0, port, "run", job, "--out", run, "--quiet") as first, site.start(1, port, "run", job) as other:
        eventually(lambda: (run / "checkpoint.h5").exists(), "a checkpoint")
        os.kill(max(descendants(other.process.pid)), signal.SIGKILL)
        said = [first.wait(), other.wait()]
    assert [one.errors for one in said] == [["workers-lost"], ["workers-lost"]]
    assert [one.code for one in said] == [69, 69], "torchrun makes another attempt"
    assert meet(Machine(0, 1, "127.0.0.1", port, site.logs(1, port))).former == run
    assert "does not answer" in said[0].err
    assert checkpoint.read(run / "checkpoint.h5").round > 0


def test_what_needs_one_memory_is_refused_on_several_machines(tmp_path: Path) -> None:
    """The refusal goes the way of that of simulated workers."""
    job = write_job(tmp_path, 'sync={rule="hogwild", iterations=2, visits=3, local=true}', text=MANY)
    assert 'under "hogwild" workers change numbers in one memory' in refusal(load(job))
    assert refusal(load(write_job(tmp_path / "other", text=MANY))) == ""


@pytest.mark.soak
def test_machines_may_add_up_their_sums(site: Site, one_machine: Path, job: Path) -> None:
    """The last digits are other ones, the run is as good, and it resumes to the bit."""
    run = site.folder / "run"
    said = site.run(("run", job, "--out", run, "--quiet", "--set", "engine.exact=false"))
    assert [(one.code, one.err.count("warning")) for one in said] == [(0, 0)] * 2, said
    whole, exact = arrays(run / "checkpoint.h5"), arrays(one_machine / "checkpoint.h5")
    assert whole.keys() == exact.keys()
    assert whole != exact
    for name in whole:
        if name.startswith("model/"):
            assert np.allclose(np.frombuffer(whole[name], "f4"), np.frombuffer(exact[name], "f4"), rtol=1e-5, atol=1e-6)
    kept = site.folder / "kept.h5"
    kept.write_bytes(round_file(run, 2).read_bytes())
    said = site.run(("resume", kept, "--quiet", "--out", site.folder / "again"))
    assert [one.code for one in said] == [0, 0], said
    assert arrays(site.folder / "again/checkpoint.h5") == whole


def test_a_long_wait_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    machine, others = Machine(1, 2, "10.0.0.1", 29500), set(threading.enumerate())
    monkeypatch.setattr("partrain.launch.machines.rendezvous.SILENT_S", 1000.0)
    with announced(machine, notes.append):
        assert set(threading.enumerate()) - others
    eventually(lambda: not set(threading.enumerate()) - others, "the end of who would tell of a wait that is over")
    assert not notes
    monkeypatch.setattr("partrain.launch.machines.rendezvous.SILENT_S", 0.05)
    with announced(machine, notes.append):
        eventually(lambda: bool(notes), "the note")
    (note,) = notes
    assert "waiting for 2 machines to meet at 10.0.0.1:29500, up to 300 s" in note
    assert "--local-addr" in note
