"""Replicas on an accelerator beside those on the CPU, in one process: what they compute is what replicas on the CPU compute.

On the emulated device, whose kernels are the CPU's, to the bit; on another one but for rounding, and twice the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from support import lab
from support.replicas import CPUS, MET, MOMENTUM, PLAIN, Course, Trainer, optimizer_of, table
from support.rule_forms import FORMS, VARIANTS
from torch import Tensor, nn

from partrain.comm.group import ArenaGroup
from partrain.optim import OPTIMIZERS
from partrain.protocols import Rule
from partrain.system.accelerator import Accelerator, in_float64
from partrain.tasks.task import Classification
from partrain.training.evaluate import Evaluator
from partrain.training.worker import LocalWorker

pytestmark = pytest.mark.device
NORM = "batch_norm = true"


@pytest.fixture
def mixed(device: torch.device) -> tuple[str, str]:
    return "cpu", str(device)


def assert_alike(found: Course, expected: Course, device: torch.device) -> None:
    if device.type == "emulated":
        assert found.same(expected)
    else:
        found.assert_near(expected, *MET)


# Whole replicas


@pytest.mark.parametrize("name", [name for name, rule in VARIANTS.items() if not rule.shares_params])
def test_every_rule(near: Trainer, mixed: tuple[str, str], device: torch.device, name: str) -> None:
    sync, rule = table(FORMS[name]), VARIANTS[name]
    if name == "average, post-local":
        sync = sync.replace("switch_round = 3", "switch_round = 2")
    found = near(mixed, sync, model=NORM)
    assert found.same(near(mixed, sync, model=NORM))
    if device.type == "emulated" or not _chooses(rule):
        assert_alike(found, near(CPUS, sync, model=NORM), device)


def _chooses(rule: Rule) -> bool:
    """Return whether a last digit may decide what the rule does: by a sign, by a threshold, or by size."""
    return rule.rule in ("rprop", "threshold", "sparseloco", "choco") or (rule.rule == "topk" and rule.compressor.kind == "topk")


@pytest.mark.parametrize("kind", ["identity", "fp32", "bf16", "2bit"])
def test_every_kind_of_message(near: Trainer, mixed: tuple[str, str], device: torch.device, kind: str) -> None:
    sync = table({"rule": "topk", "compressor": {"kind": kind}})
    assert_alike(near(mixed, sync, model=NORM), near(CPUS, sync, model=NORM), device)


@pytest.mark.parametrize("policy", ["average", "recalibrate", "local"])
def test_every_policy_of_buffers_and_moments(near: Trainer, device: torch.device, policy: str) -> None:
    state = {"average": "average", "recalibrate": "reset", "local": "local"}[policy]
    sync = f'rule = "average"\nbuffers = "{policy}"\noptimizer_state = "{state}"'
    found, alone = (near(devices, sync, model=NORM, iterations=6) for devices in ((str(device), "cpu"), CPUS))
    assert_alike(found, alone, device)


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_every_optimizer(near: Trainer, mixed: tuple[str, str], name: str) -> None:
    """The functions that torch takes on a device treat all tensors at once, with other last bits than those it takes on the CPU."""
    alone, found, again = (near(devices, optimizer=optimizer_of(name), model="") for devices in (CPUS, mixed, mixed))
    assert found.same(again)
    if name not in ("rprop", "muon"):  # the one goes by signs, the other computes in bfloat16
        found.assert_near(alone, *MET)


def test_a_network_with_frozen_parts(near: Trainer, mixed: tuple[str, str], device: torch.device) -> None:
    """They do not lie in the row."""
    frozen = f'{NORM}\nfreeze = ["*.bias"]'
    assert_alike(near(mixed, model=frozen), near(CPUS, model=frozen), device)


def test_a_network_without_buffers_and_a_batch_in_parts(near: Trainer, mixed: tuple[str, str], device: torch.device) -> None:
    """Without dropout and BatchNorm the CPU could train it in compiled code, too."""
    for optimizer in (MOMENTUM, MOMENTUM + "\naccumulate = 2"):
        assert_alike(near(mixed, optimizer=optimizer, model=""), near(CPUS, optimizer=optimizer, model=""), device)


@pytest.mark.parametrize("name", ["average", "slowmo", "easgd", "rprop, irprop+", "topk", "threshold", "choco", "diloco"])
def test_a_resumed_training(near: Trainer, mixed: tuple[str, str], name: str) -> None:
    """With dropout, whose draws come from the device's generator."""
    sync = table(FORMS[name])
    first = near(mixed, sync, rounds=1)
    assert near(mixed, sync, rounds=3, since=(1, first)).same(near(mixed, sync, rounds=3))


def test_where_the_items_lie_changes_no_bit(near: Trainer, mixed: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    there = near(mixed)
    monkeypatch.setattr("partrain.launch.worker.setup.SHARE", 0.0)
    assert near(mixed).same(there)


def test_a_device_without_float64(near: Trainer, mixed: tuple[str, str], device: torch.device, emulated: Any) -> None:
    """Sums that need it are computed on the CPU, with the same bits."""
    sync = 'rule = "average"\nbuffers = "recalibrate"'
    expected = near(CPUS, sync, model=NORM)
    emulated.refuse_float64(0, True)
    assert not Accelerator(device).has_float64
    from partrain.system import accelerator

    accelerator._accelerator.cache_clear()
    try:
        assert near(mixed, sync, model=NORM).same(expected)
        assert in_float64(torch.ones(2, device=device)).device.type == "cpu"
    finally:
        accelerator._accelerator.cache_clear()


# Faults that a device must show: each is put in, and found


def test_a_missing_synchronization_is_found(device: torch.device, monkeypatch: pytest.MonkeyPatch, emulated: Any) -> None:
    """Seconds of computing are none of mixing: without the wait the device still computes when the clock is read."""

    def queued() -> float:
        """By a clock that tells what the device has still to do."""
        one = worker(device)
        one.begin(1, 0)
        one.clock = lambda: float(emulated.queued(0))
        torch.accelerator.synchronize(device)
        one.train(4)
        counted = one.seconds
        torch.accelerator.synchronize(device)
        return counted

    assert queued() == 0
    monkeypatch.setattr(Accelerator, "synchronize", lambda self: None)
    assert queued() > 0


def test_a_copy_that_is_read_too_early_is_found(
    near: Trainer, mixed: tuple[str, str], monkeypatch: pytest.MonkeyPatch, emulated: Any
) -> None:
    expected, copy = near(mixed, model=NORM), torch.Tensor.copy_
    monkeypatch.setattr(torch.Tensor, "copy_", lambda x, source, non_blocking=False: copy(x, source, non_blocking=True))
    assert not near(mixed, model=NORM).same(expected)


def test_a_cpu_generator_for_the_device_is_found(
    near: Trainer, mixed: tuple[str, str], monkeypatch: pytest.MonkeyPatch, emulated: Any
) -> None:
    monkeypatch.setattr(Accelerator, "seed", lambda self, seed: torch.default_generator.manual_seed(seed))
    first = near(mixed, rounds=1)
    assert not near(mixed, rounds=3, since=(1, first)).same(near(mixed, rounds=3))


def test_items_that_stay_behind_are_found(near: Trainer, mixed: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    from partrain.training.batches import Samples

    monkeypatch.setattr("partrain.launch.worker.setup.SHARE", 0.0)
    monkeypatch.setattr(Samples, "_on_device", lambda self, x: x)
    with pytest.raises(Exception, match="same device"):
        near(mixed)


# Parts


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (5.0, 1.0, 0.25)])
def test_a_mean_has_the_same_bits_wherever_its_vectors_lie(device: torch.device, weights: tuple[float, ...]) -> None:
    """Staged through one pinned buffer: params in the row, gradients in the row, a vector that lies elsewhere."""

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
    for devices in (["cpu", str(device), "cpu"], [str(device)] * 3):
        found = means(devices)
        assert all(x.equal(y) for ours, theirs in zip(found, expected, strict=True) for x, y in zip(ours, theirs, strict=True))


def worker(device: torch.device, network: Callable[[], nn.Module] = lab.mlp) -> LocalWorker:
    """A worker on the device."""
    items = replace(lab.blobs(), inputs=lab.blobs().inputs.to(device), targets=lab.blobs().targets.to(device))
    trial = lab.Trial(network=lambda: network().to(device), items=items)
    return trial.worker(0, torch.zeros(trial.layout.numbers, device=device))


class Scoring(Classification):
    """A user task that gives tensors for numbers."""

    def score(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> Any:
        answers = module(inputs)
        return self.loss(answers, targets) * len(inputs), (answers.argmax(1) == targets).sum()


def test_scores_that_are_tensors_become_numbers(device: torch.device) -> None:
    one = worker(device)
    scores = Evaluator(one.module, Scoring()).evaluate(one.samples, range(20))
    assert scores == pytest.approx(Evaluator(one.module, Classification()).evaluate(one.samples, range(20)))
    assert [type(score) for score in scores] == [float, float]


class Recurrent(nn.Module):
    """As many are written: on CUDA its weights would move to memory of their own, as they do here."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.answer = Moving(5, 4, num_layers=2, batch_first=True), nn.Linear(4, 3)

    def forward(self, items: Tensor) -> Tensor:
        self.layers.flatten_parameters()
        answers: Tensor = self.answer(self.layers(items[:, None])[0][:, 0])
        return answers


class Moving(nn.LSTM):
    def flatten_parameters(self) -> None:
        for parameter in self.parameters():
            parameter.data = parameter.data.clone()


def test_recurrent_weights_stay_in_the_row(device: torch.device) -> None:
    one = worker(device, Recurrent)
    before = one.params.clone()
    one.begin(1, 0)
    one.train(3)
    assert not one.params.equal(before)
    views = one.replica.layout.params.views(one.params)
    assert all(parameter.data_ptr() == view.data_ptr() for parameter, view in zip(one.module.parameters(), views, strict=True))


def test_dropout_is_drawn_from_the_seed(device: torch.device) -> None:
    """On a device of its own generator; the same for the same seed, round and call, whatever was drawn before."""
    Accelerator(device).use()
    rows = []
    for _ in range(2):
        one = worker(device, lab.restless)
        one.begin(1, 0)
        one.train(3)
        rows.append(one.params.clone())
        torch.rand(5, device=device)
    assert rows[0].equal(rows[1])


def test_float32_is_not_cut_short(near: Trainer, mixed: tuple[str, str], device: torch.device) -> None:
    """By default torch lets cuDNN compute in TF32."""
    if device.type != "cuda":
        pytest.skip("about CUDA's libraries")
    near(mixed, optimizer=PLAIN)
    assert torch.backends.cudnn.conv.fp32_precision == torch.backends.cudnn.rnn.fp32_precision == "ieee"
