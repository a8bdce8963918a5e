"""Every network by name under every synchronous rule: `make soak`, about seven minutes. The gate runs a part of it."""

from __future__ import annotations

import math
from importlib import util

import pytest
import torch
from support.lab import same
from support.networks import CASES, Case, lesson
from support.rule_forms import SYNCHRONOUS, VARIANTS
from torch import nn

from partrain.models import MODELS, TIMM, TORCHVISION, Interface
from partrain.optim import Sgd

LARGE = "torchvision:resnet18"
"""Network of eleven million parameters. The test copies parameters, so it trains only one in fifteen."""
PICTURES = Interface((3, 32, 32), 4, "classification")
NETWORKS = CASES | {LARGE: Case(PICTURES, {"name": LARGE, "freeze": ["layer[34].*"]})}


def test_all_networks_are_here() -> None:
    assert {case.settings["name"] for case in CASES.values()} == MODELS.keys() - {TIMM, TORCHVISION, "user"}


@pytest.mark.soak
@pytest.mark.parametrize("rule", sorted(SYNCHRONOUS))
@pytest.mark.parametrize("name", NETWORKS)
def test_it_trains_and_resumes_to_the_bit(name: str, rule: str) -> None:
    if name == LARGE and not util.find_spec("torchvision"):
        pytest.skip("needs torchvision")
    case, form = NETWORKS[name], VARIANTS[rule]
    optimizer = Sgd(lr=0.05, momentum=0.9, batch_size=4)
    trial = lesson(case, rule=form, optimizer=optimizer, held_out=case.items(6))
    members, whole = trial.run(rounds=2)
    losses = [member.progress.loss for member in members]
    assert losses[0] is not None
    assert math.isfinite(losses[0])
    assert losses[0] == losses[1]

    one, other = members
    if form.keeps_replicas_equal:
        assert torch.equal(one.params, other.params)
    first, second = (dict(member.worker.module.named_buffers()) for member in members)
    if form.buffers != "local":
        assert all(torch.equal(first[part], second[part]) for part in first)
    for part in one.worker.module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            assert part.running_mean is not None
            assert bool(part.running_mean.any()) == part.weight.requires_grad, "frozen layers keep their statistics"

    _, half = trial.run(rounds=1)
    again, resumed = trial.run(rounds=2, since=half)
    assert same(whole, resumed)
    assert [member.courses[-1] for member in again] == [member.courses[-1] for member in members]
    assert one.courses[0] != one.courses[1], "nor is that because nothing moves"
