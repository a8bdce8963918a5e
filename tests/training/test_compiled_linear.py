"""Linear layers in C code: torch's numbers up to rounding in training, its bits in evaluation, and torch for whatever else they do."""

from __future__ import annotations

import io
import shutil
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from support.networks import CASES
from torch import Tensor, nn

from partrain.system.compiler import CannotCompile
from partrain.tasks import make
from partrain.training import compiled_linear
from partrain.training.compiled_linear import CompiledLinear, compile_linear

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(autouse=True)
def has_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of `product.h` wherever the processor has AVX-512; every layer gains."""
    if not compiled_linear._code().has_products():
        pytest.skip("no products for this processor")
    monkeypatch.setattr(compiled_linear, "prefers_own_products", lambda dtype: True)
    monkeypatch.setattr(compiled_linear, "LEAST_PRODUCTS", 0)


def gradients(module: nn.Module, inputs: Tensor) -> list[Tensor]:
    answers = module(inputs)
    parts = [inputs, *(parameter for parameter in module.parameters() if parameter.requires_grad)]
    return [answers, *torch.autograd.grad(answers.sin().sum(), parts)]


@pytest.mark.representative
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1,), (5,), (70,), (3, 4), (2, 3, 5), (0,)])
def test_answers_and_gradients_are_torchs(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Linear(33, 18, bias=bias))
    compiled = deepcopy(layer)
    assert compile_linear(compiled)
    inputs = torch.randn(*shape, 33, requires_grad=True)
    for own, wanted in zip(gradients(compiled, inputs), gradients(layer, inputs), strict=True):
        torch.testing.assert_close(own, wanted, rtol=1e-5, atol=1e-5)


def test_a_frozen_weight_gets_no_gradient_and_passes_on_that_of_its_input() -> None:
    layer = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))
    layer[1].weight.requires_grad_(False)
    compiled = deepcopy(layer)
    assert compile_linear(compiled)
    inputs = torch.randn(9, 6, requires_grad=True)
    own, wanted = gradients(compiled, inputs), gradients(layer, inputs)
    assert len(own) == 5
    for mine, theirs in zip(own, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_gradients_of_gradients_are_torchs() -> None:
    layer = nn.Linear(6, 4)
    compiled = deepcopy(layer)
    assert compile_linear(compiled)
    inputs = torch.randn(9, 6, requires_grad=True)

    def penalty(module: nn.Module) -> Tensor:
        (slope,) = torch.autograd.grad(module(inputs).sin().sum(), inputs, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), module.weight)[0]  # type: ignore[arg-type]

    torch.testing.assert_close(penalty(compiled), penalty(layer), rtol=1e-5, atol=1e-5)


def test_several_gradients_at_once_are_torchs() -> None:
    layer = nn.Linear(6, 4)
    compiled = deepcopy(layer)
    assert compile_linear(compiled)
    inputs, several = torch.randn(9, 6, requires_grad=True), torch.randn(3, 9, 4)
    own, wanted = (
        torch.autograd.grad(network(inputs), inputs, several, is_grads_batched=True)[0] for network in (compiled, layer)
    )
    torch.testing.assert_close(own, wanted, rtol=1e-5, atol=1e-5)


def test_a_compiled_network_is_copied_and_pickled() -> None:
    """User code copies networks in training, as teachers of others are, and saves them."""
    network = nn.Sequential(nn.Linear(6, 4), nn.ReLU(inplace=True))
    assert compile_linear(network)
    inputs = torch.randn(9, 6, requires_grad=True)
    file = io.BytesIO()
    torch.save(network, file)
    file.seek(0)
    copies = [deepcopy(network), torch.load(file, weights_only=False)]
    wanted = gradients(network, inputs)
    for copy in copies:
        for own, gradient in zip(gradients(copy, inputs), wanted, strict=True):
            assert torch.equal(own, gradient)
        with torch.no_grad():
            copy[0].weight.zero_()
    assert network[0].weight.any()


def test_a_bias_that_torch_broadcasts_is_left_to_torch() -> None:
    """C would read beyond its one number."""
    layer = nn.Linear(6, 4)
    layer.bias = nn.Parameter(torch.ones(1))
    compiled = deepcopy(layer)
    assert compile_linear(compiled)
    inputs = torch.randn(9, 6)
    assert torch.equal(compiled(inputs), layer(inputs))


def test_evaluation_has_torchs_bits() -> None:
    layer = nn.Linear(130, 40)
    compiled = deepcopy(layer)
    assert compile_linear(compiled)
    inputs = torch.randn(50, 130)
    assert torch.equal(compiled.eval()(inputs), layer(inputs))
    with torch.no_grad():
        assert torch.equal(compiled.train()(inputs), layer(inputs))


class Own(nn.Linear):
    """A subclass may do anything."""


def test_what_it_does_not_know_is_left_to_torch() -> None:
    assert not compile_linear(nn.Sequential(Own(3, 3), nn.Conv2d(1, 1, 1)))
    double = nn.Linear(3, 3).double()
    compile_linear(double)
    assert double(torch.zeros(2, 3).double()).grad_fn.name() == "AddmmBackward0"
    compiled = nn.Linear(5, 4)
    assert compile_linear(compiled)
    assert isinstance(vars(compiled)["forward"], CompiledLinear)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        compiled(torch.zeros(2, 3))
    with pytest.raises(RuntimeError, match="dtype"):
        compiled(torch.zeros(2, 5).double())
    assert compiled(torch.zeros(5)).shape == (4,)
    grads = torch.func.grad(lambda weight, x: torch.func.functional_call(compiled, {"weight": weight}, (x,)).sum())
    assert grads(compiled.weight.detach(), torch.ones(2, 5)).shape == (4, 5)
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled(torch.zeros(2, 5)).dtype == torch.bfloat16


def test_small_layers_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_linear, "LEAST_PRODUCTS", 1000)
    calls: list[int] = []
    apply = compiled_linear._LinearFunction.apply
    monkeypatch.setattr(compiled_linear._LinearFunction, "apply", lambda x, *rest: calls.append(len(x)) or apply(x, *rest))
    compiled = nn.Linear(10, 10)
    assert compile_linear(compiled)
    for rows in 9, 10:
        compiled(torch.zeros(rows, 10))
    assert calls == [10]


def test_without_a_compiler_or_on_other_processors_torch_computes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled in vain, and no one is warned: torch's layers take twice the time at most."""

    def refused(*_: object) -> None:
        raise CannotCompile("no compiler")

    monkeypatch.setattr(compiled_linear, "_code", refused)
    layer = nn.Linear(3, 3)
    assert not compile_linear(layer)
    monkeypatch.setattr(compiled_linear, "prefers_own_products", lambda dtype: False)
    monkeypatch.setattr(compiled_linear, "_code", lambda: pytest.fail("compiled in vain"))
    assert not compile_linear(layer)
    assert "forward" not in vars(layer)


@pytest.mark.parametrize("name", ["transformer", "autoencoder", "cnn"])
def test_networks_train_with_the_numbers_of_torch(name: str) -> None:
    case = next(CASES[key] for key in CASES if key.startswith(name))
    module, items = case.build().train(), case.items(8)
    compiled = deepcopy(module)
    assert compile_linear(compiled)
    inputs, targets = items.part(slice(0, 8))
    task = make(None, case.interface.task, Path())
    outcomes = []
    for network in module, compiled:
        torch.manual_seed(5)
        loss, parts = task.differentiate(network, list(network.parameters()), inputs, targets, 0)
        outcomes.append([loss, *(part for part in parts if part is not None)])
    for own, wanted in zip(*outcomes, strict=True):
        torch.testing.assert_close(own, wanted, rtol=1e-3, atol=1e-5)
