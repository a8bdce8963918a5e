"""Plain stacks of layers in C code: autograd's numbers and the optimizers' steps up to rounding; all other networks are left to autograd."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.lab import Trial, blobs, mlp
from torch import nn
from torch.nn.utils import prune

from partrain.optim import AnyOptimizer, Sgd
from partrain.optim.local import LocalOptimizer
from partrain.optim.sections import Adam, AdamW, RmsProp
from partrain.rules.average import Average
from partrain.rules.bsp import Bsp
from partrain.system import compiler
from partrain.system.compiler import CannotCompile
from partrain.tasks.task import Classification, Regression
from partrain.training.batches import Samples
from partrain.training.compiled_mlp import CompiledMlp
from partrain.training.replica import Replica, row_layout
from partrain.training.section import Engine
from partrain.training.worker import LocalWorker

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

ACTIVATIONS: list[Callable[[], nn.Module]] = [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity]
AUTOGRAD = Engine(compiled=False)


def compiled(module: nn.Module, optimizer: AnyOptimizer | None = None) -> tuple[CompiledMlp | None, Replica]:
    """The compiled training of a network, and its replica."""
    optimizer = optimizer or Sgd(lr=0.1)
    layout = row_layout(module, optimizer)
    replica = Replica(module, layout, torch.zeros(layout.numbers, dtype=layout.params.dtype), optimizer)
    return CompiledMlp.of(module, replica.gradient_views, replica.optimizer), replica


@pytest.mark.representative
@settings(max_examples=80)
@given(st.data(), st.sampled_from([torch.float32, torch.float64]), st.booleans(), st.booleans())
def test_loss_and_gradient_are_those_of_autograd(data: st.DataObject, dtype: torch.dtype, labels: bool, image: bool) -> None:
    widths = data.draw(st.lists(st.integers(1, 40), min_size=2, max_size=5))
    torch.manual_seed(data.draw(st.integers(0, 2**31)))
    layers: list[nn.Module] = [nn.Flatten()] if image else []
    for number, (before, after) in enumerate(pairwise(widths), start=2):
        layers.append(nn.Linear(before, after, dtype=dtype))
        if number < len(widths) or data.draw(st.booleans()):
            layers.append(data.draw(st.sampled_from(ACTIVATIONS))())
    module = nn.Sequential(*layers)
    ours, replica = compiled(module)
    assert ours
    scale = data.draw(st.sampled_from([0.01, 1.0, 100.0]))
    for count in data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=3)):
        inputs = scale * torch.randn(count, *([1, widths[0]] if image else [widths[0]]), dtype=dtype)
        targets = torch.randint(0, widths[-1], (count,)) if labels else torch.randn(count, widths[-1], dtype=dtype)
        loss = (Classification if labels else Regression)().loss(module(inputs), targets)
        expected = torch.autograd.grad(loss, list(module.parameters()))
        assert ours.differentiate(inputs, targets) == pytest.approx(loss.item(), rel=2e-5, abs=1e-6)
        for own, other in zip(replica.gradient_views, expected, strict=True):
            torch.testing.assert_close(own, other, rtol=1e-4, atol=2e-6 * (1 + float(other.abs().max())))


STEPS: list[AnyOptimizer] = [
    Sgd(lr=0.1),
    Sgd(lr=0.1, momentum=0.9, weight_decay=0.01),
    Sgd(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1, decay="matrices"),
    Adam(name="adam", lr=0.01, weight_decay=0.1),
    AdamW(name="adamw", lr=0.01, weight_decay=0.1, betas=[0.4, 0.9], eps=1e-4),
    Sgd(lr=0.1, momentum=0.5, groups=[{"match": ["0.*"], "lr": 0.01, "weight_decay": 0.2}]),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("optimizer", STEPS, ids=lambda optimizer: repr(optimizer)[:40])
def test_steps_are_those_of_torch(optimizer: AnyOptimizer, dtype: torch.dtype) -> None:
    def network() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).to(dtype)

    module, other = network(), network()
    ours, replica = compiled(module, optimizer)
    assert ours
    assert ours.step
    layout = row_layout(other, optimizer)
    theirs = Replica(other, layout, torch.zeros(layout.numbers, dtype=dtype), optimizer)
    sizes, rates = [4, 4, 3] * 10, [optimizer.lr * (1 - number / 40) for number in range(30)]
    inputs, labels = torch.randn(110, 5, dtype=dtype), torch.randint(3, (110,))
    losses = ours.train(inputs, labels, sizes, rates)
    for batch, wanted, rate, loss in zip(torch.split(inputs, sizes), torch.split(labels, sizes), rates, losses, strict=True):
        expected = nn.functional.cross_entropy(other(batch), wanted)
        assert loss == pytest.approx(expected.item(), rel=1e-4)
        theirs.optimizer.step(torch.autograd.grad(expected, list(other.parameters())), rate)
    torch.testing.assert_close(replica.params, theirs.params, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(replica.optimizer.moments, theirs.optimizer.moments, rtol=1e-4, atol=1e-5)
    assert torch.equal(replica.optimizer.counts, theirs.optimizer.counts)


@pytest.mark.parametrize(
    "optimizer",
    [Sgd(lr=0.1, momentum=0.9, dampening=0.5), Sgd(lr=0.1, clip_norm=1.0), Adam(name="adam", lr=0.1, amsgrad=True),
     RmsProp(name="rmsprop", lr=0.1)],
    ids=["dampening", "clipped", "amsgrad", "rmsprop"],
)  # fmt: skip
def test_other_steps_are_left_to_torch(optimizer: AnyOptimizer) -> None:
    ours, _ = compiled(mlp(), optimizer)
    assert ours
    assert not ours.step


@pytest.mark.parametrize("activation", [nn.Tanh, nn.Sigmoid])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_activations_at_the_ends_of_their_range(activation: Callable[[], nn.Module], dtype: torch.dtype) -> None:
    """One layer that copies its input: the loss shows the activation's value, its gradient the derivative."""
    module = nn.Sequential(nn.Linear(1, 1, dtype=dtype), activation())
    ours, replica = compiled(module)
    assert ours
    with torch.no_grad():
        module[0].weight.fill_(1)
        module[0].bias.zero_()
    for x in (-1e30, -200.0, -88.5, -20.0, -0.7, -0.62, -1e-3, -1e-8, 0.0, 1e-8, 0.1, 0.62, 0.63, 9.0, 88.5, 1e30):
        batch = torch.tensor([[x]], dtype=dtype)
        loss = (module(batch) - 2).square().mean()
        (expected,) = torch.autograd.grad(loss, [module[0].bias])
        exact = {"rel": 1e-6, "abs": 1e-6} if dtype == torch.float32 else {"rel": 1e-13, "abs": 1e-13}
        assert ours.differentiate(batch, torch.full((1, 1), 2.0, dtype=dtype)) == pytest.approx(loss.item(), **exact)
        assert replica.gradient_views[1].item() == pytest.approx(expected.item(), **exact)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("number", [math.nan, math.inf])
@pytest.mark.parametrize("labels", [True, False])
def test_numbers_that_are_not_finite_reach_the_loss(activation: Callable[[], nn.Module], number: float, labels: bool) -> None:
    module = nn.Sequential(nn.Linear(3, 4), activation(), nn.Linear(4, 2))
    ours, _ = compiled(module)
    assert ours
    inputs = torch.zeros(5, 3)
    inputs[2, 1] = number
    targets = torch.zeros(5, dtype=torch.int64) if labels else torch.zeros(5, 2)
    expected = (Classification if labels else Regression)().loss(module(inputs), targets).item()
    loss = ours.differentiate(inputs, targets)
    assert math.isfinite(loss) == math.isfinite(expected)
    assert math.isnan(number) <= math.isnan(loss)


def test_a_label_that_is_no_class_is_an_error() -> None:
    ours, _ = compiled(nn.Sequential(nn.Linear(4, 2)))
    assert ours
    with pytest.raises(IndexError, match=r"Target 2 is out of bounds"):
        ours.train(torch.zeros(6, 4), torch.tensor([0, 1, 1, 0, 2, 7]), [2, 2, 2], [0.1] * 3)


def test_without_a_compiler_networks_train_by_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -x")
    compiler.library.cache_clear()
    worker = Trial(network=mlp).worker()
    assert not worker._engine.compiled
    assert worker.uncompiled == "there is no C compiler `no-such-compiler -x`; install gcc"
    compiler.library.cache_clear()


def test_what_a_compiler_says_is_told(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wrong.c").write_text("int main( {")
    with pytest.raises(CannotCompile, match=r"wrong\.c.*(error|expected)"):
        compiler.library(tmp_path / "wrong.c", ())


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "one.c").write_text("int one(void) { return 1; }")
    monkeypatch.setenv("PARTRAIN_CACHE", str(tmp_path / "file"))
    assert compiler.library(tmp_path / "one.c", ()).one() == 1


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


def pruned() -> nn.Module:
    """Its bias comes before its weight."""
    module = nn.Sequential(nn.Linear(4, 4))
    prune.random_unstructured(module[0], "weight", 0.5)
    prune.remove(module[0], "weight")
    return module


def refitted(weight: tuple[int, ...], bias: tuple[int, ...]) -> nn.Module:
    """A layer with tensors of other shapes, which torch multiplies without a look at `out_features`."""
    module = nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 3))
    module[0].weight, module[0].bias = nn.Parameter(torch.randn(weight)), nn.Parameter(torch.randn(bias))
    return module


def empty() -> nn.Module:
    with pytest.warns(UserWarning, match="zero-element"):
        return nn.Sequential(nn.Linear(0, 3))


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
    "a forward of one's own": rewritten,
    "a bias before its weight": pruned,
    "a bias of one number": lambda: refitted((9, 4), (1,)),
    "a smaller weight": lambda: refitted((5, 4), (5,)),
    "layers that do not fit": lambda: nn.Sequential(nn.Linear(4, 5), nn.Linear(6, 2)),
    "no inputs": empty,
    "a parametrised weight": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))),
}


@pytest.mark.parametrize("make", UNKNOWN.values(), ids=UNKNOWN)
def test_what_it_does_not_know_is_left_to_autograd(make: Callable[[], nn.Module]) -> None:
    module = make()
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    gradients = [torch.zeros_like(parameter) for parameter in trained]
    layout = row_layout(module, Sgd(lr=0.1))
    views = layout.params.views(torch.zeros(layout.params.size))
    optimizer = LocalOptimizer(Sgd(lr=0.1), torch.zeros(layout.params.size), torch.zeros(0, layout.params.size), layout.params)
    assert len(views) == len(gradients)
    assert CompiledMlp.of(module, gradients, optimizer) is None


def test_a_hook_on_all_networks_is_seen() -> None:
    hook = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert compiled(mlp())[0] is None
    finally:
        hook.remove()
    assert compiled(mlp())[0]


def test_targets_of_another_shape_are_refused() -> None:
    chain, _ = compiled(nn.Sequential(nn.Linear(4, 2)))
    assert chain is not None
    with pytest.raises(ValueError, match=r"answers \(3, 2\) to targets \(3, 1\)"):
        chain.differentiate(torch.zeros(3, 4), torch.zeros(3, 1))


@pytest.mark.parametrize("rule", [Average(iterations=3), Bsp(rule="bsp", iterations=3)], ids=["average", "bsp"])
@pytest.mark.parametrize(
    "optimizer",
    [
        Sgd(lr=0.1, momentum=0.9, batch_size=4),
        Adam(name="adam", lr=0.01, batch_size=4),
        RmsProp(name="rmsprop", lr=0.01, batch_size=4),
    ],
    ids=["sgd", "adam", "rmsprop"],
)
def test_training_has_the_numbers_of_training_without_it(rule: Average | Bsp, optimizer: AnyOptimizer) -> None:
    trial = replace(Trial(rule, optimizer, mlp), held_out=blobs(20))
    with_it, _ = trial.run(4)
    assert all(one.worker._engine.compiled for one in with_it)
    without, _ = replace(trial, engine=AUTOGRAD).run(4)
    assert not any(one.worker._engine.compiled for one in without)
    torch.testing.assert_close(torch.tensor(with_it[0].courses), torch.tensor(without[0].courses), rtol=1e-4, atol=1e-5)
    for own, other in zip(with_it[0].records, without[0].records, strict=True):
        assert [own[key] for key in ("items", "iterations", "lr")] == [other[key] for key in ("items", "iterations", "lr")]
        assert own["loss"] == pytest.approx(other["loss"], rel=1e-4)


def test_a_whole_partitions_gradient_has_autograds_bits() -> None:
    def gradient(engine: Engine) -> torch.Tensor:
        worker: LocalWorker = Trial(network=mlp, engine=engine).worker()
        worker.begin(1, 0)
        return worker.gradient(full=True).clone()

    own = gradient(Engine())
    assert torch.equal(own, gradient(AUTOGRAD))
    assert own.any()


def test_items_that_nobody_flattens_are_refused_as_the_network_would() -> None:
    chain, _ = compiled(nn.Sequential(nn.Linear(4, 2)))
    assert chain is not None
    with pytest.raises(ValueError, match=r"no Flatten for items \(2, 2\)"):
        chain.differentiate(torch.zeros(3, 2, 2), torch.zeros(3, dtype=torch.int64))


@pytest.mark.parametrize("most", [1 << 16, 9])
@pytest.mark.parametrize("kind", ["bytes", "numbers"])
def test_items_come_in_the_order_of_the_batches(kind: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """C code gathers them where all iterations are its own; a rule may ask for gradients between."""
    monkeypatch.setattr("partrain.training.gradient.MOST_ITEMS", most)
    items = blobs()
    if kind == "bytes":
        items = Samples((items.inputs * 20 + 128).clamp(0, 255).to(torch.uint8), items.targets, 1 / 255)
    trial = Trial(Average(iterations=7), Sgd(lr=0.1, momentum=0.9, batch_size=4), mlp, items=items, partitions=[range(22)])
    losses, positions = [], []
    for engine in (Engine(), AUTOGRAD):
        worker: LocalWorker = replace(trial, engine=engine).worker()
        assert bool(worker._feed._most_numbered) == worker.compiled == engine.compiled
        for number in (1, 2):
            worker.begin(number, 28 * (number - 1))
            worker.train(2)
            worker.apply(worker.gradient())
            worker.train(3)
            worker.train(1)
            losses.append(worker.loss())
            positions.append(worker.batches.position)
            worker.close_round()
        losses.append(float(worker.params.sum()))
    assert losses[:3] == pytest.approx(losses[3:], rel=1e-5)
    assert positions[:2] == positions[2:] == [28, 56]


def test_items_of_another_kind_are_gathered_by_torch() -> None:
    """Inputs that a factor scales, and targets that are the inputs."""
    scaled = Samples(torch.randn(48, 5), blobs().targets, 0.5)
    both = []
    for engine in (Engine(), AUTOGRAD):
        worker: LocalWorker = Trial(network=mlp, items=scaled, engine=engine).worker()
        assert worker.compiled == engine.compiled
        assert not worker._feed._most_numbered
        worker.begin(1, 0)
        worker.train()
        both.append(worker.loss())
    assert both[0] == pytest.approx(both[1], rel=1e-5)
