"""Every network on a pretended CUDA device: it creates all tensors on the device of its items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
import torch
from support.networks import CASES, Case, lesson
from support.pretended_device import CPU, CUDA, Pretence
from torch import Tensor, nn

from partrain.launch.worker.setup import _repeat_exactly


@pytest.fixture
def pretence() -> Iterator[Pretence]:
    with Pretence.installed() as device:
        yield device


@pytest.mark.parametrize("name", list(CASES))
def test_every_network(pretence: Pretence, name: str) -> None:
    case = CASES[name]

    def trained(device: torch.device) -> tuple[Tensor, tuple[float, float]]:
        items = case.items(12)
        items = replace(items, inputs=items.inputs.to(device), targets=items.targets.to(device))
        trial = lesson(case, 12, items=items, network=lambda: case.build().to(device))
        worker = trial.worker(0, torch.zeros(trial.layout.numbers, device=device))
        worker.begin(1, 0)
        worker.train(1)
        return worker.params.cpu(), worker.evaluate(items, range(12))

    expected, score = trained(CPU)
    with pretence.on():
        found, judged = trained(CUDA)
        assert found.equal(expected)
    assert judged == score


@pytest.mark.gpu
@pytest.mark.parametrize("name", list(CASES))
def test_every_network_on_a_real_device(name: str) -> None:
    """Loss and gradient equal those of the CPU up to rounding, with the same bits each time. torch warns of nondeterministic kernels."""
    case, gradients = CASES[name], []
    with torch.random.fork_rng(devices=[]):
        for device in CPU, CUDA, CUDA:
            if device == CUDA:
                _repeat_exactly()
            items = case.items(12)
            items = replace(items, inputs=items.inputs.to(device), targets=items.targets.to(device))
            trial = lesson(case, 12, items=items, network=partial(_without_chance, case, device))
            worker = trial.worker(0, torch.zeros(trial.layout.numbers, device=device))
            worker.begin(1, 0)
            gradients.append(worker.gradient(full=True).cpu())
    torch.testing.assert_close(gradients[1], gradients[0], rtol=5e-3, atol=1e-4)
    assert gradients[1].equal(gradients[2])


def _without_chance(case: Case, device: torch.device) -> nn.Module:
    """Build the network without dropout and noise, whose random numbers depend on the kind of device."""
    network = case.build().to(device)
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("dropout", "noise"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return network
