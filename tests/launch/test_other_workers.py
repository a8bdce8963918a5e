"""A run goes on with more, fewer or other workers: what is mixed stays, and the item-iterations of all add up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs import SIMULATED, events, newest, partrain, summary, train

from partrain import checkpoint
from partrain.launch.folder.other_workers import shared_out
from partrain.runs.listing import read_run

FORMS = {
    "average": ["optimizer.momentum=0.9"],
    "adam, local": [SIMULATED, 'optimizer={name="adam", lr=0.01, batch_size=8}', 'sync.optimizer_state="local"'],
    "batch norm, local": [SIMULATED, "model.batch_norm=true", 'sync.buffers="local"'],
    "gossip": ['sync={rule="gossip", iterations=3}'],
    "diloco": [SIMULATED, 'sync={rule="diloco", iterations=3}'],
    "topk": [SIMULATED, 'sync={rule="topk", iterations=3, compressor={kind="topk", density=0.2}}'],
    "choco": [SIMULATED, 'sync={rule="choco", iterations=3, compressor={kind="topk", density=0.2}}'],
    "sparseloco": [SIMULATED, 'sync={rule="sparseloco", iterations=3, density=0.2, chunk=16}'],
    "easgd": [SIMULATED, 'sync={rule="easgd", iterations=3}'],
    "ema": [SIMULATED, "sync.ema=0.9"],
}


COUNTS = 1, 3


def cases() -> Iterator[Any]:
    """Give two forms fewer and more workers, and the others one of these in turn; `make soak` gives them the other."""
    for number, name in enumerate(FORMS):
        for count in COUNTS:
            marks: Any = () if name in ("average", "gossip") else pytest.mark.slow
            if marks and count != COUNTS[number % 2]:
                marks = pytest.mark.soak
            yield pytest.param(name, count, id=f"{name}-{count}", marks=marks)


@pytest.mark.parametrize(("name", "count"), list(cases()))
def test_more_and_fewer_workers(tmp_path: Path, name: str, count: int) -> None:
    """The run goes on from the same network, the same way each time, and can be interrupted again."""
    run = train(tmp_path, *FORMS[name])
    start = checkpoint.read(run / "checkpoint.h5")
    resumed = tmp_path / "resumed"
    words = ("resume", run / "checkpoint.h5", "--set", f"workers.0.count={count}", "-q")
    said = partrain(*words, "--until", "rounds=7", "--out", resumed)
    assert said.code == 0, said
    workers = f"{count} cpu worker{'s'[: count > 1]}"
    assert f"2 cpu workers before, {workers} from round 5 on: the network, moments and center stay" in said.err
    rounds = events(resumed, "round")
    assert [(one["round"], one["rank"]) for one in rounds] == [(number, rank) for number in (5, 6, 7) for rank in range(count)]
    told = summary(resumed)
    assert told["item_iterations"] == start.manifest["progress"]["item_iterations"] + sum(one["items"] for one in rounds)
    assert sum(worker["item_iterations"] for worker in told["workers"]) == told["item_iterations"]

    parts = tmp_path / "parts"
    assert partrain(*words, "--until", "rounds=5", "--out", parts).code == 0
    assert partrain("resume", parts, "--until", "rounds=7", "-q").code == 0
    ours, theirs = (checkpoint.read(folder / "checkpoint.h5") for folder in (parts, resumed))
    assert sorted(ours.arrays) == sorted(theirs.arrays)
    assert all(np.array_equal(ours.arrays[path], theirs.arrays[path]) for path in ours.arrays)


@pytest.mark.representative
def test_it_goes_on_from_the_same_network(tmp_path: Path) -> None:
    """With a learning rate of almost nothing the judged loss stays."""
    run = train(tmp_path, "optimizer.lr=1e-12")
    before = summary(run)["loss"]
    assert partrain("resume", run, "--set", "workers.0.count=3", "--until", "rounds=5", "-q").code == 0
    assert summary(run)["loss"] == pytest.approx(before, rel=1e-5)
    assert [worker["rank"] for worker in summary(run)["workers"]] == [0, 1, 2]
    assert "3 on cpu" in partrain("runs", "show", run).out
    assert partrain("resume", run, "--set", "workers.0.count=1", "--until", "rounds=6", "-q").code == 0
    assert read_run(run).columns["workers"] == 1
    told = summary(run)
    assert told["rounds"] == 6
    assert sum(worker["item_iterations"] for worker in told["workers"]) == told["item_iterations"]
    assert newest(run)
    (run / "summary.json").unlink()
    assert read_run(run).devices == ["cpu"], "a killed run: the workers of its newest session"


def test_only_the_workers_change(tmp_path: Path) -> None:
    run = train(tmp_path)
    said = partrain("resume", run, "--set", "optimizer.lr=1", "--until", "rounds=5")
    assert said.code == 2
    assert "a resumed run may change its workers and, by --until, its end" in said.err
    said = partrain("resume", run, "--set", "workers.0.count=0", "--until", "rounds=5")
    assert said.code == 78, said
    assert json.loads((run / "summary.json").read_text())["rounds"] == 4


def test_what_is_shared_out() -> None:
    arrays = {
        "model/w": np.ones(2, np.float32),
        "workers/0/counts": np.array([5, 6, 60]),
        "workers/1/counts": np.array([4, 5, 50]),
        "workers/2/counts": np.array([3, 4, 40]),
        **{f"workers/{rank}/params": np.full(2, 3.0 * rank, np.float32) for rank in range(3)},
        **{f"workers/{rank}/buffers/n": np.array(rank) for rank in range(3)},
        **{f"workers/{rank}/optimizer/step": np.array([7 + rank, 9 - rank]) for rank in range(3)},
        **{f"workers/{rank}/rule/error": np.ones(2, np.float32) for rank in range(3)},
    }
    fewer = shared_out(arrays, 2)
    assert sorted(fewer) == [
        "model/w",
        *(f"workers/{rank}/{name}" for rank in (0, 1) for name in ("buffers/n", "counts", "optimizer/step", "params")),
    ]
    assert fewer["workers/0/counts"].tolist() == [0, 10, 100]
    assert fewer["workers/1/counts"].tolist() == [0, 5, 50]
    assert fewer["workers/1/params"].tolist() == [3.0, 3.0]
    assert fewer["workers/1/params"].dtype == np.float32
    assert int(fewer["workers/0/buffers/n"]) == 2
    assert fewer["workers/0/optimizer/step"].tolist() == [9, 9]
    more = shared_out(arrays, 5)
    assert [more[f"workers/{rank}/counts"].tolist()[2] for rank in range(5)] == [60, 50, 40, 0, 0]
