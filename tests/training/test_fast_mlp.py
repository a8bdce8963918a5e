"""The chain rule by hand: autograd's bits, for the networks it knows; all others are left to autograd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.lab import Trial, blobs, mlp
from torch import nn

from partrain.optim import Sgd
from partrain.optim.sections import Adam
from partrain.rules.average import Average
from partrain.rules.bsp import Bsp
from partrain.tasks.task import Classification, Regression
from partrain.training.fast_mlp import MlpGradient
from partrain.training.worker import LocalWorker

ACTIVATIONS: list[Callable[[], nn.Module]] = [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity]


def chained(module: nn.Module, dtype: torch.dtype = torch.float32) -> tuple[MlpGradient | None, list[torch.Tensor]]:
    """The chain of a network, which computes in `dtype`, and where it puts gradients."""
    gradients = [torch.full_like(parameter, 7.0) for parameter in module.parameters()]
    return MlpGradient.of(module, gradients, dtype), gradients


@settings(max_examples=60)
@given(st.data(), st.sampled_from([torch.float32, torch.float64, torch.bfloat16]), st.booleans(), st.booleans())
def test_loss_and_gradient_have_the_bits_of_autograd(data: st.DataObject, kind: torch.dtype, labels: bool, image: bool) -> None:
    """Those of autocast where products are in bfloat16."""
    dtype = torch.float32 if kind == torch.bfloat16 else kind
    widths = data.draw(st.lists(st.integers(1, 40), min_size=2, max_size=5))
    torch.manual_seed(data.draw(st.integers(0, 2**31)))
    layers: list[nn.Module] = [nn.Flatten()] if image else []
    for number, (before, after) in enumerate(pairwise(widths), start=2):
        layers.append(nn.Linear(before, after, dtype=dtype))
        if number < len(widths) or data.draw(st.booleans()):
            layers.append(data.draw(st.sampled_from(ACTIVATIONS))())
    module = nn.Sequential(*layers)
    chain, gradients = chained(module, kind)
    assert (chain is None) == (1 in widths[1:-1])
    if chain is None:
        return
    for count in data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=3)):
        inputs = torch.randn(count, *([1, widths[0]] if image else [widths[0]]), dtype=dtype)
        targets = torch.randint(0, widths[-1], (count,)) if labels else torch.randn(count, widths[-1], dtype=dtype)
        with torch.autocast("cpu", torch.bfloat16, enabled=kind != dtype):
            loss = (Classification if labels else Regression)().loss(module(inputs), targets)
        expected = torch.autograd.grad(loss, list(module.parameters()))
        assert torch.equal(chain.differentiate(inputs, targets), loss)
        assert all(torch.equal(one, other) for one, other in zip(gradients, expected, strict=True))


def shared() -> nn.Module:
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.ReLU(), layer)


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    module[0].weight.requires_grad = False
    return module


def watched() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4))
    module[0].register_forward_hook(lambda *_: None)
    return module


def rewritten() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4))
    module.forward = lambda x: 2 * module[0](x)  # type: ignore[method-assign]
    return module


class Doubled(nn.Linear):
    """Looks like a linear layer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def masked() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4))
    module[0].weight.register_hook(lambda gradient: gradient * 0)
    return module


UNKNOWN: dict[str, Callable[[], nn.Module]] = {
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
    "dropout": lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)),
    "no bias": lambda: nn.Sequential(nn.Linear(4, 4, bias=False)),
    "another activation": lambda: nn.Sequential(nn.Linear(4, 4), nn.GELU()),
    "two activations": lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Tanh()),
    "activation first": lambda: nn.Sequential(nn.ReLU(), nn.Linear(4, 4)),
    "flattened elsewhere": lambda: nn.Sequential(nn.Linear(4, 4), nn.Flatten()),
    "nested": lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 4))),
    "no sequence": lambda: nn.Linear(4, 4),
    "a layer of one's own": lambda: nn.Sequential(Doubled(4, 4)),
    "a layer used twice": shared,
    "a frozen weight": frozen,
    "a hook": watched,
    "a hook on a weight": masked,
    "a layer of width one inside": lambda: nn.Sequential(nn.Linear(4, 1), nn.Linear(1, 3)),
    "a forward of one's own": rewritten,
    "a parametrised weight": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))),
}


@pytest.mark.parametrize("make", UNKNOWN.values(), ids=UNKNOWN)
def test_what_it_does_not_know_is_left_to_autograd(make: Callable[[], nn.Module]) -> None:
    module = make()
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    assert MlpGradient.of(module, [torch.zeros_like(parameter) for parameter in trained], torch.float32) is None


def test_targets_of_another_shape_are_refused() -> None:
    chain, _ = chained(nn.Sequential(nn.Linear(4, 2)))
    assert chain is not None
    with pytest.raises(ValueError, match=r"answers \(3, 2\) to targets \(3, 1\)"):
        chain.differentiate(torch.zeros(3, 4), torch.zeros(3, 1))


@pytest.mark.parametrize("rule", [Average(iterations=3), Bsp(rule="bsp", iterations=3)], ids=["average", "bsp"])
@pytest.mark.parametrize("optimizer", [Sgd(lr=0.1, momentum=0.9, batch_size=4), Adam(name="adam", lr=0.01, batch_size=4)])
def test_training_has_the_same_bits_with_it_and_without(
    rule: Average | Bsp, optimizer: Sgd | Adam, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = replace(Trial(rule, optimizer, mlp), held_out=blobs(20))
    with_it, _ = trial.run(4)
    assert all(one.worker._engine.in_row for one in with_it)
    monkeypatch.setattr("partrain.training.gradient.MlpGradient.of", lambda *_: None)
    without, _ = trial.run(4)
    assert not any(one.worker._engine.in_row for one in without)
    assert with_it[0].courses == without[0].courses
    assert with_it[0].progress == without[0].progress


def test_a_whole_partitions_gradient_has_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    def gradient() -> torch.Tensor:
        worker: LocalWorker = Trial(network=mlp).worker()
        worker.begin(1, 0)
        return worker.gradient(full=True).clone()

    one = gradient()
    monkeypatch.setattr("partrain.training.gradient.MlpGradient.of", lambda *_: None)
    assert torch.equal(one, gradient())
    assert one.any()


def test_items_that_nobody_flattens_are_refused_as_the_network_would() -> None:
    chain, _ = chained(nn.Sequential(nn.Linear(4, 2)))
    assert chain is not None
    with pytest.raises(ValueError, match=r"no Flatten for items \(2, 2\)"):
        chain.differentiate(torch.zeros(3, 2, 2), torch.zeros(3, dtype=torch.int64))
