"""CUDA workers, alone and beside CPU workers in one job. Run with `make test-gpu` where there is a device.

What needs no device is tested everywhere by one that is only pretended (`test_pretended_device`): that no tensor is left on the wrong
side. Here are the kernels: their numbers, their bits when they are repeated, and whole runs with processes of their own.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support import lab
from support.replicas import CPUS, MIXED, Trainer, optimizer_of, table
from support.rule_forms import FORMS, VARIANTS
from support.runs import events, newest, partrain, resume, round_file, sabotage, summary, train, write_job
from torch import Tensor, nn

from partrain import checkpoint
from partrain.comm.group import ArenaGroup
from partrain.launch.worker.setup import _repeat_exactly
from partrain.optim import OPTIMIZERS
from partrain.protocols import Rule

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda", 0)
JOB = """
name = "mixed"
seed = 3
[model]
name = "mlp"
hidden = [32]
batch_norm = true
dropout = 0.1
[dataset]
kind = "synthetic"
function = "blobs"
items = 4400
features = 8
noise = 0.5
validation = 400
[optimizer]
name = "sgd"
lr = 0.05
momentum = 0.9
batch_size = 16
[sync]
rule = "average"
iterations = 5
{workers}
[stop]
rounds = 12
judge_every = 4
[checkpoint]
commit = "every"
keep = 1000
"""
TWO = '[[workers]]\ndevice = "cpu"\ncount = 2\npartition_size = {}\n'
ONE = '[[workers]]\ndevice = "cuda:0"\npartition_size = {}\niterations = {}\n'
ALONE, BESIDE = JOB.format(workers=ONE.format(4000, 50)), JOB.format(workers=TWO.format(500) + ONE.format(3000, 50))


@pytest.fixture
def near(tmp_path: Path) -> Trainer:
    """Trains replicas on both kinds of device in this process."""
    return Trainer(tmp_path)


# Whole runs


def test_a_gpu_gets_ten_times_the_items_beside_two_processors(tmp_path: Path) -> None:
    run = train(tmp_path, text=BESIDE)
    done = summary(run)
    assert [worker["item_iterations"] for worker in done["workers"]] == [12 * 5 * 16, 12 * 5 * 16, 12 * 50 * 16]
    assert done["metrics"]["accuracy"] > 0.9
    for event in events(run, "round"):
        assert event["compute"] > 0
        assert event["mix"] >= 0


@pytest.mark.parametrize("text", [ALONE, BESIDE], ids=["alone", "beside two processors"])
@pytest.mark.parametrize(
    "sets", [[], ['optimizer={name="adam", lr=0.01, batch_size=16}', 'sync.buffers="local"']], ids=["sgd", "adam"]
)
def test_the_same_job_gives_the_same_bits_and_so_does_a_resumed_one(tmp_path: Path, text: str, sets: list[str]) -> None:
    run, again = train(tmp_path / "one", *sets, text=text), train(tmp_path / "two", *sets, text=text)
    one, two = (checkpoint.read(folder / "checkpoint.h5").arrays for folder in (run, again))
    assert one.keys() == two.keys()
    assert all(one[path].tobytes() == two[path].tobytes() for path in one)
    resume(round_file(run, 7), "--out", tmp_path / "resumed")
    assert newest(tmp_path / "resumed") == newest(run)


def test_gradients_are_averaged_across_kinds_of_device(tmp_path: Path) -> None:
    run = train(tmp_path, 'sync.rule="bsp"', text=JOB.format(workers=TWO.format(1000) + ONE.format(2000, 5)))
    assert summary(run)["metrics"]["accuracy"] > 0.8


@pytest.mark.parametrize("text", [ALONE, BESIDE], ids=["alone", "beside two processors"])
def test_bfloat16(tmp_path: Path, text: str) -> None:
    run = train(tmp_path, 'engine.precision="bfloat16"', text=text)
    assert summary(run)["metrics"]["accuracy"] > 0.9
    assert all(array.dtype != "float16" for array in checkpoint.read(run / "checkpoint.h5").arrays.values())


def test_each_cuda_worker_takes_the_next_device(tmp_path: Path) -> None:
    """On one device all share it; on several they take turns."""
    run = train(tmp_path, text=JOB.format(workers='[[workers]]\ndevice = "cuda"\ncount = 3\n'))
    (start,) = events(run, "start")
    count = torch.cuda.device_count()
    assert [worker["device"] for worker in start["workers"]] == [f"cuda:{rank % count}" for rank in range(3)]


def test_a_device_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = write_job(tmp_path, "workers.0.device='cuda:99'")
    said = partrain("run", job, "--out", tmp_path / "run", "--quiet")
    assert (said.code, said.errors) == (78, ["bad-job"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    said = partrain("run", write_job(tmp_path / "hidden", "workers.0.device='cuda:0'"), "--out", tmp_path / "other", "--quiet")
    assert (said.code, said.errors) == (78, ["bad-job"])


def test_out_of_memory(tmp_path: Path) -> None:
    deed = "torch.empty(1 << 50, device=self[0].weight.device)"
    job = sabotage(tmp_path, deed, "workers.0.device='cuda:0'", call=8)
    said = partrain("run", job, "--out", tmp_path / "run", "--quiet")
    assert (said.code, said.errors) == (71, ["user-code"])
    assert "CUDA out of memory" in said.err


# Replicas of both kinds in one process: what they compute is what replicas on the CPU compute, but for rounding

MET = 2e-3, 2e-4
"""Relative and absolute: what a few iterations may make of other last digits."""


@pytest.mark.parametrize("name", [name for name, rule in VARIANTS.items() if not rule.shares_params])
def test_every_rule(near: Trainer, name: str) -> None:
    """Twice the same bits, and the CPU's numbers: without BatchNorm and dropout, which draws otherwise on each kind of device."""
    sync, rule = table(FORMS[name]), VARIANTS[name]
    if name == "average, post-local":
        sync = sync.replace("switch_round = 3", "switch_round = 2")
    mixed = near(MIXED, sync, model="")
    assert mixed.same(near(MIXED, sync, model=""))
    if not _chooses(rule):
        mixed.assert_near(near(CPUS, sync, model=""), *MET)


def _chooses(rule: Rule) -> bool:
    """Whether a last digit may decide what is done: by a sign, a threshold, or which are the largest."""
    return rule.rule in ("rprop", "threshold", "sparseloco", "choco") or (rule.rule == "topk" and rule.compressor.kind == "topk")


@pytest.mark.parametrize("policy", ["average", "recalibrate", "local"])
def test_every_policy_of_buffers(near: Trainer, policy: str) -> None:
    sync = f'rule = "average"\nbuffers = "{policy}"'
    near(MIXED, sync, model="batch_norm = true").assert_near(near(CPUS, sync, model="batch_norm = true"), *MET)


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_every_optimizer(near: Trainer, name: str) -> None:
    courses = [near(devices, optimizer=optimizer_of(name), model="") for devices in (CPUS, MIXED, MIXED)]
    assert courses[1].same(courses[2])
    if name not in ("rprop", "muon"):  # the one goes by signs, the other computes in bfloat16
        courses[1].assert_near(courses[0], *MET)


@pytest.mark.parametrize("name", ["average", "easgd", "topk", "diloco"])
def test_a_resumed_training(near: Trainer, name: str) -> None:
    sync = table(FORMS[name])
    first = near(MIXED, sync, rounds=1)
    assert near(MIXED, sync, rounds=3, since=(1, first)).same(near(MIXED, sync, rounds=3))


def test_where_the_items_lie_changes_no_bit(near: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    there = near(MIXED)
    monkeypatch.setattr("partrain.launch.worker.setup.SHARE", 0.0)
    assert near(MIXED).same(there)


# Parts


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (5.0, 1.0, 0.25)])
def test_a_mean_has_the_same_bits_wherever_its_vectors_lie(weights: tuple[float, ...]) -> None:
    """Staged through one page-locked buffer: params in the row, gradients in the row, a vector that lies elsewhere."""

    def means(devices: list[str]) -> list[list[Tensor]]:
        def program(group: ArenaGroup, row: Tensor) -> list[Tensor]:
            if devices[group.rank] != "cpu":
                row = torch.zeros_like(row, device=devices[group.rank])
                group = ArenaGroup(
                    group.arena, group.rank, row, group._rows, group._scratch, group.transport, group.center_client
                )
                assert group._pinned is not None
                assert group._pinned.is_pinned()
            drawn = torch.Generator().manual_seed(group.rank)
            row[:40].copy_(torch.randn(40, generator=drawn))
            elsewhere = torch.randn(20, generator=drawn).to(row.device)
            for x in row[:20], row[20:40], elsewhere:
                group.all_reduce_mean(x, weights[group.rank])
            seen = group.all_gather(elsewhere)
            assert all(x.device == row.device for x in seen)
            return [row[:40].cpu(), elsewhere.cpu(), *(x.cpu() for x in seen)]

        return lab.simulate(3, program, 104, 40)

    expected = means(["cpu"] * 3)
    for devices in (["cpu", "cuda:0", "cpu"], ["cuda:0"] * 3):
        found = means(devices)
        assert all(x.equal(y) for ours, theirs in zip(found, expected, strict=True) for x, y in zip(ours, theirs, strict=True))


class Recurrent(nn.Module):
    """As many are written; nothing must move its weights out of the row."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.answer = nn.LSTM(5, 4, num_layers=2, batch_first=True), nn.Linear(4, 3)

    def forward(self, items: Tensor) -> Tensor:
        self.layers.flatten_parameters()
        answers: Tensor = self.answer(self.layers(items[:, None])[0][:, 0])
        return answers


def test_recurrent_weights_stay_in_the_row() -> None:
    items = replace(lab.blobs(), inputs=lab.blobs().inputs.to(CUDA), targets=lab.blobs().targets.to(CUDA))
    trial = lab.Trial(network=lambda: Recurrent().to(CUDA), items=items)
    worker = trial.worker(0, torch.zeros(trial.layout.numbers, device=CUDA))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
        worker.begin(1, 0)
        worker.train(3)
    views = worker.replica.layout.params.views(worker.params)
    assert all(parameter.data_ptr() == view.data_ptr() for parameter, view in zip(worker.module.parameters(), views, strict=True))


def test_dropout_is_drawn_from_the_seed() -> None:
    """On a device of its own generator; the same for the same seed, round and call, whatever was drawn before."""
    items = replace(lab.blobs(), inputs=lab.blobs().inputs.to(CUDA), targets=lab.blobs().targets.to(CUDA))
    trial = lab.Trial(network=lambda: lab.restless().to(CUDA), items=items)
    _repeat_exactly()
    rows = []
    for _ in range(2):
        worker = trial.worker(0, torch.zeros(trial.layout.numbers, device=CUDA))
        worker.begin(1, 0)
        worker.train(3)
        rows.append(worker.params.clone())
        torch.rand(5, device=CUDA)
    assert rows[0].equal(rows[1])
