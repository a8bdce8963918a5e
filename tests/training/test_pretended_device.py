"""Workers on a CUDA device that is only pretended (`pretence`), beside workers on the CPU: they must give the bits of the CPU alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support import lab
from support.pretended_device import CUDA, Pretence
from support.replicas import CPUS, MIXED, MOMENTUM, PLAIN, RESTLESS, Trainer, optimizer_of, table
from support.rule_forms import FORMS, VARIANTS
from support.runs import partrain, write_job
from torch import Tensor, nn

from partrain.errors import BadJob, UserCodeFailed
from partrain.launch.worker.channel import explain
from partrain.optim import OPTIMIZERS
from partrain.tasks.task import Classification
from partrain.training.evaluate import evaluate
from partrain.training.worker import LocalWorker


@pytest.fixture
def pretence() -> Iterator[Pretence]:
    with Pretence.installed() as device:
        yield device


@pytest.fixture
def train(pretence: Pretence, tmp_path: Path) -> Trainer:
    return Trainer(tmp_path, pretence.on)


# Whole replicas


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, rule in VARIANTS.items() if not rule.shares_params])
def test_every_rule(train: Trainer, name: str) -> None:
    sync = table(FORMS[name])
    if name == "average, post-local":
        sync = sync.replace("switch_round = 3", "switch_round = 2")
    assert train(CPUS, sync).same(train(MIXED, sync))


def test_float32_is_not_cut_short(train: Trainer) -> None:
    """Torch lets cuDNN compute in TF32 where nobody says otherwise."""
    train(MIXED)
    assert torch.backends.cudnn.conv.fp32_precision == torch.backends.cudnn.rnn.fp32_precision == "ieee"


@pytest.mark.parametrize("kind", ["identity", "fp32", "bf16", "2bit"])
def test_every_kind_of_message(train: Trainer, kind: str) -> None:
    sync = table({"rule": "topk", "compressor": {"kind": kind}})
    assert train(CPUS, sync).same(train(MIXED, sync))


@pytest.mark.parametrize("policy", ["average", "recalibrate", "local"])
def test_every_policy_of_buffers_and_moments(train: Trainer, policy: str) -> None:
    state = {"average": "average", "recalibrate": "reset", "local": "local"}[policy]
    sync = f'rule = "average"\nbuffers = "{policy}"\noptimizer_state = "{state}"'
    alone, mixed = (train(devices, sync, iterations=6) for devices in (CPUS, ("cuda:0", "cpu")))
    assert alone.same(mixed)


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_every_optimizer(train: Trainer, name: str) -> None:
    """The functions that torch takes on a device treat all tensors at once, with other last bits than those it takes on the CPU.

    NAdam's differ from the first step on, and a bias before BatchNorm, whose gradient is nothing but last bits, goes by its sign.
    """
    network = "dropout = 0.25" if name == "nadam" else RESTLESS
    alone, mixed = (train(devices, optimizer=optimizer_of(name), model=network) for devices in (CPUS, MIXED))
    mixed.assert_near(alone, 1e-4, 1e-6)


def test_a_network_with_frozen_parts(train: Trainer) -> None:
    """They do not lie in the row."""
    frozen = 'batch_norm = true\nfreeze = ["*.bias"]'
    assert train(CPUS, model=frozen).same(train(MIXED, model=frozen))


def test_a_network_without_buffers_and_a_batch_in_parts(train: Trainer) -> None:
    """On the CPU this one's gradient is worked out layer by layer, on a device by autograd."""
    for optimizer in (MOMENTUM, MOMENTUM + "\naccumulate = 2"):
        assert train(CPUS, optimizer=optimizer, model="").same(train(MIXED, optimizer=optimizer, model=""))


@pytest.mark.parametrize("name", ["average", "slowmo", "easgd", "rprop, irprop+", "topk", "threshold", "choco"])
def test_a_resumed_training(train: Trainer, name: str) -> None:
    sync = table(FORMS[name])
    first = train(MIXED, sync, rounds=1)
    assert train(MIXED, sync, rounds=3, since=(1, first)).same(train(CPUS, sync, rounds=3))


def test_items_that_would_fill_the_device_come_batch_by_batch(train: Trainer, pretence: Pretence) -> None:
    """The same bits; the set is never copied as a whole."""
    longest = []
    for pretence.free in 1 << 40, 1:
        pretence.copies.clear()
        assert train(MIXED).same(train(CPUS))
        longest.append(max(copy.bytes for copy in pretence.copies if copy.to_device and not copy.pinned))
    assert longest[1] < longest[0] / 2


def test_a_row_is_staged_through_one_pinned_buffer(train: Trainer, pretence: Pretence) -> None:
    """Out once in a round, and in once; what else there is to copy is not as long."""
    rows = []
    for rounds in (1, 2):
        pretence.copies.clear()
        pretence.pinned_bytes.clear()
        train(MIXED, optimizer=PLAIN, model="", rounds=rounds)
        (buffer,) = pretence.pinned_bytes
        longest = max(copy.bytes for copy in pretence.copies if copy.pinned)
        assert longest <= buffer
        rows.append([copy.to_device for copy in pretence.copies if copy.pinned and copy.bytes == longest])
    assert rows[1][len(rows[0]) :] == [False, True]


# One worker, or a part of it


def worker(network: Callable[[], nn.Module] = lab.mlp) -> LocalWorker:
    """A worker on the device; to be called, and used, there."""
    items = replace(lab.blobs(), inputs=lab.blobs().inputs.to(CUDA), targets=lab.blobs().targets.to(CUDA))
    trial = lab.Trial(network=lambda: network().to(CUDA), items=items)
    return trial.worker(0, torch.zeros(trial.layout.numbers, device=CUDA))


def test_computing_takes_as_long_as_the_device_takes(pretence: Pretence) -> None:
    """Kernels are under way when the call returns; their time is none of waiting or mixing."""
    with pretence.on():
        one = worker()
        one.clock = lambda: pretence.seconds
        one.begin(1, 0)
        one.train(2)
        assert one.seconds == 1
        gradient = one.gradient()
        assert one.seconds == 2
        one.apply(gradient)
        assert one.seconds == 3


class Scoring(Classification):
    """A task of the user's own, which gives tensors for numbers."""

    def score(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> Any:
        answers = module(inputs)
        return self.loss(answers, targets) * len(inputs), (answers.argmax(1) == targets).sum()


def test_scores_that_are_tensors_become_numbers(pretence: Pretence) -> None:
    with pretence.on():
        one = worker()
        scores = evaluate(one.module, Scoring(), one.samples, range(20))
        assert scores == pytest.approx(evaluate(one.module, Classification(), one.samples, range(20)))
    assert [type(score) for score in scores] == [float, float]


class Flattening(nn.Module):
    """A recurrent network as many are written: on CUDA its weights would move to memory of their own, as they do here."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = Moving(5, 4)
        self.answer = nn.Linear(4, 3)

    def forward(self, items: Tensor) -> Tensor:
        self.layers.flatten_parameters()
        return self.answer(self.layers(items[:, None])[0][:, 0])


class Moving(nn.GRU):
    def flatten_parameters(self) -> None:
        for parameter in self.parameters():
            parameter.data = parameter.data.clone()


def test_recurrent_weights_stay_in_the_row(pretence: Pretence) -> None:
    with pretence.on():
        one = worker(Flattening)
        before = one.params.clone()
        one.begin(1, 0)
        one.train(1)
        assert not one.params.equal(before)
        shown = torch.cat([parameter.detach().reshape(-1) for parameter in one.module.parameters()])
        views = torch.cat([view.reshape(-1) for view in one.replica.layout.params.views(one.params)])
        assert shown.equal(views)


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has CUDA")
def test_a_torch_without_cuda_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's files say that there is a device, and torch was built without CUDA."""
    for module in "job.checks", "job.workers":
        monkeypatch.setattr(f"partrain.{module}.cuda_count", lambda: 1)
    said = partrain("run", write_job(tmp_path, "workers.0.device='cuda'"), "--out", tmp_path / "run", "--quiet")
    assert (said.code, said.errors) == (78, ["bad-job"])
    assert f"torch {torch.__version__} cannot compute on cuda:0: Torch not compiled with CUDA enabled" in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("text", [
    "CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes.",
])  # fmt: skip
def test_too_little_memory_is_the_users_to_change(text: str) -> None:
    for users, kind in ("", BadJob), ("own.py:Net", UserCodeFailed):
        failure = explain(RuntimeError(text), "worker 1, round 2", users, built=True)
        assert type(failure) is kind
        assert failure.message == f"worker 1, round 2: out of memory: RuntimeError: {text.splitlines()[0]}"


# The pretence itself


def test_devices_must_not_meet(pretence: Pretence) -> None:
    with pretence.on():
        here, there = torch.ones(4, 4), torch.ones(4, 4).to(CUDA)
        index = torch.tensor([1])
        fails: list[Callable[[], Any]] = [
            lambda: here + there,
            lambda: here.add_(there),
            lambda: here[0, 0].clone().add_(there[0, 0]),
            lambda: here + there[0, 0],
            lambda: torch.mm(here, there),
            lambda: torch.cat([here, there]),
            lambda: torch.where(there > 0, here, there),
            lambda: there.index_select(0, index),
            lambda: here[index.to(CUDA)],
            lambda: there.index_put_((index,), here[1:2]),
            lambda: torch._fused_sgd_(
                [there], [here], [], weight_decay=0.0, momentum=0.0, lr=0.1, dampening=0.0, nesterov=False, maximize=False,
                is_first_step=False,
            ),
        ]  # fmt: skip
        for number, fail in enumerate(fails):
            with pytest.raises(RuntimeError, match="same device"):
                print(number, fail())
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()
        fine = [there[index], there * torch.tensor(2.0), there.new_zeros(3), there.new_tensor([1.0]), torch.empty_like(there)]
        assert all(x.is_cuda and x.device == CUDA for x in fine)
        assert there.cpu().device == there.to("cpu", torch.float64).device == here.to(here).device == here.copy_(there).device
        assert here.to(there).is_cuda
        assert float(there.sum()) == 16
