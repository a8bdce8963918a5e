"""A resumed run ends in the very bytes of the run that was never interrupted, and nothing that is stored for it is stored in vain."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs import (
    JOB,
    SIMULATED,
    Command,
    events,
    eventually,
    newest,
    partrain,
    resume,
    round_file,
    sabotage,
    summary,
    train,
    write_job,
)

from partrain import checkpoint
from partrain import train as train_here
from partrain.checkpoint import Content
from partrain.checkpoint.manifest import manifest_of
from partrain.config.overrides import override
from partrain.config.toml_source import TomlSource
from partrain.errors import BadCheckpoint
from partrain.launch.checkpoint_writer import Writer
from partrain.launch.coordinator import Coordinator
from partrain.launch.folder import resume as resuming

RESTLESS = ("model.batch_norm=true", "model.dropout=0.2")
"""A network with all that must be stored or derived: BatchNorm's statistics, dropout."""

UNLIKE = JOB.replace("count = 2", "device = 'cpu'\n\n[[workers]]\niterations = 5\npartition_size = 60")

JOBS = {
    "one worker": ["workers.0.count=1"],
    "two workers": [],
    "three workers": ["workers.0.count=3"],
    "one simulated": ["workers.0.count=1", 'transport.kind="simulated"'],
    "three simulated": ["workers.0.count=3", 'transport.kind="simulated"'],
    "two threads": ["workers.0.threads=2"],
    "nesterov": ["optimizer.nesterov=true"],
    "adam": ['optimizer={name="adam", lr=0.01, batch_size=8}'],
    "adam reset": ['optimizer={name="adam", lr=0.01, batch_size=8}', 'sync.optimizer_state="reset"'],
    "adamw local": ['optimizer={name="adamw", lr=0.01, batch_size=8}', 'sync.optimizer_state="local"'],
    "amsgrad": ['optimizer={name="adam", lr=0.01, batch_size=8, amsgrad=true, weight_decay=0.01, decay="matrices"}'],
    "dampening": ["optimizer.dampening=0.2", "optimizer.clip_norm=0.5", "optimizer.accumulate=3"],
    "nadam": ['optimizer={name="nadam", lr=0.01, batch_size=8}'],
    "radam": ['optimizer={name="radam", lr=0.01, batch_size=8, clip_value=0.1}'],
    "adamax local": ['optimizer={name="adamax", lr=0.01, batch_size=8}', 'sync.optimizer_state="local"'],
    "rmsprop": ['optimizer={name="rmsprop", lr=0.01, batch_size=8, centered=true, momentum=0.5}'],
    "adagrad": ['optimizer={name="adagrad", lr=0.1, batch_size=8, initial_accumulator_value=0.1, lr_decay=0.01}'],
    "adagrad reset": [
        'optimizer={name="adagrad", lr=0.1, batch_size=8, initial_accumulator_value=0.1}',
        'sync.optimizer_state="reset"',
    ],
    "rprop": ['optimizer={name="rprop", lr=0.01}'],
    "rprop local": ['optimizer={name="rprop", lr=0.01}', 'sync.optimizer_state="local"', *RESTLESS],
    "rprop reset": ['optimizer={name="rprop", lr=0.01}', 'sync.optimizer_state="reset"'],
    "lbfgs": ['optimizer={name="lbfgs", lr=0.5, history_size=4, accumulate=4}'],
    "lbfgs local": ['optimizer={name="lbfgs", lr=0.5, history_size=4}', 'sync.optimizer_state="local"'],
    "lbfgs bsp": ['optimizer={name="lbfgs", lr=0.5, history_size=4}', "sync.rule='bsp'"],
    "muon": ['optimizer={name="muon", lr=0.02, adamw_lr=0.003, batch_size=8}', 'transport.kind="simulated"'],
    "bfloat16": ["engine.precision='bfloat16'", *RESTLESS],
    "one-cycle": ["optimizer.schedule='one-cycle'", "sync.rule='bsp'", "optimizer.clip_norm=0.3"],
    "momentum local": ['sync.optimizer_state="local"', 'transport.kind="simulated"'],
    "momentum reset": ['sync.optimizer_state="reset"'],
    "buffers average": [*RESTLESS, 'sync.buffers="average"'],
    "buffers local": [*RESTLESS, 'sync.buffers="local"'],
    "buffers recalibrated": [*RESTLESS, 'sync.buffers="recalibrate"'],
    "passes": ["sync={rule='average', passes=1}", *RESTLESS],
    "two passes, adam local": [
        "sync={rule='average', passes=2, optimizer_state='local'}",
        'optimizer={name="adam", lr=0.01, batch_size=7}',
    ],
    "overlap": ["partition.overlap=0.4", "workers.0.count=3"],
    "order given": ["partition.order='given'"],
    "redrawn": ["partition.redraw='round'", *RESTLESS],
    "redrawn passes": ["partition.redraw='round'", "sync={rule='average', passes=1}"],
    "bsp": ["sync.rule='bsp'", "workers.0.count=3"],
    "bsp adam": ["sync.rule='bsp'", 'optimizer={name="adam", lr=0.01, batch_size=8}', *RESTLESS, 'transport.kind="simulated"'],
    "linear schedule": ["optimizer.schedule='linear'", "optimizer.warmup=0.4", "sync.lr_scale='linear'"],
    "cosine schedule": ["optimizer.schedule='cosine'", "sync.lr_scale='sqrt'", "sync.warmup_rounds=3", "sync.weights='equal'"],
    "ema": ["sync.ema=0.9", *RESTLESS],
    "ema recalibrated": ["sync={rule='gossip', iterations=3, ema=0.6}", *RESTLESS],
    "ema adam": ["sync.ema=0.9", 'optimizer={name="adam", lr=0.01, batch_size=8}', "workers.0.count=3"],
    "ema easgd": ["sync={rule='easgd', iterations=3, ema=0.6, buffers='average'}", *RESTLESS],
    "ema async": ["sync={rule='async', iterations=2, visits=2, ema=0.9}", 'transport.kind="simulated"', *RESTLESS],
    "swa": ["sync.swa=0.3", *RESTLESS],
    "swa diloco": ["sync={rule='diloco', iterations=3, swa=0.0}"],
    "streaming diloco": ["sync={rule='diloco', iterations=3, fragments=3, order='before'}", *RESTLESS],
    "swa later": ["sync.swa=0.9", "sync.buffers='recalibrate'", *RESTLESS],
    "judged seldom": ["stop.judge_every=3"],
    "not judged": ["dataset.validation=0"],
    "patience": ["stop.patience=2", "stop.rounds=9"],
    "snapshots seldom": ["checkpoint.every=2", "stop.rounds=4"],
    "regression": ["dataset={kind='synthetic', function='sine', items=230, validation=30}"],
    "autograd everywhere": [
        "model.activation='gelu'",
        "optimizer.weight_decay=0.01",
        "partition.uncovered='allow'",
        "workers.0.partition_size=60",
    ],
}


TOGETHER = {
    "two processes": [
        *RESTLESS, "model.activation='gelu'", "optimizer.weight_decay=0.01", "partition.uncovered='allow'",
        "workers.0.partition_size=60", "optimizer.schedule='linear'", "optimizer.warmup=0.4", "sync.lr_scale='linear'",
        "sync.optimizer_state='local'", "sync.buffers='local'",
    ],
    "three processes": [
        *RESTLESS, "workers.0.count=3", "partition.overlap=0.4", 'optimizer={name="adam", lr=0.01, batch_size=8}',
        "sync={rule='average', iterations=3, optimizer_state='reset', buffers='recalibrate', ema=0.9}",
    ],
    "two threads": [
        *RESTLESS, "workers.0.threads=2", "engine.precision='bfloat16'", "optimizer.dampening=0.2", "optimizer.clip_norm=0.5",
        "optimizer.accumulate=3", "sync={rule='average', iterations=3, optimizer_state='reset', buffers='average', swa=0.3}",
        "checkpoint.every=2", "stop.rounds=4",
    ],
    "one simulated, not judged": [
        SIMULATED, "workers.0.count=1", 'optimizer={name="radam", lr=0.01, batch_size=8, clip_value=0.1}',
        "partition.order='given'", "dataset.validation=0",
    ],
    "gossip": [
        SIMULATED, *RESTLESS, "workers.0.count=3", "sync={rule='gossip', iterations=3, ema=0.6, lr_scale='sqrt', warmup_rounds=3}",
        'optimizer={name="rmsprop", lr=0.01, batch_size=8, centered=true, momentum=0.5, schedule="cosine"}',
    ],
    "easgd": [
        SIMULATED, *RESTLESS, "sync={rule='easgd', iterations=3, ema=0.6, buffers='average'}", "stop.judge_every=3",
        'optimizer={name="adagrad", lr=0.1, batch_size=8, initial_accumulator_value=0.1, lr_decay=0.01}',
    ],
    "async": [
        SIMULATED, *RESTLESS, "sync={rule='async', iterations=2, visits=2, ema=0.9, optimizer_state='local'}",
        'optimizer={name="adamw", lr=0.01, batch_size=8}',
    ],
    "diloco": [
        SIMULATED, *RESTLESS, "sync={rule='diloco', iterations=3, fragments=3, order='before', swa=0.0}",
        "optimizer.nesterov=true", "optimizer.schedule='one-cycle'", "optimizer.clip_norm=0.3",
    ],
    "bsp": [
        SIMULATED, "workers.0.count=3", "sync.rule='bsp'",
        'optimizer={name="lbfgs", lr=0.5, history_size=4, accumulate=4}',
    ],
    "two passes": [
        SIMULATED, *RESTLESS, 'optimizer={name="adam", lr=0.01, batch_size=7}',
        "sync={rule='average', passes=2, optimizer_state='local', buffers='recalibrate', swa=0.9, weights='equal'}",
    ],
    "redrawn passes": [
        SIMULATED, *RESTLESS, "sync={rule='average', passes=1, optimizer_state='reset'}", "partition.redraw='round'",
        'optimizer={name="adagrad", lr=0.1, batch_size=8, initial_accumulator_value=0.1}', "stop.patience=2", "stop.rounds=9",
    ],
    "full batches": [
        SIMULATED, *RESTLESS, 'optimizer={name="rprop", lr=0.01}', "sync.optimizer_state='local'",
        "dataset={kind='synthetic', function='sine', items=230, validation=30}",
    ],
    "nadam": [SIMULATED, *RESTLESS, 'optimizer={name="nadam", lr=0.01, batch_size=8}', "partition.redraw='round'"],
    "adamax": [
        SIMULATED, *RESTLESS, 'optimizer={name="adamax", lr=0.01, batch_size=8}',
        "sync={rule='average', iterations=3, optimizer_state='local', buffers='local'}",
    ],
    "amsgrad": [
        SIMULATED, *RESTLESS, "sync.swa=0.3",
        'optimizer={name="adam", lr=0.01, batch_size=8, amsgrad=true, weight_decay=0.01, decay="matrices"}',
    ],
    "muon": [
        SIMULATED, *RESTLESS, "sync.ema=0.9", 'optimizer={name="muon", lr=0.02, adamw_lr=0.003, batch_size=8}',
    ],
}  # fmt: skip
"""The values of JOBS, combined: optimizers, their state, buffers, schedules, averages, rules and partitions are independent."""
FEW = "three processes", "two threads", "gossip", "async", "bsp"
"""Representatives: each place where state is stored."""


@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("turn", "sets"),
    [
        pytest.param(turn, sets, id=f"together: {name}", marks=pytest.mark.representative if name in FEW else ())
        for turn, (name, sets) in enumerate(TOGETHER.items())
    ]
    + [pytest.param(turn, sets, id=name, marks=pytest.mark.soak) for turn, (name, sets) in enumerate(JOBS.items())],
)
def test_from_a_round(tmp_path: Path, turn: int, sets: list[str], first: int) -> None:
    """Jobs resume from their first or from their second round in turn; `make soak` resumes them from the other one.

    It also resumes jobs that differ from a plain one in few things, which tells those apart.
    """
    code = int("stop.loss" in str(sets))  # a target that is not reached
    run = train(tmp_path, "stop.rounds=3", *sets, code=code)
    committed = [number for number in range(1, summary(run)["rounds"]) if round_file(run, number).exists()]
    number = committed[(first + turn) % len(committed)]
    resume(round_file(run, number), "--out", tmp_path / f"{number}", code=code)
    assert newest(tmp_path / f"{number}") == newest(run), f"resumed from round {number}"


def test_all_values_are_resumed_together() -> None:
    """Each value of a key in JOBS is in one of the jobs that the gate or `make test-slow` resumes."""

    def values(jobs: dict[str, list[str]]) -> set[tuple[str, Any]]:
        texts = [override(TomlSource.parse(JOB, "job"), ["stop.rounds=3", *sets]).text for sets in jobs.values()]
        return {leaf for text in texts for leaf in leaves(TomlSource.parse(text, "job").data)}

    assert not values(JOBS) - values(TOGETHER)


def test_unlike_workers(tmp_path: Path) -> None:
    sets = [*RESTLESS, 'sync.buffers="local"', "sync.optimizer_state='local'"]
    run = train(tmp_path, *sets, text=UNLIKE)
    resume(round_file(run, 2), "--out", tmp_path / "again")
    assert newest(tmp_path / "again") == newest(run)


OWN = """
import random

import numpy as np
import torch
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(2, 8), nn.BatchNorm1d(8, momentum=None), nn.Dropout(0.1), nn.Linear(8, 3))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if self.training:
            self.calls += 1
            x = x + random.random() + np.random.rand() + torch.rand(()) + 0.01 * self.calls
        return super().forward(x)
"""


@pytest.mark.representative
@pytest.mark.parametrize("buffers", ["average", "local", "recalibrate"])
def test_own_code(tmp_path: Path, buffers: str) -> None:
    """Python's, numpy's and torch's generators are derived, what a network counts is stored, whatever the shares of the workers."""
    (tmp_path / "own.py").write_text(OWN)
    run = train(tmp_path, "model={name='own.py:Net'}", f"sync.buffers='{buffers}'", text=UNLIKE)
    resume(round_file(run, 2), "--out", tmp_path / "again", "--trust-code")
    assert newest(tmp_path / "again") == newest(run)


HEADS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.bent = nn.Linear(2, 3), nn.Linear(3, 3)

    def forward(self, x):
        x = self.body(x)
        return x + self.bent(torch.tanh(x)) if x[0, 0] > 0 else x
"""


@pytest.mark.parametrize("state", ["average", "local"])
def test_a_tensor_that_takes_fewer_steps(tmp_path: Path, state: str) -> None:
    """Each tensor's number of steps is stored; where moments are averaged, the workers agree on the largest of each."""
    (tmp_path / "heads.py").write_text(HEADS)
    sets = ["model={name='heads.py:Net'}", f"sync.optimizer_state='{state}'"]
    run = train(tmp_path, *sets, 'optimizer={name="adam", lr=0.01, batch_size=8}')
    place = "" if state == "average" else "workers/1/"
    body, _, bent, _ = checkpoint.read(round_file(run, 2)).arrays[f"{place}optimizer/step"].tolist()
    assert 0 < bent < body
    resume(round_file(run, 2), "--out", tmp_path / "again", "--trust-code")
    assert newest(tmp_path / "again") == newest(run)


def test_in_its_own_folder(tmp_path: Path) -> None:
    """The folder is afterwards as if nothing had happened, its events included; the wall clock's figures apart."""
    run = train(tmp_path)
    before = {path.name: path.read_bytes() for path in (run / "checkpoints").iterdir()}
    resume(round_file(run, 2))
    assert {path.name: path.read_bytes() for path in (run / "checkpoints").iterdir()} == before


def test_resumed_twice_and_again(tmp_path: Path) -> None:
    run = train(tmp_path, SIMULATED, "stop.rounds=5")
    resume(round_file(run, 1), "--out", tmp_path / "a")
    resume(round_file(tmp_path / "a", 3), "--out", tmp_path / "b")
    resume(round_file(tmp_path / "b", 4), "--out", tmp_path / "c")
    resume(round_file(tmp_path / "b", 4), "--out", tmp_path / "d")
    assert newest(run) == newest(tmp_path / "a") == newest(tmp_path / "b") == newest(tmp_path / "c") == newest(tmp_path / "d")


# What is stored counts

OVERWRITTEN = {"progress.judged_round", "progress.loss", "progress.accuracy"}
"""What the last judgement said: the next one replaces it. It tells a run that is at its end that it has reached its target."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "sync",
    [["sync.buffers='local'", "sync.optimizer_state='local'"], ["sync.ema=0.7"], ["sync.swa=0.2"]],
    ids=["local", "ema", "swa"],
)
def test_nothing_is_stored_in_vain(tmp_path: Path, sync: list[str]) -> None:
    """A checkpoint that has lost one item is refused, or the run ends in other bytes; so equal bytes mean something."""
    job = [*RESTLESS, *sync, "optimizer.schedule='linear'"]
    run = train(tmp_path, SIMULATED, *job)
    whole = checkpoint.read(round_file(run, 3))
    kept = [path.split("/buffers/")[1] for path in whole.arrays if "/buffers/" in path]
    needless = {f"model/{name}" for name in kept if "ema" not in str(sync) or "batches" in name}
    """In the network that counts they are worker 0's, and each worker takes its own; those of a mean are computed again each time. An
    exponential average has averages of its own, and counts of the network in training."""
    assert needless < whole.arrays.keys()
    for name, damaged in forgetful(whole):
        if name in needless | OVERWRITTEN:
            continue
        path = tmp_path / f"{name.replace('/', '-')}.h5"
        path.write_bytes(checkpoint.encode(damaged))
        said = partrain("resume", path, "--out", path.with_suffix(""), "--quiet")
        assert said.code == 65 or newest(path.with_suffix("")) != newest(run), f"without {name} it ends in the same bytes"


def forgetful(whole: Content) -> Iterator[tuple[str, Content]]:
    """For each item of a checkpoint, what is left when it is zero."""
    for path, array in whole.arrays.items():
        if array.any() and path != "history/round":  # which no file may lack
            yield path, replace(whole, arrays=whole.arrays | {path: np.zeros_like(array)})
    counts = whole.arrays["workers/1/counts"]
    for place in range(len(counts)):
        yield (
            f"counts {place}",
            replace(whole, arrays=whole.arrays | {"workers/1/counts": np.where(np.arange(3) == place, 0, counts)}),
        )
    for name, value in leaves(whole.manifest):
        if value and name not in ("round", "run"):  # likewise
            yield name, replace(whole, manifest=altered(whole.manifest, name, type(value)()))


def test_a_manifest_is_complete(tmp_path: Path) -> None:
    whole = checkpoint.read(round_file(train(tmp_path, SIMULATED, "stop.rounds=1"), 1))
    assert manifest_of(whole).progress.round == 1
    for name, _ in leaves(whole.manifest):
        if not name.startswith("versions.") and not name.endswith(".0"):
            with pytest.raises(BadCheckpoint, match=name.split(".")[0]):
                manifest_of(replace(whole, manifest=altered(whole.manifest, name, None)))


def test_arrays_are_complete(tmp_path: Path) -> None:
    run = train(tmp_path, "stop.rounds=2", 'transport.kind="simulated"')
    whole = checkpoint.read(round_file(run, 1))
    for path in "model/0.weight", "workers/1/counts", "optimizer/momentum", "history/lr":
        arrays = {name: array for name, array in whole.arrays.items() if name != path}
        (tmp_path / "damaged.h5").write_bytes(checkpoint.encode(replace(whole, arrays=arrays)))
        said = partrain("resume", tmp_path / "damaged.h5", "--out", tmp_path / path.replace("/", "-"))
        assert (said.code, said.errors) == (65, ["bad-checkpoint"]), said


def leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested tables by their dotted names."""
    if isinstance(tree, dict | list) and tree:
        for key, below in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(below, f"{name}.{key}" if name else str(key))
    else:
        yield name, tree


def altered(tree: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """The same with another value at a dotted name; None leaves it out."""
    tree = deepcopy(tree)
    *parents, last = name.split(".")
    place: Any = tree
    for parent in parents:
        place = place[int(parent)] if isinstance(place, list) else place[parent]
    key = int(last) if isinstance(place, list) else last
    place[key] = value
    if value is None:
        del place[key]
    return tree


# Where a run ends


def test_nothing_to_do(tmp_path: Path) -> None:
    run = train(tmp_path, SIMULATED)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    said = resume(run)
    assert "nothing to do" in said.out
    assert json.loads(partrain("resume", run, "--json").out) == {"status": "nothing to do", "reason": "rounds", "round": 4}
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_until_before_the_end_of_a_killed_run_ends_nothing(tmp_path: Path) -> None:
    run = train(tmp_path, SIMULATED)
    (run / "checkpoint.h5").write_bytes(round_file(run, 2).read_bytes())  # as if it had been killed after round 2
    (run / "summary.json").unlink()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    said = resume(run, "--until", "rounds=1")
    assert "has reached --until already (round 2, rounds)" in said.out
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    *_, further = said.out.splitlines()[-1].split(" resume ")
    resume(*further.split())
    assert summary(run)["rounds"] == 4


def test_a_run_that_begins_or_goes_on(tmp_path: Path) -> None:
    """`run --continue` is one command for a service that is started again and again."""
    job, run = write_job(tmp_path, SIMULATED), tmp_path / "run"
    words = "run", job, "--out", run, "--continue"
    assert partrain(*words, "--quiet").code == 0
    whole = newest(run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    said = partrain(*words)
    assert (said.code, "nothing to do" in said.out) == (0, True), said
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    (run / "checkpoint.h5").write_bytes(round_file(run, 2).read_bytes())  # as if it had been killed
    (run / "summary.json").unlink()
    said = partrain(*words)
    assert (said.code, f"the run in {run} goes on" in said.err) == (0, True), said
    assert "rounds 3 to 4 run again, after the checkpoint of round 2" in said.err
    assert (newest(run), events(run, "round")[-1]["round"]) == (whole, 4)
    assert "whose job counts" not in said.err
    said = partrain(*words, "--set", "optimizer.lr=0.5")
    assert "`optimizer.lr` is 0.5 in the job, and 0.05 in the checkpoint, whose job counts; changes of the job" in said.err, said
    assert said.code == 0
    assert partrain("run", job, "--continue").code == 2  # nowhere to look for the run


@pytest.mark.parametrize("ending", ["stop.accuracy=0.2", "stop.item_iterations=48", "stop.patience=1", "stop.seconds=1e-6"])
def test_nothing_to_do_after_any_ending(tmp_path: Path, ending: str) -> None:
    run = train(tmp_path, "stop={rounds=50, judge_every=1}", "optimizer.lr=1e-9", ending)
    before, rounds = newest(run), summary(run)["rounds"]
    assert rounds < 50
    said = resume(run)
    assert "nothing to do" in said.out
    assert newest(run) == before
    *_, further = said.out.splitlines()[-1].split(" resume ")  # what is advised does go further
    words = further.split()
    assert partrain("resume", *words, "--quiet").code in (0, 1)
    assert summary(run)["rounds"] > rounds or "seconds" in ending  # twice a microsecond is over as well


@pytest.mark.parametrize(("sync", "reason"), [
    ("{rule='slowmo', iterations=3}", ""),
    ("{rule='diloco', iterations=3, outer_momentum=0.0}", ""),
    ("{rule='diloco', iterations=3}", "outer momentum"),
    ("{rule='fedopt', iterations=3, server='adagrad'}", ""),
    ("{rule='fedopt', iterations=3}", "the server's momentum"),
    ("{rule='feddyn', iterations=3}", "the server's correction"),
    ("{rule='topk', iterations=3, compressor={kind='topk', density=0.1}}", "updates that messages left out"),
    ("{rule='easgd', iterations=3}", "the replicas' pull on the center"),
    ("{rule='average', iterations=3, ema=0.9}", "average over rounds"),
])  # fmt: skip
def test_beyond_the_end_of_a_schedule_the_warning_says_what_still_moves(sync: str, reason: str, tmp_path: Path) -> None:
    """Where nothing is named, nothing moves: the network stays as it is to the bit."""
    run = train(tmp_path, SIMULATED, "optimizer.schedule='linear'", "stop.rounds=3", f"sync={sync}")
    said = resume(run, "--until", "rounds=5")
    (told,) = [line for line in said.err.splitlines() if "the learning rate is 0" in line]
    before, after = (
        {path: array.tobytes() for path, array in checkpoint.read(round_file(run, number)).arrays.items() if "model/" in path}
        for number in (3, 5)
    )
    assert (before != after) == bool(reason)
    assert (reason in told) if reason else ("no step changes the network any more" in told)
    assert ("no step changes the network any more" in told) == (not reason)


def test_beyond_the_end(tmp_path: Path) -> None:
    """Moving the end keeps the horizon of a schedule: without one, the run is the longer one; with one, it goes on at its last rate."""
    long, short = train(tmp_path / "long", SIMULATED, "stop.rounds=6"), train(tmp_path / "short", SIMULATED)
    resume(short, "--until", "rounds=6")
    assert same_numbers(newest(short), newest(long))
    run = train(tmp_path / "decaying", SIMULATED, "optimizer.schedule='linear'", "stop.rounds=2")
    said = resume(run, "--until", "rounds=3")
    assert "warning: the learning rate is 0 since item-iteration 96" in said.err
    stored = checkpoint.read(run / "checkpoint.h5")
    assert stored.manifest["horizon"] == 2 * 48
    assert stored.arrays["history/lr"][2] == 0


@pytest.mark.parametrize(("sets", "further"), [
    (("stop.rounds=2",), False),
    (("stop.rounds=2", "optimizer.lr_end=0.1"), True),
    (("stop.rounds=2", "optimizer.horizon=500"), True),
    (("stop={rounds=50, judge_every=1, patience=1}", "optimizer.lr=1e-9"), True),
    (("stop={rounds=50, judge_every=1, accuracy=0.2}",), True),
])  # fmt: skip
def test_going_further_is_advised_where_it_changes_anything(tmp_path: Path, sets: tuple[str, ...], further: bool) -> None:
    job = write_job(tmp_path, SIMULATED, "optimizer.schedule='linear'", *sets)
    ended = partrain("run", job, "--out", tmp_path / "run")
    assert ended.code == 0, ended
    assert ("partrain resume" in ended.out) == further
    said = resume(tmp_path / "run").out
    assert ("to continue: partrain resume" in said, "the learning rate is 0" in said) == (further, not further)


def test_until_is_checked_like_the_job(tmp_path: Path) -> None:
    run = train(tmp_path, SIMULATED, "stop.rounds=1")
    for change, code in (("rouns=3", 78), ("rounds=0", 78), ("rounds='many'", 78), ("rounds", 78)):
        assert partrain("resume", run, "--until", change).code == code, change


def test_seconds_go_on(tmp_path: Path) -> None:
    """Training time of earlier sessions counts: the limit holds for the run, not for a session."""
    run = train(tmp_path, "stop.seconds=1000")
    lines = [
        json.dumps({**event, "seconds": 999.9999}) if event["event"] == "judgement" else json.dumps(event)
        for event in events(run)
    ]
    (run / "events.jsonl").write_text("\n".join(lines) + "\n")
    resume(round_file(run, 2), "--until", "rounds=100000")
    assert (summary(run)["reason"], summary(run)["rounds"] < 1000) == ("seconds", True)
    assert summary(run)["seconds"]["train"] > 1000


def test_from_a_copy(tmp_path: Path) -> None:
    """A checkpoint on its own goes on in a folder of its own, and says what was done before."""
    run = train(tmp_path)
    copy = tmp_path / "elsewhere" / "copy.h5"
    copy.parent.mkdir()
    shutil.copy(round_file(run, 2), copy)
    resume(copy, "--out", tmp_path / "again")
    assert newest(tmp_path / "again") == newest(run)
    ours, theirs = summary(tmp_path / "again"), summary(run)
    for key in "rounds", "loss", "metrics", "test", "item_iterations":
        assert ours[key] == theirs[key], key
    assert [worker["item_iterations"] for worker in ours["workers"]] == [
        worker["item_iterations"] for worker in theirs["workers"]
    ]
    for worker in ours["workers"]:  # of what was trained here, in the seconds that it took
        assert worker["items_per_second"] == pytest.approx(worker["item_iterations"] / 2 / ours["seconds"]["train"], rel=1e-3)
    assert partrain("resume", copy, "--out", tmp_path / "again").code == 73


@pytest.mark.usefixtures("stranger")
@pytest.mark.parametrize("began", [False, True], ids=["before the first round", "within it"])
def test_from_a_copy_and_stopped_before_it_added_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, began: bool) -> None:
    """What is told is what the copy holds, and it is from there that the run goes on, in the same folder."""
    job = sabotage(
        tmp_path, "os.kill(os.getpid(), signal.SIGKILL)" if began else "", "stop.rounds=2", "faults.on_loss='stop'", call=2
    )
    (tmp_path / "done").touch()
    run, again, copy = tmp_path / "run", tmp_path / "my again", tmp_path / "elsewhere" / "copy.h5"
    assert partrain("run", job, "--out", run, "-q").code == 0
    (tmp_path / "done").unlink()
    copy.parent.mkdir()
    shutil.copy(run / "checkpoint.h5", copy)
    if not began:
        monkeypatch.setattr(Coordinator, "_start_workers", lambda self: self.context.signals.note(signal.SIGINT))
    said = partrain("resume", copy, "--trust-code", "--out", again, "--until", "rounds=4")
    monkeypatch.undo()
    assert said.code == (69 if began else 130), said
    whole = summary(run)
    if not began:
        assert not again.exists()
        assert "no run folder is left" in said.out
        (tmp_path / "done").touch()
        assert partrain("resume", copy, "--trust-code", "--out", again, "--until", "rounds=4", "-q").code == 0
        assert summary(again)["item_iterations"] == 2 * whole["item_iterations"]
        return
    told = summary(again)
    assert (told["rounds"], told["item_iterations"]) == (2, whole["item_iterations"])
    for ours, theirs in zip(told["workers"], whole["workers"], strict=True):
        assert {key: ours[key] for key in ("device", "iterations", "item_iterations")}.items() <= theirs.items()
    assert f": 2 rounds, {whole['item_iterations']:,} item-iterations, 0.0 s of training\n" in said.out
    assert f"\nnothing was added to {copy}\n" in said.out
    (words,) = [shlex.split(line) for line in said.out.splitlines() if line.startswith("  partrain resume ")]
    assert words[1:] == ["resume", str(copy), "--trust-code", "--out", str(again), "--until", "rounds=4"]
    (tmp_path / "done").touch()
    assert partrain(*words[1:], "-q").code == 0
    assert (summary(again)["status"], summary(again)["rounds"]) == ("finished", 4)
    assert summary(again)["item_iterations"] == 2 * whole["item_iterations"]


def test_not_in_the_folder_of_another_run(tmp_path: Path) -> None:
    """What another run has told and committed is not given up for it."""
    one, other = train(tmp_path / "one", SIMULATED, "stop.rounds=2"), train(tmp_path / "other", SIMULATED, "seed=4")
    told = events(other)
    shutil.copy(one / "checkpoint.h5", other / "copy.h5")
    said = partrain("resume", other / "copy.h5", "--until", "rounds=3", "-q")
    assert (said.code, said.errors) == (65, ["bad-checkpoint"]), said
    assert "another run" in said.err
    assert events(other) == told
    resume(other / "copy.h5", "--until", "rounds=3", "--out", tmp_path / "more")


def test_killed_before_its_first_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From an older checkpoint in its own folder: the newest one is no longer that of rounds whose events are gone."""
    run = train(tmp_path, SIMULATED)
    whole = summary(run)
    monkeypatch.setattr(resuming, "train", lambda *_: exec("raise KeyboardInterrupt"))
    partrain("resume", round_file(run, 2))
    monkeypatch.undo()
    assert [event["round"] for event in events(run, "round")][-1] == 2
    assert checkpoint.read(run / "checkpoint.h5").round == 2
    resume(run)
    assert summary(run)["item_iterations"] == whole["item_iterations"]


def test_not_another_job(tmp_path: Path) -> None:
    """What would train something else is refused before the folder is touched."""
    run = train(tmp_path, SIMULATED, "stop.rounds=2")
    whole = checkpoint.read(round_file(run, 1))
    for old, new in (("count = 2", "count = 3"), ("items = 230", "items = 240"), ("noise = 0.7", "noise = 0.6")):
        other = replace(whole, job=whole.job.replace(old, new))
        (tmp_path / "other.h5").write_bytes(checkpoint.encode(other))
        said = partrain("resume", tmp_path / "other.h5", "--out", tmp_path / new)
        assert (said.code, said.errors) == (65, ["bad-checkpoint"]), said


@pytest.mark.parametrize(("name", "value"), [("torch", "2.1.0"), ("processor", "x86_64 GenuineIntel family 6 AVX2")])
def test_another_version_or_processor_is_told(name: str, value: str, tmp_path: Path) -> None:
    run = train(tmp_path, SIMULATED, "stop.rounds=2")
    whole = checkpoint.read(round_file(run, 1))
    other = replace(whole, manifest=altered(whole.manifest, f"versions.{name}", value))
    (tmp_path / "other.h5").write_bytes(checkpoint.encode(other))
    said = resume(tmp_path / "other.h5", "--out", tmp_path / "again")
    assert f"{name} {value}, now" in said.err


def same_numbers(one: bytes, other: bytes) -> bool:
    """Whether two checkpoints hold the same arrays."""
    ours, theirs = checkpoint.decode(one).arrays, checkpoint.decode(other).arrays
    return ours.keys() == theirs.keys() and all(ours[path].tobytes() == theirs[path].tobytes() for path in ours)


def test_a_run_killed_between_its_last_checkpoint_and_its_end_is_concluded(tmp_path: Path) -> None:
    run = train(tmp_path, "stop.loss=9")
    whole, lines = summary(run), (run / "events.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"event":"end"' not in line]
    (run / "events.jsonl").write_text("".join(kept))
    (run / "summary.json").unlink()
    assert "nothing to do" in resume(run).out
    assert [event["status"] for event in events(run, "end")] == ["reached"]
    same = summary(run)
    assert {key: same[key] for key in ("status", "reason", "rounds", "loss", "item_iterations")} == {
        key: whole[key] for key in ("status", "reason", "rounds", "loss", "item_iterations")
    }
    assert same["test"] == pytest.approx(whole["test"], rel=1e-6)
    assert events(run, "end")[0]["test"] == same["test"]
    resume(run)
    assert len(events(run, "end")) == 1


def test_a_run_stopped_while_it_was_tested_is_concluded(tmp_path: Path) -> None:
    """By a second Ctrl-C: it had come to its end."""
    run = train(tmp_path, "stop.loss=9")
    whole, path = summary(run), run / "events.jsonl"
    text = path.read_text().replace('"status":"reached","reason":"target"', '"status":"stopped","reason":"SIGINT"')
    path.write_text(text)
    assert events(run, "end")[0]["status"] == "stopped"
    resume(run)
    assert summary(run)["status"] == "reached"
    assert summary(run)["test"] == pytest.approx(whole["test"], rel=1e-6)
    assert summary(run)["seconds"]["train"] == whole["seconds"]["train"]


@pytest.mark.slow
def test_no_file_is_begun_before_its_rounds_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the two, a resumed run would have counted a round too few."""
    write, told = Writer.write, []

    def listening(self: Writer, slot: int, progress: dict[str, Any], rows: Any) -> None:
        told.append((progress["round"], max((event["round"] for event in events(tmp_path / "run", "round")), default=0)))
        write(self, slot, progress, rows)

    monkeypatch.setattr(Writer, "write", listening)
    train_here(write_job(tmp_path, "stop.rounds=5", "checkpoint.commit='every'"), out=tmp_path / "run")
    assert told == [(round_, round_) for round_ in range(1, 6)]


@pytest.mark.parametrize(("last", "code"), [("1,oops,2", 66), ("1,4,2", 65)], ids=["damaged", "another data set"])
def test_nothing_is_cut_off_before_it_is_sure_that_the_run_goes_on(tmp_path: Path, last: str, code: int) -> None:
    rows = [f"{number % 7},{number % 5},{number % 3}" for number in range(230)]
    (tmp_path / "table.csv").write_text("\n".join(["a,b,kind", *rows, ""]))
    run = train(tmp_path, SIMULATED, "dataset={kind='csv', path='table.csv', target='kind', validation=30}")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    (tmp_path / "table.csv").write_text("\n".join(["a,b,kind", *rows[:-1], last, ""]))
    said = partrain("resume", round_file(run, 2))
    assert said.code == code, said
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_run_that_goes_on_beyond_its_end_is_as_patient_as_one_that_never_ended(tmp_path: Path) -> None:
    """Its last round was judged because it was the last."""
    sets = "stop.patience=2", "stop.judge_every=3", "optimizer.lr=1e-9", "checkpoint.keep=9"
    whole = train(tmp_path / "whole", SIMULATED, *sets, "stop.rounds=60")
    assert summary(whole)["reason"] == "patience"
    run = train(tmp_path / "parts", SIMULATED, *sets, "stop.rounds=4")
    resume(run, "--until", "rounds=60")
    assert summary(run)["rounds"] == summary(whole)["rounds"]


def test_the_advice_to_go_further_is_followed_further(tmp_path: Path) -> None:
    run = train(tmp_path, SIMULATED, "stop.accuracy=0.2", "stop.rounds=9")
    said = resume(run).out
    assert "nothing to do" in said
    (until,) = re.findall(r"--until (accuracy=\S+)", said)
    assert float(until.partition("=")[2]) > summary(run)["metrics"]["accuracy"]


@pytest.mark.parametrize("end", ["accuracy=0.2", "patience=1"])
def test_a_moved_limit_goes_beyond_what_ended_the_run(tmp_path: Path, end: str) -> None:
    """And, once the longer run has committed, an interrupted one goes on there without being told again."""
    run = train(tmp_path, SIMULATED, f"stop={{rounds=9, judge_every=1, {end}}}", "checkpoint.keep=99", "optimizer.lr=1e-3")
    first = summary(run)["rounds"]
    assert (first < 9, summary(run)["reason"]) == (True, "target" if "accuracy" in end else "patience")
    said = resume(run, "--until", "rounds=12")
    name, _, goal = end.partition("=")
    assert f"[stop] {name} = {goal} was reached, and no longer ends the run; --until {name}=VALUE sets another" in said.err
    assert (summary(run)["status"], summary(run)["reason"], summary(run)["rounds"]) == ("finished", "rounds", 12)
    whole = newest(run)
    assert "no longer ends the run" not in resume(round_file(run, 10)).err
    assert same_numbers(newest(run), whole)
    assert "nothing to do" in resume(run).out


def test_code_of_the_users_own_that_has_changed_is_named(tmp_path: Path) -> None:
    text = "import torch\nclass Net(torch.nn.Sequential):\n def __init__(self): super().__init__(torch.nn.Linear(2, 3))\n"
    (tmp_path / "net.py").write_text(text)
    run = train(tmp_path, 'model={name="net.py:Net"}', "stop.rounds=2")
    again = partrain("resume", round_file(run, 1), "--out", tmp_path / "same", "--trust-code", "-q")
    assert (again.code, again.err) == (0, "")
    (tmp_path / "net.py").write_text(text + "# another\n")
    said = partrain("resume", round_file(run, 1), "--out", tmp_path / "other", "--trust-code", "-q")
    assert said.code == 0, said
    assert "warning: net.py changed after the checkpoint was written: the run may go on in another way" in said.err


def test_a_limit_moved_closer_is_no_end_of_the_schedule(tmp_path: Path) -> None:
    run = train(tmp_path, SIMULATED, "optimizer.schedule='linear'", "stop={rounds=9, accuracy=0.2, judge_every=3}")
    said = resume(run, "--until", "rounds=2", "--until", "accuracy=0.9999").out
    assert "nothing to do" in said
    assert "the learning rate is 0" not in said


def test_an_end_stays_one_until_more_is_there(tmp_path: Path) -> None:
    """Going on that comes to nothing takes nothing away; the line that says how to try again says how far, too."""
    job = sabotage(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)", "stop.rounds=2", "faults.on_loss='stop'", call=2)
    (tmp_path / "done").touch()
    run = tmp_path / "run"
    assert partrain("run", job, "--out", run, "-q").code == 0
    finished = summary(run)
    (tmp_path / "done").unlink()
    said = partrain("resume", run, "--trust-code", "--until", "rounds=5", "--json")
    assert (said.code, json.loads(said.out)["status"]) == (69, "failed")
    assert (summary(run), finished["status"], bool(finished["test"])) == (finished, "finished", True)
    assert events(run, "fault")
    (tmp_path / "done").unlink()
    said = partrain("resume", run, "--trust-code", "--until", "rounds=5")
    assert said.code == 69
    (words,) = [line.split() for line in said.out.splitlines() if line.startswith("  partrain resume ")]
    assert words[-2:] == ["--until", "rounds=5"]
    assert partrain(*words[1:], "-q").code == 0
    assert (summary(run)["status"], summary(run)["rounds"]) == ("finished", 5)


def test_a_run_that_went_on_and_was_killed_has_no_end(tmp_path: Path) -> None:
    run = train(tmp_path, "stop.rounds=2")
    with Command(("resume", run, "--until", "rounds=100000"), tmp_path) as command:
        eventually(lambda: events(run, "commit")[-1]["round"] > 3, "more commits")
        command.interrupt(signal.SIGKILL)
        command.process.wait()
    assert not (run / "summary.json").exists(), "the one of round 2 would be taken for what is there"


def test_a_summary_that_is_gone_is_written_anew(tmp_path: Path) -> None:
    """As by a power cut between its removal and the first word of a run that goes on."""
    run = train(tmp_path, "stop.rounds=2")
    before = summary(run)
    (run / "summary.json").unlink()
    assert "nothing to do" in resume(run).out
    after = summary(run)
    assert after["test"] == pytest.approx(before["test"]), "by one worker, not by two"
    assert {**after, "test": {}, "seconds": {}} == {**before, "test": {}, "seconds": {}}


def test_a_simulated_clock_goes_on(tmp_path: Path) -> None:
    """Also between judgements, where nothing but the rounds tells of it: what is shown is what the summary will say."""
    run = train(tmp_path, 'transport={kind="simulated", delay=[5.0]}', "stop.judge_every=4")
    seconds = summary(run)["seconds"]["train"]
    told = [event["seconds"] for event in events(run, "round")]
    assert told == sorted(told)
    assert 5.0 < told[0] < told[-1] == pytest.approx(seconds)
    resume(round_file(run, 2))
    assert summary(run)["seconds"]["train"] == pytest.approx(seconds)
