"""The local optimizer is torch's, to the bit; its learning rate follows the course of the job file."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from partrain.flat import Layout
from partrain.optim import Adam, AdamW, AnyOptimizer, Sgd
from partrain.optim.local import LocalOptimizer, moments_of

SHAPES = [(7, 5), (33,), (), (2, 3, 4)]
OPTIMIZERS: list[tuple[AnyOptimizer, Callable[..., torch.optim.Optimizer]]] = [
    (Sgd(lr=0.1), torch.optim.SGD),
    (Sgd(lr=0.1, weight_decay=0.01), torch.optim.SGD),
    (Sgd(lr=0.1, momentum=0.9), torch.optim.SGD),
    (Sgd(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01), torch.optim.SGD),
    (Adam(name="adam", lr=0.01), torch.optim.Adam),
    (Adam(name="adam", lr=0.01, betas=[0.8, 0.95], eps=1e-4, weight_decay=0.02), torch.optim.Adam),
    (AdamW(name="adamw", lr=0.01), torch.optim.AdamW),
    (AdamW(name="adamw", lr=0.01, weight_decay=0.1), torch.optim.AdamW),
]
CASES = [pytest.param(*case, id=f"{case[0].name}-{index}") for index, case in enumerate(OPTIMIZERS)]
OWN = {"momentum", "nesterov", "weight_decay", "betas", "eps"}


def draws(seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def ours(section: AnyOptimizer, start: Sequence[Tensor]) -> tuple[LocalOptimizer, list[Tensor]]:
    layout = Layout.of([(str(index), tensor) for index, tensor in enumerate(start)], torch.float32)
    row = torch.zeros(layout.size)
    for view, tensor in zip(layout.views(row), start, strict=True):
        view.copy_(tensor)
    moments = torch.zeros(len(moments_of(section)), layout.size)
    return LocalOptimizer(section, row, moments, layout), layout.views(row)


def theirs(
    section: AnyOptimizer, make: Callable[..., torch.optim.Optimizer], start: Sequence[Tensor], fused: bool
) -> torch.optim.Optimizer:
    settings = section.model_dump(include=OWN)
    return make([tensor.clone().requires_grad_() for tensor in start], lr=section.lr, fused=fused, **settings)


def race(section: AnyOptimizer, make: Callable[..., torch.optim.Optimizer], fused: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Parameters after 20 steps at a rate that falls, by us and by torch."""
    optimizer, params = ours(section, draws(0))
    reference = theirs(section, make, draws(0), fused)
    group = reference.param_groups[0]
    for step in range(20):
        group["lr"] = section.lr * (1 - step / 20)
        for parameter, gradient in zip(group["params"], draws(step + 1), strict=True):
            parameter.grad = gradient
        reference.step()
        optimizer.step(draws(step + 1), group["lr"])
    return params, [parameter.detach() for parameter in group["params"]]


@pytest.mark.parametrize(("section", "make"), CASES)
def test_twenty_steps_are_those_of_torch_to_the_bit(section: AnyOptimizer, make: Callable[..., torch.optim.Optimizer]) -> None:
    assert all(torch.equal(one, other) for one, other in zip(*race(section, make, fused=True), strict=True))


@pytest.mark.parametrize(("section", "make"), CASES)
def test_twenty_steps_are_close_to_the_textbook_loop(section: AnyOptimizer, make: Callable[..., torch.optim.Optimizer]) -> None:
    for one, other in zip(*race(section, make, fused=False), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("section", "make"), CASES)
@pytest.mark.parametrize(
    "gradient", [torch.arange(6.0).view(3, 2).t(), torch.ones(()).expand(2, 3)], ids=["transposed", "expanded"]
)
def test_a_gradient_may_lie_in_memory_as_it_likes(
    section: AnyOptimizer, make: Callable[..., torch.optim.Optimizer], gradient: Tensor
) -> None:
    optimizer, (param,) = ours(section, [torch.zeros(2, 3)])
    optimizer.step([gradient], section.lr)
    straight, (expected,) = ours(section, [torch.zeros(2, 3)])
    straight.step([gradient.clone(memory_format=torch.contiguous_format)], section.lr)
    assert torch.equal(param, expected)


@pytest.mark.parametrize(("section", "make"), CASES)
def test_a_tensor_without_a_gradient_stays_as_it_is(section: AnyOptimizer, make: Callable[..., torch.optim.Optimizer]) -> None:
    optimizer, params = ours(section, draws(0))
    optimizer.step([draws(1)[0], None, *draws(1)[2:]], section.lr)
    assert [torch.equal(one, other) for one, other in zip(params, draws(0), strict=True)] == [False, True, False, False]


@pytest.mark.parametrize(("section", "make"), CASES)
def test_the_numbers_between_tensors_stay_zero(section: AnyOptimizer, make: Callable[..., torch.optim.Optimizer]) -> None:
    optimizer, params = ours(section, draws(0))
    optimizer.step(draws(1), section.lr)
    row = params[0].as_strided((48,), (1,))
    assert row[35:].eq(0).all()
    assert optimizer.moments[:, 35:48].eq(0).all()


def test_plain_sgd_keeps_no_moments() -> None:
    assert moments_of(Sgd(lr=1.0)) == ()


@pytest.mark.parametrize(("section", "make"), CASES)
def test_after_a_reset_it_starts_anew(section: AnyOptimizer, make: Callable[..., torch.optim.Optimizer]) -> None:
    used, _ = ours(section, draws(0))
    used.step(draws(1), section.lr)
    used.reset()
    for view, tensor in zip(used._params, draws(0), strict=True):
        view.copy_(tensor)
    fresh, params = ours(section, draws(0))
    used.step(draws(2), section.lr)
    fresh.step(draws(2), section.lr)
    assert all(torch.equal(one, other) for one, other in zip(used._params, params, strict=True))


@pytest.mark.parametrize(
    ("schedule", "warmup", "course"),
    [
        ("constant", 0.0, [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("constant", 0.5, [0.0, 0.5, 1.0, 1.0, 1.0, 1.0]),
        ("linear", 0.0, [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]),
        ("linear", 0.5, [0.0, 0.5, 1.0, 0.5, 0.0, 0.0]),
        ("cosine", 0.0, [1.0, (2 + math.sqrt(2)) / 4, 0.5, (2 - math.sqrt(2)) / 4, 0.0, 0.0]),
        ("cosine", 0.5, [0.0, 0.5, 1.0, 0.5, 0.0, 0.0]),
    ],
)
def test_the_learning_rate_follows_its_course_by_items(schedule: str, warmup: float, course: list[float]) -> None:
    section = Sgd.model_validate({"lr": 8.0, "schedule": schedule, "warmup": warmup})
    rates = [section.rate(items, 400) / 8 for items in (0, 100, 200, 300, 400, 500)]
    assert rates == pytest.approx(course, abs=1e-12)


@pytest.mark.parametrize(
    "table", [{"name": "adam", "lr": 0.1, "betas": [0.9, 1.5]}, {"name": "adamw", "lr": 0.1, "betas": [-0.1, 0.9]}]
)
def test_betas_outside_their_range_are_refused(table: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(AnyOptimizer).validate_python(table)
