"""Large products of float32 go to the faster library where there is one: the same numbers but for rounding, and small ones as ever."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from partrain.system.environment import processor
from partrain.tasks.kinds import Classification
from partrain.training import onednn
from partrain.training.fast_mlp import MlpGradient

needs_onednn = pytest.mark.skipif(
    processor().rounds_to_bfloat16, reason="oneDNN would multiply in bfloat16 on this processor (AMX or Arm BF16)"
)


@pytest.fixture(autouse=True, params=["MKL", pytest.param("oneDNN", marks=needs_onednn)])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a processor where oneDNN pays. With MKL multiplying in its place, all but the numbers is checked on every processor."""
    before = torch.backends.mkldnn.matmul.fp32_precision
    monkeypatch.setattr(onednn, "onednn_pays", lambda: True)
    if request.param == "MKL":
        monkeypatch.setattr(onednn, "_onednn", nullcontext())
    yield
    assert torch.backends.mkldnn.matmul.fp32_precision == before


def large(bias: bool = True) -> tuple[nn.Linear, nn.Linear]:
    """A layer whose products with 64 items are large, and the same one hastened."""
    plain = nn.Linear(300, 200, bias=bias)
    hastened = copy.deepcopy(plain)
    onednn.use_onednn_linear(hastened)
    return plain, hastened


def gradients(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """Answers, and gradients by x and all parameters."""
    x = x.clone().requires_grad_()
    answers = layer(x)
    return [answers, *torch.autograd.grad(answers.square().sum(), [x, *layer.parameters()])]


def close(some: list[Tensor], others: list[Tensor]) -> bool:
    return all(torch.dist(a, b) <= 1e-5 * b.norm() for a, b in zip(some, others, strict=True))


@pytest.mark.parametrize("shape", [(64, 300), (4, 16, 300), (2, 4, 8, 300)])
@pytest.mark.parametrize("bias", [True, False])
def test_large_products_are_the_same_but_for_rounding(shape: tuple[int, ...], bias: bool) -> None:
    plain, hastened = large(bias)
    x = torch.randn(shape)
    assert hastened(x).grad_fn.name() == "_LinearBackward"
    assert close(gradients(hastened, x), gradients(plain, x))


def test_they_are_those_of_torch_when_all_is_asked_of_that_library() -> None:
    plain, hastened = large()
    x = torch.randn(64, 300)
    found = gradients(hastened, x)
    with onednn._onednn:
        assert all(map(torch.equal, found, gradients(plain, x)))


def test_small_ones_other_types_and_other_modules_are_left_alone() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    _, hastened = large()
    x = torch.randn(8, 300)
    assert hastened(x).grad_fn.name() == "AddmmBackward0"
    assert torch.equal(hastened(x), nn.functional.linear(x, hastened.weight, hastened.bias))
    assert hastened.double()(torch.randn(64, 300).double()).grad_fn.name() == "AddmmBackward0"
    network = nn.Sequential(Doubled(300, 200), nn.Conv1d(1, 1, 1))
    onednn.use_onednn_linear(network)
    assert not any("forward" in vars(part) for part in network)


def test_a_watched_layer_is_still_watched_and_a_rewritten_one_still_rewritten() -> None:
    plain, _ = large()
    seen: list[int] = []
    plain.register_forward_hook(lambda *_: seen.append(1))
    rewritten = nn.Linear(300, 200)
    rewritten.forward = lambda x: x  # type: ignore[method-assign]
    onednn.use_onednn_linear(nn.Sequential(plain, rewritten))
    x = torch.randn(64, 300)
    assert plain(x).grad_fn.name() == "_LinearBackward"
    assert seen == [1]
    assert rewritten(x) is x


def test_a_copy_of_a_network_has_weights_of_its_own() -> None:
    _, hastened = large()
    other = copy.deepcopy(hastened)
    with torch.no_grad():
        other.weight.zero_()
        other.bias.zero_()
    x = torch.randn(64, 300)
    assert not other(x).any()
    assert hastened(x).any()


def test_a_gradient_can_be_differentiated_as_a_penalty_on_it_asks_for() -> None:
    def penalty(layer: nn.Linear, x: Tensor) -> list[Tensor]:
        x = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(layer(x).tanh().sum(), x, create_graph=True)
        return list(torch.autograd.grad(slope.norm(dim=1).sub(1).square().mean(), [layer.weight, layer.bias]))

    plain, hastened = large()
    x = torch.randn(64, 300)
    assert close(penalty(hastened, x), penalty(plain, x))


def test_frozen_weights_get_no_gradient() -> None:
    plain, hastened = large()
    for layer in (plain, hastened):
        layer.weight.requires_grad_(False)
    x = torch.randn(64, 300)
    assert close(*(list(torch.autograd.grad(layer(x).square().sum(), [layer.bias])) for layer in (hastened, plain)))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch.func.jvp uses it
def test_what_torch_transforms_is_left_to_torch() -> None:
    plain, hastened = large()
    x = torch.randn(5, 64, 300)
    assert torch.equal(torch.func.vmap(hastened)(x), torch.func.vmap(plain)(x))
    found, expected = (torch.func.jvp(layer, (x[0],), (x[1],)) for layer in (hastened, plain))
    assert all(map(torch.equal, found, expected))
    with torch.autocast("cpu", torch.bfloat16):
        assert hastened(x[0]).dtype == torch.bfloat16


@pytest.mark.parametrize("labels", [True, False])
def test_a_chain_has_the_bits_of_autograd_with_large_layers_too(labels: bool) -> None:
    module = nn.Sequential(nn.Linear(300, 200), nn.ReLU(), nn.Linear(200, 150), nn.Tanh(), nn.Linear(150, 7))
    chain = MlpGradient.of(module, out := [torch.empty_like(parameter) for parameter in module.parameters()])
    assert chain is not None
    assert [multiplying is onednn._onednn for multiplying in chain._buffers_for(64)[2]] == [True, True, False]
    inputs, targets = torch.randn(64, 300), torch.randint(0, 7, (64,)) if labels else torch.randn(64, 7)
    loss = chain.differentiate(inputs, targets)
    onednn.use_onednn_linear(module)
    expected = (Classification().loss if labels else nn.functional.mse_loss)(module(inputs), targets)
    assert torch.equal(loss, expected)
    assert all(map(torch.equal, out, torch.autograd.grad(expected, list(module.parameters()))))
