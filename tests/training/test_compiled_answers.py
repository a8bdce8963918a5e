"""Answers in C code: torch's up to rounding, whatever number of items is answered at a time; all other networks answer by torch."""

from __future__ import annotations

import shutil
import sys
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.networks import Case
from torch import Tensor, nn

from partrain.errors import UserCodeFailed
from partrain.models import Interface
from partrain.models.tabular import TabularModule
from partrain.tasks.judged import JudgedMetrics
from partrain.tasks.task import Classification, Task
from partrain.training.batches import Samples
from partrain.training.compiled_mlp import ANSWERED_AT_A_TIME, MlpAnswers
from partrain.training.compiled_tabular import TILE_ROWS, TabularAnswers
from partrain.training.evaluate import Evaluator, answers_of

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

COUNTS = st.sampled_from([1, 5, 300, 2 * ANSWERED_AT_A_TIME + 3])


def tabular(categories: tuple[int, ...], outputs: int = 2, **keys: object) -> TabularModule:
    interface = Interface((len(categories),), outputs, "regression", categories=categories if any(categories) else ())
    module = Case(interface, {"name": "tabular", "width": 16, "hidden": 24, **keys}).build()
    assert isinstance(module, TabularModule)
    if module.straight is not None:
        nn.init.normal_(module.straight.weight)
    return module


def rows(categories: tuple[int, ...], count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.stack(
        [torch.randint(most, (count,)).to(dtype) if most else torch.randn(count, dtype=dtype) for most in categories], 1
    )


def check(module: nn.Module, items: Tensor, kind: type) -> None:
    """The answers are torch's, and those to each part of the items have the same bits."""
    answer = answers_of(module.eval())
    assert isinstance(answer, kind)
    with torch.no_grad():
        answers = answer(items)
        torch.testing.assert_close(answers, module(items), rtol=1e-4, atol=1e-5)
        halves = [answer(part) for part in items.tensor_split(2) if len(part)]
    torch.testing.assert_close(torch.cat(halves), answers, rtol=1e-6, atol=1e-6)


@pytest.mark.representative
@settings(max_examples=40)
@given(st.data(), COUNTS, st.sampled_from([torch.float32, torch.float64]), st.booleans())
def test_a_stack_of_layers_answers_as_by_torch(data: st.DataObject, count: int, dtype: torch.dtype, image: bool) -> None:
    widths = data.draw(st.lists(st.integers(1, 60), min_size=2, max_size=5))
    layers: list[nn.Module] = [nn.Flatten()] if image else []
    for before, after in pairwise(widths):
        layers += [
            nn.Linear(before, after, dtype=dtype),
            data.draw(st.sampled_from([nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity]))(),
        ]
    check(nn.Sequential(*layers), torch.randn(count, *([1, widths[0]] if image else [widths[0]]), dtype=dtype), MlpAnswers)


@pytest.mark.representative
@settings(max_examples=30)
@given(
    st.lists(st.sampled_from([0, 0, 3, 90]), min_size=1, max_size=5),
    st.sampled_from([1, 5, TILE_ROWS, 2 * TILE_ROWS + 3]),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_the_network_tabular_answers_as_by_torch(
    columns: list[int], count: int, members: int, linear: bool, dtype: torch.dtype
) -> None:
    categories = tuple(columns)
    module = tabular(categories, members=members, linear=linear, dropout=0.5).to(dtype)
    check(module, rows(categories, count, dtype), TabularAnswers)


class Own(nn.Linear):
    """A layer that answers something else."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + 1


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(Own(4, 2)),
        nn.Sequential(nn.Linear(4, 2), nn.Dropout()),
        nn.Linear(4, 2),
        nn.Sequential(nn.Linear(4, 2).bfloat16()),
        nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2).double()),
    ],
)
def test_other_networks_answer_by_torch(module: nn.Module) -> None:
    assert answers_of(module) is module


def test_a_network_with_a_hook_or_a_job_that_wants_no_c_code_answers_by_torch() -> None:
    module, other = nn.Sequential(nn.Linear(4, 2)), tabular((0, 3))
    assert answers_of(module, compiled=False) is module
    assert answers_of(other) is not other
    other.enter = Own(other.enter.in_features, other.enter.out_features)
    assert answers_of(other) is other
    changed = tabular((0, 3))
    items = torch.tensor([[0.5, 1.0]])
    assert answers_of(changed) is not changed
    changed.leave[0].eps = 1.0
    torch.testing.assert_close(answers_of(changed.eval())(items), changed(items))
    hooked = tabular((0, 3))
    hooked.enter.register_forward_hook(lambda *call: None)
    assert answers_of(hooked) is hooked


def outcome(answer: Any, items: Tensor) -> str:
    try:
        return str(answer(items))
    except Exception as error:
        return repr(error)


@pytest.mark.parametrize(
    "items", [torch.ones(3, 5), torch.ones(3, 4).double(), torch.ones(4), torch.ones(2, 2, 4), torch.ones(0, 4)]
)
@pytest.mark.parametrize("flat", [True, False])
def test_torch_answers_unusual_items_or_says_what_is_wrong(items: Tensor, flat: bool) -> None:
    for module in nn.Sequential(*[nn.Flatten()] * flat, nn.Linear(4, 2)), tabular((0, 0, 0, 3)), tabular((0, 0, 0, 3), members=2):
        with torch.no_grad():
            assert outcome(answers_of(module.eval()), items) == outcome(module, items)


def test_torch_says_what_is_wrong_with_a_code() -> None:
    module = tabular((3, 0))
    with pytest.raises(IndexError):
        answers_of(module)(torch.tensor([[1.0, 0.0], [3.0, 0.0]]))


def test_to_recognise_a_network_imports_no_compiler_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draw on the device `meta` imports torch._dynamo: a second in each worker and command."""
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)
    module = tabular((0, 3, 0), members=2)
    before = torch.get_rng_state()
    assert answers_of(module) is not module
    assert torch.equal(torch.get_rng_state(), before)


class Counting(Classification):
    """A user's task that calls the network twice."""

    def score(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
        module(torch.zeros_like(inputs))
        return super().score(module, inputs, targets)


@pytest.mark.parametrize("task", [Classification(), Counting()])
def test_an_evaluation_takes_the_present_parameters_and_metrics_get_its_answers(task: Task) -> None:
    module, inputs, labels = nn.Sequential(nn.Linear(4, 3)), torch.randn(700, 4), torch.randint(3, (700,))
    samples, seen = Samples(inputs, labels, 1.0), list[Tensor]()

    class Metrics(JudgedMetrics):
        _measure, _metrics = None, {"own": None}  # type: ignore[assignment]

        def __init__(self) -> None:
            self.observe = None

        def update(self, answers: Tensor, targets: Tensor, newest: Tensor | None = None) -> None:
            seen.append(answers)

    for _ in range(2):
        with torch.no_grad():
            module[0].weight.mul_(-2)
        seen.clear()
        loss, correct = Evaluator(module.eval(), task, Metrics()).evaluate(samples, range(700))
        answers = module(inputs).detach()
        assert loss / 700 == pytest.approx(float(nn.functional.cross_entropy(answers, labels)), rel=1e-5)
        assert correct == int((answers.argmax(1) == labels).sum())
        torch.testing.assert_close(torch.cat(seen), answers)


class Scripted(nn.Sequential):
    """A network that takes no hooks, as a ScriptModule."""

    def register_forward_hook(self, *words: Any, **options: Any) -> Any:
        raise RuntimeError("register_forward_hook is not supported on ScriptModules")


class OfParts(Classification):
    """A user's task that calls the network for its first batch only, and then a part of it."""

    def score(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
        if len(targets) == 1024:
            return super().score(module, inputs, targets)
        return super().score(module[0], inputs, targets)  # type: ignore[index]


def test_a_network_that_cannot_be_hooked_is_judged_without_metrics_and_metrics_need_its_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, samples = nn.Sequential(nn.Linear(4, 3)), Samples(torch.randn(7, 4), torch.randint(3, (7,)), 1.0)
    scripted, plain = Evaluator(Scripted(*module), Counting()), Evaluator(module, Counting())
    assert scripted.evaluate(samples, range(7)) == plain.evaluate(samples, range(7))
    metrics = JudgedMetrics.__new__(JudgedMetrics)
    vars(metrics).update(_measure=None, _metrics={"own": None}, observe=None)
    with pytest.raises(UserCodeFailed, match="`score` of OfParts does not call the network: metrics get no answers"):
        Evaluator(module, OfParts(), metrics).evaluate(samples, range(7))
    more = Samples(torch.randn(1030, 4), torch.randint(3, (1030,)), 1.0)
    monkeypatch.setattr(JudgedMetrics, "update", lambda *words: None)
    with pytest.raises(UserCodeFailed, match="does not call the network"):
        Evaluator(module, OfParts(), metrics).evaluate(more, range(1030))
