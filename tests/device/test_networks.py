"""Every network on an accelerator: it makes all tensors on the device of its items, and gives the CPU's gradient."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from support.networks import CASES, Case, lesson
from torch import nn

from partrain.models.tabular import ItemDropout
from partrain.models.ties import move
from partrain.system.accelerator import Accelerator

pytestmark = pytest.mark.device


@pytest.mark.parametrize("name", list(CASES))
def test_every_network(device: torch.device, name: str) -> None:
    """Loss and gradient equal those of the CPU up to rounding, with the same bits each time. torch warns of nondeterministic kernels."""
    case, gradients, scores = CASES[name], [], []
    with torch.random.fork_rng(devices=[]):
        Accelerator(device).use()
        for place in torch.device("cpu"), device, device:
            items = case.items(12)
            items = replace(items, inputs=items.inputs.to(place), targets=items.targets.to(place))
            trial = lesson(case, 12, items=items, network=partial(_without_chance, case, place))
            worker = trial.worker(0, torch.zeros(trial.layout.numbers, device=place))
            worker.begin(1, 0)
            gradients.append(worker.gradient(full=True).cpu())
            scores.append(worker.evaluate(items, range(12)))
    torch.testing.assert_close(gradients[1], gradients[0], rtol=5e-3, atol=1e-4)
    assert gradients[1].equal(gradients[2])
    assert scores[1] == pytest.approx(scores[0], rel=1e-3)


def _without_chance(case: Case, device: torch.device) -> nn.Module:
    """Build the network without dropout and noise, whose random numbers depend on the kind of device."""
    network = case.build()
    move(network, device)
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(module, ItemDropout):
            module.limit = 0
        for name in ("dropout", "noise"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return network
