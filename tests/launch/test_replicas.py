"""`[[workers]] replicas`: several workers in one process have the numbers of processes, and are lost and resumed like them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from support.aftermath import Aftermath
from support.runs import Command, events, eventually, newest, partrain, resume, round_file, sabotage, summary, train, write_job

from partrain import checkpoint

PROCESSES, ONE, TWO = "workers=[{count=4}]", "workers=[{replicas=4}]", "workers=[{count=2, replicas=2}]"


def same_arrays(run: Path, other: Path) -> bool:
    one, two = (checkpoint.read(folder / "checkpoint.h5").arrays for folder in (run, other))
    return one.keys() == two.keys() and all(one[path].tobytes() == two[path].tobytes() for path in one)


def network(run: Path) -> list[np.ndarray]:
    return [array for path, array in sorted(checkpoint.read(run / "checkpoint.h5").arrays.items()) if path.startswith("model/")]


@pytest.mark.representative
@pytest.mark.parametrize("rule", ["average", "bsp", "topk"])
def test_processes_and_replicas_have_the_same_numbers(tmp_path: Path, rule: str) -> None:
    runs = [train(tmp_path / str(number), workers, f'sync.rule="{rule}"') for number, workers in enumerate((PROCESSES, ONE, TWO))]
    for run in runs[1:]:
        for one, other in zip(network(run), network(runs[0]), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        assert [worker["item_iterations"] for worker in summary(run)["workers"]] == [4 * 3 * 8] * 4
    pids = [{worker["pid"] for worker in events(run, "start")[0]["workers"]} for run in runs]
    assert list(map(len, pids)) == [4, 1, 2]
    assert [summary(run)["threads"] for run in runs] == [4, 1, 2]


@pytest.mark.parametrize("rule", ["async", "easgd", "hogwild"])
@pytest.mark.parametrize("workers", [ONE, TWO], ids=["one process", "two processes"])
def test_asynchronous_rules(tmp_path: Path, rule: str, workers: str) -> None:
    sets = f'sync.rule="{rule}"', *["sync.asynchronous=true"] * (rule == "easgd"), "stop.rounds=8"
    run, processes = train(tmp_path, workers, *sets), train(tmp_path / "processes", PROCESSES, *sets)
    assert summary(run)["item_iterations"] == summary(processes)["item_iterations"]
    assert summary(run)["metrics"]["accuracy"] > 0.6


def test_a_lost_process_is_replayed_and_a_resumed_run_ends_in_the_same_bits(tmp_path: Path) -> None:
    """The network is user code, so the replicas train in turn."""
    after = Aftermath(sabotage(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)", TWO, worker=2, call=8))
    told = after.check_replayed(after.train())
    assert "the process of workers 2 to 3 (cpu) was killed by SIGKILL" in told["what"]
    resume(round_file(after.run, 1), "--out", tmp_path / "resumed")
    assert newest(tmp_path / "resumed") == after.final


def test_replicas_that_train_at_once_are_killed_and_resumed(tmp_path: Path) -> None:
    sets = TWO, "stop.rounds=60", "sync.iterations=50"
    whole = train(tmp_path / "whole", *sets)
    job = write_job(tmp_path / "lost", *sets)
    with Command(("run", job, "--out", tmp_path / "run", "--quiet"), tmp_path) as command:
        eventually(lambda: len(events(tmp_path / "run", "round")) > 20, "some rounds")
        os.kill(events(tmp_path / "run", "start")[0]["workers"][3]["pid"], signal.SIGKILL)
        assert command.wait().code == 0
    assert events(tmp_path / "run", "replay")
    assert same_arrays(tmp_path / "run", whole)
    resume(round_file(whole, 31), "--out", tmp_path / "resumed")
    assert same_arrays(tmp_path / "resumed", whole)


def test_no_replica_is_to_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one of them its process would be as much sooner as its turns lasted, which the estimate does not know."""
    monkeypatch.setattr("partrain.record.added_speed.TELLING_SECONDS", 0.0)
    monkeypatch.setattr("partrain.record.added_speed.LITTLE", 10.0)
    monkeypatch.setattr("partrain.record.added_speed.PART", 100.0)
    for workers, named in ((PROCESSES, True), (TWO, False)):
        folder = tmp_path / str(named)
        said = partrain("run", write_job(folder, workers), "--out", folder / "run")
        assert said.code == 0, said
        assert ("leave it out" in said.out) == named


@pytest.mark.parametrize(
    ("sets", "what"),
    [
        (['transport.kind="simulated"'], "simulated workers live in one process anyway"),
        (['faults.on_loss="drop"'], "`replicas` of one process are lost together"),
    ],
)
def test_refusals(tmp_path: Path, sets: list[str], what: str) -> None:
    said = partrain("validate", write_job(tmp_path, ONE, *sets))
    assert said.code == 78
    assert what in said.err + said.out
