"""The network `tabular` in C code: autograd's numbers up to rounding, and its random draws to the bit; all other networks are left to autograd."""

from __future__ import annotations

import shutil
from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.networks import CASES, Case
from torch import Tensor, nn

from partrain.models import Interface
from partrain.models.tabular import TabularModule
from partrain.optim import AnyOptimizer, Sgd
from partrain.optim.sections import AdamW, RmsProp
from partrain.tasks.task import Classification, Regression, Task
from partrain.training.compiled_tabular import TILE_ROWS, CompiledTabular
from partrain.training.feed import Piece
from partrain.training.gradient import TabularEngine, engine_for
from partrain.training.replica import Replica, row_layout
from partrain.training.section import Engine

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

OPTIMIZER = AdamW(name="adamw", lr=0.01)


def replica_of(module: nn.Module, optimizer: AnyOptimizer = OPTIMIZER) -> Replica:
    layout = row_layout(module, optimizer)
    return Replica(module, layout, torch.zeros(layout.numbers, dtype=layout.params.dtype), optimizer)


def compiled(module: nn.Module) -> tuple[CompiledTabular | None, Replica]:
    """The compiled training of a network, and its replica."""
    replica = replica_of(module)
    return CompiledTabular.of(module, replica.gradient_views, replica.optimizer), replica


def rows(categories: tuple[int, ...], count: int, dtype: torch.dtype) -> Tensor:
    columns = [torch.randint(most, (count,)).to(dtype) if most else torch.randn(count, dtype=dtype) for most in categories]
    return torch.stack(columns, 1)


@pytest.mark.representative
@settings(max_examples=60)
@given(st.data())
def test_answers_gradient_and_draws_are_those_of_autograd(data: st.DataObject) -> None:
    categories = tuple(data.draw(st.lists(st.sampled_from([0, 0, 2, 9, 200]), min_size=1, max_size=6)))
    periodic = data.draw(st.sampled_from([0, 1, 8])) if 0 in categories else 0
    keys: dict[str, Any] = {"frequencies": data.draw(st.integers(1, 9))} if periodic else {}
    keys |= {
        "name": "tabular",
        "periodic": periodic,
        "width": data.draw(st.integers(2, 40)),
        "hidden": data.draw(st.integers(1, 40)),
    }
    keys |= {"blocks": data.draw(st.integers(0, 3)), "members": data.draw(st.integers(1, 4)), "linear": data.draw(st.booleans())}
    keys["dropout"] = data.draw(st.sampled_from([0.0, 0.3, 0.9]))
    torch.manual_seed(data.draw(st.integers(0, 2**31)))
    outputs = data.draw(st.integers(1, 3))
    interface = Interface((len(categories),), outputs, "regression", categories=categories if any(categories) else ())
    module = Case(interface, keys).build().double()
    assert isinstance(module, TabularModule)
    if module.straight is not None:
        nn.init.normal_(module.straight.weight)
    items = rows(categories, data.draw(st.sampled_from([1, 5, TILE_ROWS, 2 * TILE_ROWS + 3])), torch.float64)
    reference = deepcopy(module)
    network, replica = compiled(module)
    assert network
    replica.grads.fill_(7.0)  # of an earlier batch
    torch.manual_seed(1)
    wanted = reference(items)
    drawn = torch.get_rng_state()
    torch.manual_seed(1)
    answers = network(items)
    assert torch.equal(torch.get_rng_state(), drawn)
    torch.testing.assert_close(answers, wanted.detach(), rtol=1e-9, atol=1e-10)
    delta = torch.randn_like(answers)
    network.backward(delta)
    gradients = torch.autograd.grad(wanted, list(reference.parameters()), delta)
    for (name, _), own, gradient in zip(module.named_parameters(), replica.gradient_views, gradients, strict=True):
        torch.testing.assert_close(
            own, gradient, rtol=1e-8, atol=1e-9 * float(gradient.abs().max() + 1), msg=lambda text, name=name: f"{name}: {text}"
        )


def test_periodic_features_in_single_precision() -> None:
    """Far numbers turn many times: the rest of a turn is exact."""
    module = Case(Interface((1,), 1, "regression"), {"name": "tabular", "blocks": 0}).build()
    reference = deepcopy(module).double()
    network, _ = compiled(module)
    assert network
    items = torch.linspace(-300, 300, 257).unsqueeze(1)
    frequencies = module.periodic.frequencies  # type: ignore[union-attr]
    with torch.no_grad():
        frequencies.copy_((frequencies * 64).round() / 64)  # products with the items are exact
        items = (items * 64).round() / 64
        reference.periodic.frequencies.copy_(frequencies)  # type: ignore[union-attr, operator]
    torch.testing.assert_close(network(items).double(), reference(items.double()).detach(), rtol=1e-4, atol=1e-4)


WEIGHTED = Classification()
WEIGHTED.weights = torch.tensor([0.2, 1.0, 3.0], dtype=torch.float64)
TASKS: dict[str, Task] = {"classes": Classification(), "weighted classes": WEIGHTED, "numbers": Regression()}


@pytest.mark.parametrize(
    "optimizer",
    [OPTIMIZER, Sgd(lr=0.1, momentum=0.9), RmsProp(name="rmsprop", lr=0.001), AdamW(name="adamw", lr=0.01, clip_norm=0.1)],
    ids=["adamw", "sgd", "rmsprop", "clipped"],
)
@pytest.mark.parametrize("name", TASKS)
def test_training_has_the_numbers_of_training_without_it(name: str, optimizer: AnyOptimizer) -> None:
    """Batches of two sizes, twelve steps, with dropout: losses and parameters."""
    task = TASKS[name]
    interface = Interface((4,), 3, "regression", categories=(0, 7, 0, 3))
    module = Case(interface, {"name": "tabular", "width": 12, "hidden": 20, "members": 2, "dropout": 0.2}).build()
    items, sizes = rows((0, 7, 0, 3), 92, torch.float32), [16, 16, 16, 16, 16, 12]
    targets = torch.randn(92, 3) if name == "numbers" else torch.randint(3, (92,))
    outcomes = []
    for engine in Engine(), Engine(compiled=False):
        replica = replica_of(deepcopy(module), optimizer)
        trainer, reason = engine_for(replica, task, 1, engine)
        assert (isinstance(trainer, TabularEngine), reason) == (engine.compiled, "")
        torch.manual_seed(3)
        losses = [
            loss for _ in range(2) for some, _ in trainer.train(Piece(sizes, items, targets), [0.01] * 6, 0) for loss in some
        ]
        outcomes.append((torch.tensor(losses), replica.params))
    assert len(losses) == 12
    torch.testing.assert_close(*(losses for losses, _ in outcomes), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(*(params for _, params in outcomes), rtol=1e-2, atol=1e-3)


def test_an_unknown_code_is_an_error_as_in_torch() -> None:
    network, _ = compiled(CASES["tabular"].build())
    assert network
    for code in -1.0, 5.0, float("nan"):
        with pytest.raises((IndexError, RuntimeError)):
            network(torch.tensor([[0.5, code, -1.0, 2.0]]))


def test_items_of_another_shape_are_refused_as_the_network_would() -> None:
    network, _ = compiled(CASES["tabular"].build())
    assert network
    with pytest.raises(IndexError):
        network(torch.zeros(3, 2))


def test_numbers_that_are_not_finite_reach_the_loss() -> None:
    network, _ = compiled(CASES["tabular"].build(dropout=0))
    assert network
    assert network(torch.tensor([[float("nan"), 1, -1, 2]])).isnan().any()


class Other(TabularModule):
    """A subclass may do anything."""


def _subclass(module: nn.Module) -> None:
    module.__class__ = Other


def _hook(module: nn.Module) -> None:
    module.leave.register_forward_hook(lambda *_: None)  # type: ignore[union-attr]


def _freeze(module: nn.Module) -> None:
    next(module.parameters()).requires_grad_(False)


def _tie(module: nn.Module) -> None:
    module.blocks[1].layers[1].weight = module.blocks[0].layers[1].weight  # type: ignore[index, union-attr]


def _replace_a_layer(module: nn.Module) -> None:
    module.blocks[0].layers[2] = nn.GELU()  # type: ignore[index, operator, union-attr]


def _change_a_constant(module: nn.Module) -> None:
    module.leave[0].eps = 0.1  # type: ignore[index, union-attr]


def _change_a_shape(module: nn.Module) -> None:
    module.enter.bias = nn.Parameter(torch.ones(1))  # type: ignore[union-attr]


@pytest.mark.parametrize("change", [_subclass, _hook, _freeze, _tie, _replace_a_layer, _change_a_constant, _change_a_shape])
def test_what_it_does_not_know_is_left_to_autograd(change: Any) -> None:
    module = Case(Interface((3,), 1, "regression"), {"name": "tabular", "width": 6, "hidden": 6}).build()
    assert compiled(module)[0]
    module = Case(Interface((3,), 1, "regression"), {"name": "tabular", "width": 6, "hidden": 6}).build()
    change(module)
    assert compiled(module)[0] is None


class Own(Regression):
    """A user task: its backward pass may be its own."""


@pytest.mark.parametrize(
    ("task", "parts", "engine"),
    [(Own(), 1, Engine()), (Regression(), 2, Engine()), (Regression(), 1, Engine(precision="bfloat16"))],
    ids=["user task", "parts", "bfloat16"],
)
def test_jobs_that_autograd_trains(task: Task, parts: int, engine: Engine) -> None:
    trainer, _ = engine_for(replica_of(CASES["tabular, numbers"].build()), task, parts, engine)
    assert not isinstance(trainer, TabularEngine)


def test_dropout_drops_its_share_and_keeps_the_mean() -> None:
    module = CASES["tabular"].build(dropout=0.25)
    (dropout, later) = (part for part in module.modules() if hasattr(part, "limit"))
    torch.manual_seed(0)
    kept = dropout(torch.ones(400, 3, 500))
    assert torch.equal(kept[:, 0], kept[:, 2])  # members alike
    assert 0.24 < float((kept == 0).float().mean()) < 0.26
    assert float(kept.mean()) == pytest.approx(1, abs=0.01)
    assert float((later(torch.ones(400, 500)) == 0).float().mean()) == pytest.approx(0.125, abs=0.005)
    assert torch.equal(dropout.eval()(torch.ones(2, 2)), torch.ones(2, 2))
