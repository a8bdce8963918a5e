"""A run of two machines that goes on with one, and with three: from its newest checkpoint, with partitions drawn again."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.machines import MANY, Site, free_port, networks, train_on_two
from support.runs import events, eventually, partrain, round_file, summary, write_job
from support.shared_runs import once
from torch.distributed import TCPStore

from partrain import checkpoint
from partrain.comm.machine import Machine
from partrain.errors import WorkersLost
from partrain.launch.machines import rendezvous
from partrain.launch.machines.rendezvous import meet, note_run_folder, part


@pytest.fixture(scope="module")
def two_machines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of four rounds on two machines of two workers."""
    return once(tmp_path_factory, "two-machines", train_on_two) / "run"


@pytest.fixture
def run(tmp_path: Path, two_machines: Path) -> Path:
    """Its run folder as it was after round 2."""
    run, later = tmp_path / "run", ("round-000003.h5", "round-000004.h5", "checkpoint.h5", "best.h5", "summary.json")
    shutil.copytree(two_machines, run, ignore=shutil.ignore_patterns(*later))
    os.link(round_file(run, 2), run / "checkpoint.h5")
    return run


def check(run: Path, rounds: int, workers: int) -> None:
    """The run went on from round 2 with these workers, and counts what each worker has trained, also the former ones."""
    told = summary(run)
    assert (told["status"], told["rounds"], len(told["workers"])) == ("finished", rounds, max(4, workers))
    last = [event for event in events(run, "round") if event["round"] == rounds]
    assert {event["rank"] for event in last} == set(range(workers))
    trained = Counter[int]()
    for event in events(run, "round"):
        trained[event["rank"]] += event["items"]
    assert {worker["rank"]: worker["item_iterations"] for worker in told["workers"]} == trained
    assert told["item_iterations"] == trained.total()
    content = checkpoint.read(run / "checkpoint.h5")
    counted = [int(content.arrays[f"workers/{rank}/counts"][2]) for rank in range(workers)]
    left = sum(items for rank, items in trained.items() if rank >= workers)
    assert counted == [trained[0] + left, *(trained[rank] for rank in range(1, workers))], "worker 0 takes over what left"


@pytest.mark.parametrize("count", [4, 2])
def test_one_machine_goes_on(run: Path, count: int) -> None:
    told = partrain("resume", run, "--set", f"workers.0.count={count}")
    assert told.code == 0, told
    check(run, 4, count)


def test_one_machine_is_told_how_to_go_on(run: Path) -> None:
    told = partrain("resume", run)
    assert told.code == 65
    what = "It was trained on 2 machines: resume it on as many, under torchrun or srun, or give one machine all workers, as in --set workers.0.count=4"
    assert what in told.err


@pytest.mark.slow
def test_three_machines_go_on(tmp_path: Path, run: Path) -> None:
    said = Site(tmp_path, prefixes=((),) * 3).run(("resume", run, "--quiet"))
    assert [one.code for one in said] == [0, 0, 0], said
    check(run, 4, 6)


@pytest.mark.slow
@pytest.mark.parametrize("machines", [1, 3])
def test_torchrun_starts_again_with_other_machines(tmp_path: Path, run: Path, machines: int) -> None:
    """As with `--nnodes 1:3`: the store holds the run folder of the first attempt, and the number of machines is another."""
    job = write_job(tmp_path / "job", text=MANY)
    site = Site(tmp_path, prefixes=((),) * machines)
    port = site.store_port()
    note_run_folder(Machine(0, 2, "127.0.0.1", port, site.logs(0, port)), run)
    started = [site.start(number, port, "run", job, "--out", run, "--quiet") for number in range(machines)]
    said = [one.wait(120) for one in started]
    assert [one.code for one in said] == [0] * machines, said
    check(run, 4, 2 * machines)


def test_a_machine_without_the_former_run_folder_does_not_begin_anew(tmp_path: Path) -> None:
    """It is the first now, and the former first machine wrote to a disk of its own."""
    job, site = write_job(tmp_path / "job", text=MANY), Site(tmp_path, prefixes=((),))
    port = site.store_port()
    note_run_folder(Machine(0, 2, "127.0.0.1", port, site.logs(0, port)), tmp_path / "elsewhere")
    said = site.start(0, port, "run", job, "--out", tmp_path / "run", "--quiet").wait()
    assert said.code == 66, said
    assert f"{tmp_path / 'elsewhere'}: the former attempt wrote there, and this machine, now the first one, has no" in said.err
    assert not (tmp_path / "run").exists()


def test_a_resume_that_torchrun_starts_again_continues_its_run(tmp_path: Path, run: Path) -> None:
    """The first attempt has written to `--out`, and was lost."""
    kept, site = tmp_path / "kept.h5", Site(tmp_path, prefixes=((),))
    kept.write_bytes(round_file(run, 1).read_bytes())
    port = site.store_port()
    note_run_folder(Machine(0, 1, "127.0.0.1", port, site.logs(0, port)), run)
    said = site.start(0, port, "resume", kept, "--out", run, "--quiet").wait()
    assert said.code == 0, said
    assert [event["resumed_from"] for event in events(run, "start")][1:] == [2]


def machine(port: int, logs: Path, number: int, count: int, timeout_s: float = 100, serves: bool = False) -> Machine:
    (own := logs / str(number)).mkdir(parents=True, exist_ok=True)
    return Machine(number, count, "127.0.0.1", port, own, serves, timeout_s=timeout_s)


def test_the_machines_of_an_attempt_agree_on_its_name_and_former_ones_do_not_disturb(tmp_path: Path) -> None:
    """The store keeps the keys of each attempt, also that of a machine which ended while it waited."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with pytest.raises(WorkersLost, match=r"the first machine did not join within 0\.1 s"):
        meet(machine(store.port, tmp_path, 1, 3, timeout_s=0.1))
    names = set()
    for count in (3, 2, 3, 1):
        with ThreadPoolExecutor() as threads:
            met = list(threads.map(meet, [machine(store.port, tmp_path, number, count) for number in range(count)]))
        (attempt,) = {one.attempt for one in met}
        assert {one.former for one in met} == {Path("/runs/a") if names else None}
        assert [one.number for one in met] == list(range(count))
        names.add(attempt)
        for one in met:
            note_run_folder(one, Path("/runs/a"))
    assert len(names) == 4
    with pytest.raises(WorkersLost, match=r"machine 1 did not join within 0\.1 s"):
        meet(machine(store.port, tmp_path, 0, 2, timeout_s=0.1))


def test_the_first_machine_serves_the_store_if_torchrun_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that joins knows of no run folder; the others tell it."""
    monkeypatch.setattr(rendezvous, "PARTING_S", 100.0)
    port = free_port()
    note_run_folder(machine(port, tmp_path, 1, 3), Path("/runs/a"))
    with ThreadPoolExecutor() as threads:
        met = list(threads.map(meet, [machine(port, tmp_path, number, 3, serves=True) for number in (2, 1, 0)]))
        assert {one.former for one in met} == {Path("/runs/a")}
        parting = [threads.submit(part, one) for one in (met[2], met[0])]
        eventually(parting[1].done, "machine 2 to part")
        assert not parting[0].done(), "machine 0 waits for machine 1"
        part(met[1])
    assert parting[0].result() is None


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_torchrun_goes_on_with_one_machine_and_takes_others_in(tmp_path: Path) -> None:
    """`--nnodes 1:3`, each machine with a network of its own: of two one is killed, the other goes on, and later two join."""
    job, run = write_job(tmp_path / "job", "stop.rounds=1000000", text=MANY), tmp_path / "run"
    words = "run", job, "--out", run, "--quiet"

    def sizes() -> list[int]:
        return [len(event["workers"]) for event in events(run, "start")] if (run / "events.jsonl").exists() else []

    def trains(workers: int) -> None:
        eventually(lambda: sizes()[-1:] == [workers], f"{workers} workers")
        held = len(events(run, "judgement"))
        eventually(lambda: len(events(run, "judgement")) > held + 2, f"rounds of {workers} workers")

    with networks(tmp_path, 3) as site, site.elastic(0, 29500, *words) as first:
        with site.elastic(1, 29500, *words) as second:
            trains(4)
            os.kill(second.process.pid, signal.SIGKILL)
            trains(2)
        with site.elastic(1, 29500, *words), site.elastic(2, 29500, *words):
            trains(6)
            os.kill(first.process.pid, signal.SIGTERM)
            eventually(lambda: (run / "summary.json").exists() and summary(run)["status"] == "stopped", "the end")
    starts = events(run, "start")
    assert [bool(event["resumed_from"]) for event in starts] == [False] + [True] * (len(starts) - 1)
    rounds = [event["round"] for event in events(run, "round") if event["rank"] == 0]
    assert rounds == list(range(1, len(rounds) + 1)), "no round is missing or counted twice"
