"""Recurrent layers in C code: torch's numbers up to rounding; whatever the code does not know is left to torch."""

from __future__ import annotations

import shutil
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.lab import Trial
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from partrain.optim import Sgd
from partrain.rules.average import Average
from partrain.system import compiler
from partrain.tasks.task import Regression
from partrain.training.batches import Samples
from partrain.training.compiled_recurrent import compile_recurrent
from partrain.training.section import Engine

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

KINDS: dict[str, tuple[type[nn.RNNBase], dict[str, Any]]] = {
    "tanh": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
    "lstm": (nn.LSTM, {}),
    "gru": (nn.GRU, {}),
}
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


def pair(kind: str, *sizes: int, **settings: Any) -> tuple[nn.RNNBase, nn.RNNBase]:
    """Equal layers: torch's, and compiled ones."""
    of, own = KINDS[kind]
    layers = of(*sizes, **own, **settings)
    compiled = deepcopy(layers)
    assert compile_recurrent(compiled)
    return layers, compiled


def tensors(answer: Any) -> list[Tensor]:
    """All floating tensors of an answer: states, last states, cells."""
    if isinstance(answer, Tensor):
        return [answer] if answer.is_floating_point() else []
    return [tensor for part in answer if part is not None for tensor in tensors(part)]


def numbers(layers: nn.RNNBase, items: Tensor, lengths: Tensor | None) -> list[Tensor]:
    """States, last states, cells, and the gradients of items and parameters for a loss that takes all of them."""
    items = items.detach().requires_grad_()
    given = (
        items if lengths is None else pack_padded_sequence(items, lengths, batch_first=layers.batch_first, enforce_sorted=False)
    )
    got = tensors(layers(given))
    draw = torch.Generator().manual_seed(0)
    loss = torch.stack([(some * torch.randn(some.shape, generator=draw)).sum() for some in got]).sum()
    return [*got, *torch.autograd.grad(loss, [items, *layers.parameters()])]


@pytest.mark.representative
@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(sorted(KINDS)), st.sampled_from([torch.float32, torch.float64]))
def test_states_and_gradients_are_those_of_torch(data: st.DataObject, kind: str, dtype: torch.dtype) -> None:
    torch.manual_seed(data.draw(st.integers(0, 2**31)))
    width, hidden, count, length = (data.draw(st.integers(1, most)) for most in (9, 40, 7, 12))
    settings = {name: data.draw(st.booleans()) for name in ("bidirectional", "batch_first")}
    ours = pair(kind, width, hidden, num_layers=data.draw(st.integers(1, 3)), dtype=dtype, **settings)
    items = torch.randn(*((count, length) if settings["batch_first"] else (length, count)), width, dtype=dtype)
    lengths = torch.randint(1, length + 1, (count,)) if data.draw(st.booleans()) else None
    wanted, got = (numbers(layers, items, lengths) for layers in ours)
    for one, other in zip(wanted, got, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(other, one, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * float(one.detach().abs().max()))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_dropout_falls_between_layers_in_training_only(kind: str) -> None:
    layers, compiled = pair(kind, 5, 8, num_layers=2, dropout=0.5)
    items, answers = torch.randn(6, 3, 5), []
    for network in (layers, compiled):
        torch.manual_seed(0)
        answers.append(network(items)[0])
    torch.testing.assert_close(*answers)
    assert not torch.equal(compiled(items)[0], answers[1])
    assert torch.equal(layers.eval()(items)[0], compiled.eval()(items)[0])


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_frozen_weights_and_numbers_that_are_not_finite(kind: str) -> None:
    layers, compiled = pair(kind, 3, 4)
    items = torch.randn(5, 2, 3)
    items[2, 0, 0] = torch.nan
    answers = [network(items)[0] for network in (layers, compiled)]
    assert torch.equal(answers[0].isnan(), answers[1].isnan())
    for network in (layers, compiled):
        network.weight_hh_l0.requires_grad_(requires_grad=False)
        network(items[:2])[0].sum().backward()
    assert compiled.weight_hh_l0.grad is None
    torch.testing.assert_close(compiled.weight_ih_l0.grad, layers.weight_ih_l0.grad)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_gradients_can_be_differentiated(kind: str, bidirectional: bool) -> None:
    """The penalty of a gradient, of layers that are their own input, over sequences of unequal length."""
    layers, compiled = (
        part.double() for part in pair(kind, 6, 3 if bidirectional else 6, bidirectional=bidirectional, num_layers=2)
    )
    items = torch.randn(5, 3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    gradients = []
    for part in (layers, compiled):
        start = items.clone().requires_grad_()
        part.bias_ih_l0.requires_grad_(False)
        states, last = part(part(pack_padded_sequence(start, torch.tensor([2, 5, 3]), enforce_sorted=False))[0])
        loss = states.data.square().sum() + (last[1] if kind == "lstm" else last).sum()
        (slope,) = torch.autograd.grad(loss, start, create_graph=True)
        weights = [weight for weight in part.parameters() if weight.requires_grad]
        gradients.append(torch.autograd.grad(slope.square().sum(), [start, *weights]))
    for torchs, own in zip(*gradients, strict=True):
        torch.testing.assert_close(own, torchs, rtol=1e-10, atol=1e-12)


def test_weights_may_lie_in_another_order() -> None:
    layers, compiled = pair("gru", 3, 4)
    for network in (layers, compiled):
        network.weight_ih_l0 = nn.Parameter(network.weight_ih_l0.detach().t().contiguous().t())
    items = torch.randn(5, 2, 3)
    for ours, torchs in zip(numbers(compiled, items, None), numbers(layers, items, None), strict=True):
        torch.testing.assert_close(ours, torchs)


def test_what_it_does_not_know_is_left_to_torch() -> None:
    class Own(nn.LSTM):
        """May do anything."""

    for layers in (
        Own(3, 4),
        nn.LSTM(3, 4, proj_size=2),
        nn.LSTM(3, 4, bias=False),
        nn.LSTM(3, 4, dtype=torch.bfloat16),
        nn.LSTMCell(3, 4),
    ):
        assert not compile_recurrent(layers)
    layers, compiled = pair("gru", 3, 4)
    items, start = torch.randn(5, 2, 3), torch.randn(1, 2, 4)
    assert torch.equal(layers(items, start)[0], compiled(items, start)[0])
    assert torch.equal(layers(items[:, 0])[0], compiled(items[:, 0])[0])
    with torch.no_grad():
        assert torch.equal(layers(items)[0], compiled(items)[0])
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layers(items)[0], compiled(items)[0])
    with pytest.raises(RuntimeError, match=r"input.size"):
        compiled(torch.randn(5, 2, 7))
    for sizes in ([2, 1, 2], [1, 2, 1]):
        with pytest.raises(RuntimeError):
            compiled(PackedSequence(items[:2].view(4, 3), torch.tensor(sizes)))
    own = [torch.func.grad(lambda items, part=part: part(items)[0].square().sum())(items) for part in (layers, compiled)]
    assert torch.equal(*own)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_weights_of_another_shape_are_left_to_torch(kind: str) -> None:
    """torch stretches a bias of one number, and multiplies by any matrix."""
    of, own = KINDS[kind]
    for name in "bias_ih_l0", "bias_hh_l1_reverse":
        layers = of(3, 4, num_layers=2, bidirectional=True, **own)
        assert compile_recurrent(deepcopy(layers))
        setattr(layers, name, nn.Parameter(torch.zeros(1)))
        assert not compile_recurrent(layers)


@pytest.mark.parametrize("kind", ["gru", "tanh"])
def test_states_may_be_changed_in_place(kind: str) -> None:
    gradients = []
    for part in pair(kind, 3, 4):
        states, _ = part(input=torch.linspace(-1, 1, 30).view(5, 2, 3))
        states.data[0] = 7.0
        states[:, :, 2:] = 0.0
        gradients.append(torch.autograd.grad(states.square().sum(), list(part.parameters())))
    for torchs, own in zip(*gradients, strict=True):
        torch.testing.assert_close(own, torchs)


class Stopped(torch.autograd.Function):
    """Gradients do not pass."""

    @staticmethod
    def forward(ctx: Any, states: Tensor) -> Tensor:
        return states.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> None:
        return None


def test_a_gradient_that_does_not_arrive() -> None:
    _, compiled = pair("gru", 3, 4)
    weights = list(compiled.parameters())
    loss = Stopped.apply(compiled(torch.randn(5, 2, 3))[0]).sum() + sum(weight.sum() for weight in weights)
    for gradient in torch.autograd.grad(loss, weights, create_graph=True):
        assert gradient.eq(1).all()


def sequences() -> Samples:
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(24, 6, 3, generator=draw)
    return Samples(inputs, inputs.sum(1), 1.0)


class LastState(nn.Module):
    """A network of a user."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.answer = nn.GRU(3, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, items: Tensor) -> Tensor:
        answers: Tensor = self.answer(self.layers(items)[0][:, -1])
        return answers


TRIAL = Trial(Average(iterations=3), Sgd(lr=0.05, batch_size=4), LastState, sequences(), (range(12), range(12, 24)))


def test_a_training_is_that_of_torch_and_goes_on_from_a_snapshot() -> None:
    ours, _ = TRIAL.run(4)
    torchs, _ = replace(TRIAL, engine=Engine(compiled=False)).run(4)
    assert [member.worker.compiled for member in (ours[0], torchs[0])] == [True, False]
    torch.testing.assert_close(ours[0].params, torchs[0].params, rtol=1e-5, atol=1e-6)
    assert not torch.equal(ours[0].params, torchs[0].params)
    _, half = TRIAL.run(2)
    again, _ = TRIAL.run(4, half)
    assert torch.equal(ours[0].params, again[0].params)


class OwnTask(Regression):
    """May do anything."""


def test_torch_computes_in_bfloat16_and_for_tasks_of_users() -> None:
    assert not replace(TRIAL, engine=Engine(precision="bfloat16")).worker().compiled
    assert not replace(TRIAL, task=OwnTask()).worker().compiled


def test_without_a_compiler_torch_computes_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -x")
    compiler.library.cache_clear()
    worker = TRIAL.worker()
    assert (worker.compiled, worker.uncompiled) == (False, "there is no C compiler `no-such-compiler -x`; install gcc")
    compiler.library.cache_clear()
