"""The local optimizer gives torch's bits; its learning rate follows the job's schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from partrain.flat import Layout
from partrain.optim import AnyOptimizer, Sgd
from partrain.optim.local import LocalOptimizer, moment_names
from partrain.optim.sections import Adagrad, Adam, Adamax, AdamW, Lbfgs, Muon, NAdam, RAdam, RmsProp, Rprop

SHAPES = [(7, 5), (33,), (), (2, 3, 4)]
OPTIMIZERS: list[tuple[AnyOptimizer, Callable[..., torch.optim.Optimizer]]] = [
    (Sgd(lr=0.1), torch.optim.SGD),
    (Sgd(lr=0.1, weight_decay=0.01), torch.optim.SGD),
    (Sgd(lr=0.1, momentum=0.9), torch.optim.SGD),
    (Sgd(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01), torch.optim.SGD),
    (Sgd(lr=0.1, momentum=0.9, dampening=0.3), torch.optim.SGD),
    (Sgd(lr=0.1, momentum=0.5, dampening=0.5, weight_decay=0.1), torch.optim.SGD),
    (Adam(name="adam", lr=0.01), torch.optim.Adam),
    (Adam(name="adam", lr=0.01, betas=[0.8, 0.95], eps=1e-4, weight_decay=0.02), torch.optim.Adam),
    (Adam(name="adam", lr=0.01, amsgrad=True), torch.optim.Adam),
    (AdamW(name="adamw", lr=0.01, amsgrad=True), torch.optim.AdamW),
    (AdamW(name="adamw", lr=0.01), torch.optim.AdamW),
    (AdamW(name="adamw", lr=0.01, weight_decay=0.1), torch.optim.AdamW),
]
"""Optimizers with fused kernels in torch."""
LOOPS: list[tuple[AnyOptimizer, Callable[..., torch.optim.Optimizer]]] = [
    (NAdam(name="nadam", lr=0.01), torch.optim.NAdam),
    (NAdam(name="nadam", lr=0.01, betas=[0.7, 0.8], eps=1e-4, weight_decay=0.02, momentum_decay=0.1), torch.optim.NAdam),
    (NAdam(name="nadam", lr=0.01, weight_decay=0.02, decoupled_weight_decay=True), torch.optim.NAdam),
    (RAdam(name="radam", lr=0.01), torch.optim.RAdam),
    (RAdam(name="radam", lr=0.01, betas=[0.7, 0.8], eps=1e-4, weight_decay=0.02), torch.optim.RAdam),
    (RAdam(name="radam", lr=0.01, weight_decay=0.02, decoupled_weight_decay=True), torch.optim.RAdam),
    (Adamax(name="adamax", lr=0.01), torch.optim.Adamax),
    (Adamax(name="adamax", lr=0.01, betas=[0.8, 0.95], eps=1e-4, weight_decay=0.02), torch.optim.Adamax),
    (RmsProp(name="rmsprop", lr=0.01), torch.optim.RMSprop),
    (RmsProp(name="rmsprop", lr=0.01, momentum=0.9, alpha=0.9, eps=1e-4), torch.optim.RMSprop),
    (RmsProp(name="rmsprop", lr=0.01, centered=True, weight_decay=0.02), torch.optim.RMSprop),
    (RmsProp(name="rmsprop", lr=0.01, centered=True, momentum=0.5), torch.optim.RMSprop),
    (Adagrad(name="adagrad", lr=0.01), torch.optim.Adagrad),
    (Adagrad(name="adagrad", lr=0.1, lr_decay=0.1, weight_decay=0.02), torch.optim.Adagrad),
    (Adagrad(name="adagrad", lr=0.1, initial_accumulator_value=0.5, eps=1e-3), torch.optim.Adagrad),
    (Rprop(name="rprop", lr=0.01), torch.optim.Rprop),
    (Rprop(name="rprop", lr=0.1, etas=[0.3, 1.5], step_sizes=[0.05, 0.2]), torch.optim.Rprop),
]
"""Optimizers that loop over tensors in torch."""
OWN = {
    "alpha", "amsgrad", "betas", "centered", "dampening", "decoupled_weight_decay", "eps", "etas", "initial_accumulator_value",
    "lr_decay", "momentum", "momentum_decay", "nesterov", "step_sizes", "weight_decay",
}  # fmt: skip


def named(cases: Sequence[tuple[AnyOptimizer, object]]) -> list[object]:
    return [pytest.param(*case, id=f"{case[0].name}-{index}") for index, case in enumerate(cases)]


CASES, LOOP_CASES = named(OPTIMIZERS), named(LOOPS)
EVERY: list[AnyOptimizer] = [section for section, _ in OPTIMIZERS + LOOPS] + [
    Muon(name="muon", lr=0.02),
    Lbfgs(name="lbfgs", lr=0.5, history_size=3),
]
EACH = pytest.mark.parametrize("section", EVERY, ids=[f"{section.name}-{index}" for index, section in enumerate(EVERY)])


def draws(seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def ours(section: AnyOptimizer, start: Sequence[Tensor]) -> tuple[LocalOptimizer, list[Tensor]]:
    layout = Layout.of([(str(index), tensor) for index, tensor in enumerate(start)], torch.float32)
    row = torch.zeros(layout.size)
    for view, tensor in zip(layout.views(row), start, strict=True):
        view.copy_(tensor)
    moments = torch.zeros(len(moment_names(section)), layout.size)
    return LocalOptimizer(section, row, moments, layout), layout.views(row)


def theirs(
    section: AnyOptimizer, make: Callable[..., torch.optim.Optimizer], start: Sequence[Tensor], **how: bool
) -> torch.optim.Optimizer:
    settings = section.model_dump(include=OWN)
    return make([tensor.clone().requires_grad_() for tensor in start], lr=section.lr, **how, **settings)


def race(section: AnyOptimizer, make: Callable[..., torch.optim.Optimizer], **how: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Return the parameters after 20 steps at a falling rate, by LocalOptimizer and by torch."""
    optimizer, params = ours(section, draws(0))
    reference = theirs(section, make, draws(0), **how)
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


@pytest.mark.parametrize(("section", "make"), LOOP_CASES)
def test_twenty_steps_are_those_of_torchs_loop_to_the_bit(
    section: AnyOptimizer, make: Callable[..., torch.optim.Optimizer]
) -> None:
    assert all(torch.equal(one, other) for one, other in zip(*race(section, make, foreach=False), strict=True))


@pytest.mark.parametrize(("section", "make"), [*CASES, *LOOP_CASES])
def test_a_tensor_counts_the_steps_it_takes(section: AnyOptimizer, make: Callable[..., torch.optim.Optimizer]) -> None:
    """Tensors whose gradient is missing in some steps have fewer steps: for bias corrections, and for the dampening after the first.

    torch's fused SGD raises TypeError then, and its loop rounds differently.
    """
    optimizer, params = ours(section, draws(0))
    sgd = isinstance(section, Sgd)
    how = {"fused": True} if isinstance(section, Adam) else {"foreach": False}
    reference = theirs(section, make, draws(0), **how)
    for step in range(20):
        gradients: list[Tensor | None] = [*draws(step + 1)]
        for index in range(1, 4):
            if step < 2 * index or step % (index + 2) == 0:
                gradients[index] = None
        for parameter, gradient in zip(reference.param_groups[0]["params"], gradients, strict=True):
            parameter.grad = gradient
        reference.step()
        optimizer.step(gradients, section.lr)
    for param, other in zip(params, reference.param_groups[0]["params"], strict=True):
        torch.testing.assert_close(param, other.detach(), **({} if sgd else {"rtol": 0, "atol": 0}))


@pytest.mark.parametrize(("section", "make"), CASES)
def test_twenty_steps_are_close_to_the_textbook_loop(section: AnyOptimizer, make: Callable[..., torch.optim.Optimizer]) -> None:
    for one, other in zip(*race(section, make, fused=False), strict=True):
        torch.testing.assert_close(one, other)


@EACH
@pytest.mark.parametrize(
    "gradient", [torch.arange(6.0).view(3, 2).t(), torch.ones(()).expand(2, 3)], ids=["transposed", "expanded"]
)
def test_a_gradient_may_have_any_strides(section: AnyOptimizer, gradient: Tensor) -> None:
    optimizer, (param,) = ours(section, [torch.zeros(2, 3)])
    optimizer.step([gradient], section.lr)
    straight, (expected,) = ours(section, [torch.zeros(2, 3)])
    straight.step([gradient.clone(memory_format=torch.contiguous_format)], section.lr)
    assert torch.equal(param, expected)


@EACH
def test_a_tensor_without_a_gradient_does_not_change(section: AnyOptimizer) -> None:
    optimizer, params = ours(section, draws(0))
    optimizer.step([draws(1)[0], None, *draws(1)[2:]], section.lr)
    assert [torch.equal(one, other) for one, other in zip(params, draws(0), strict=True)] == [False, True, False, False]


@EACH
def test_the_numbers_between_tensors_stay_zero(section: AnyOptimizer) -> None:
    optimizer, params = ours(section, draws(0))
    optimizer.step(draws(1), section.lr)
    row = params[0].as_strided((48,), (1,))
    assert row[35:].eq(0).all()
    assert optimizer.moments[:, 35:48].eq(0).all()


@EACH
def test_a_bound_step_is_a_step(section: AnyOptimizer) -> None:
    gradients = draws(1)
    (bound, params), (plain, expected) = ours(section, draws(0)), ours(section, draws(0))
    step = bound.bind(gradients)
    for number in range(1, 4):
        for gradient, drawn in zip(gradients, draws(number), strict=True):
            gradient.copy_(drawn)
        step(section.lr / number)
        plain.step(draws(number), section.lr / number)
    assert all(torch.equal(one, other) for one, other in zip(params, expected, strict=True))


def test_plain_sgd_keeps_no_moments() -> None:
    assert moment_names(Sgd(lr=1.0)) == ()


def test_no_gradient_at_all_is_no_step() -> None:
    for section in EVERY:
        optimizer, params = ours(section.model_copy(update={"clip_norm": 1.0}), draws(0))
        optimizer.step([None] * 4, section.lr)
        assert all(torch.equal(one, other) for one, other in zip(params, draws(0), strict=True)), section.name


@EACH
def test_a_reset_restores_the_initial_state(section: AnyOptimizer) -> None:
    used, _ = ours(section, draws(0))
    used.step(draws(1), section.lr)
    used.reset()
    for view, tensor in zip(used._params, draws(0), strict=True):
        view.copy_(tensor)
    fresh, params = ours(section, draws(0))
    used.step(draws(2), section.lr)
    fresh.step(draws(2), section.lr)
    assert all(torch.equal(one, other) for one, other in zip(used._params, params, strict=True))


# Two parameter groups


def matrices(tensors: Sequence[Tensor], least: int = 2, most: int = 9) -> list[int]:
    return [index for index, tensor in enumerate(tensors) if least <= tensor.dim() <= most]


@pytest.mark.parametrize("settings", [{}, {"nesterov": False, "ns_steps": 3, "adamw_lr": 0.003, "adamw_betas": [0.8, 0.9]},
                                      {"adjust_lr_fn": "match_rms_adamw", "momentum": 0.5, "weight_decay": 0.0}])  # fmt: skip
def test_muon_steps_matrices_and_adamw_the_rest(settings: dict[str, object]) -> None:
    section = Muon.model_validate({"name": "muon", "lr": 0.02, **settings})
    optimizer, params = ours(section, draws(0))
    start = [tensor.requires_grad_() for tensor in draws(0)]
    own = section.model_dump(include={"weight_decay", "momentum", "nesterov", "ns_steps", "adjust_lr_fn"})
    by_muon = matrices(start, 2, 2)
    rest = [tensor for index, tensor in enumerate(start) if index not in by_muon]
    references = [
        torch.optim.Muon([start[index] for index in by_muon], lr=0.02, **own),
        torch.optim.AdamW(rest, lr=section.adamw_lr or 0.02, betas=tuple(section.adamw_betas), fused=True,
                          weight_decay=section.weight_decay),
    ]  # fmt: skip
    for step in range(5):
        for parameter, gradient in zip(start, draws(step + 1), strict=True):
            parameter.grad = gradient
        for reference in references:
            reference.step()
        optimizer.step(draws(step + 1), 0.02)
    assert all(torch.equal(one, other) for one, other in zip(params, start, strict=True))


@pytest.mark.parametrize(
    ("section", "make"),
    [(Sgd(lr=0.1, momentum=0.9, weight_decay=0.1, decay="matrices"), torch.optim.SGD),
     (AdamW(name="adamw", lr=0.01, weight_decay=0.1, decay="matrices"), torch.optim.AdamW),
     (Adagrad(name="adagrad", lr=0.01, weight_decay=0.1, decay="matrices"), torch.optim.Adagrad)],
)  # fmt: skip
def test_biases_and_norms_may_be_excluded_from_decay(section: AnyOptimizer, make: Callable[..., torch.optim.Optimizer]) -> None:
    optimizer, params = ours(section, draws(0))
    start = [tensor.requires_grad_() for tensor in draws(0)]
    groups = [{"params": [start[index] for index in (0, 3)]}, {"params": [start[index] for index in (1, 2)], "weight_decay": 0.0}]
    reference = make(groups, lr=section.lr, fused=True, **section.model_dump(include=OWN))
    for step in range(5):
        for parameter, gradient in zip(start, draws(step + 1), strict=True):
            parameter.grad = gradient
        reference.step()
        optimizer.step(draws(step + 1), section.lr)
    exact = not isinstance(section, Adagrad)  # torch's fused Adagrad rounds differently
    for one, other in zip(params, start, strict=True):
        torch.testing.assert_close(one, other.detach(), **({"rtol": 0, "atol": 0} if exact else {}))


# L-BFGS


def bowl(size: int = 40) -> tuple[Tensor, Tensor]:
    """Return A and b of the function |x|_A^2 / 2 - b x, whose gradient is A x - b."""
    generator = torch.Generator().manual_seed(3)
    factor = torch.randn(size, size, generator=generator, dtype=torch.float64) / size**0.5
    return factor @ factor.T + 0.1 * torch.eye(size, dtype=torch.float64), torch.randn(
        size, generator=generator, dtype=torch.float64
    )


def descent(section: Lbfgs, steps: int, size: int = 40) -> tuple[Tensor, LocalOptimizer]:
    a, b = bowl(size)
    layout = Layout.of([("x", b)], torch.float64)
    row, moments = (torch.zeros(layout.size, dtype=torch.float64) for _ in range(2))
    moments = torch.zeros(len(moment_names(section)), layout.size, dtype=torch.float64)
    optimizer = LocalOptimizer(section, row, moments, layout)
    for _ in range(steps):
        optimizer.step([a @ row[:size] - b], section.lr)
    return row[:size], optimizer


@pytest.mark.parametrize("history", [1, 3, 30])
@pytest.mark.parametrize("lr", [1.0, 0.4])
def test_lbfgs_takes_the_steps_of_torch(history: int, lr: float) -> None:
    """Use double precision, as small differences grow: here a step is x - x', in torch the direction times its length."""
    a, b = bowl()
    x = torch.zeros(40, dtype=torch.float64, requires_grad=True)
    reference = torch.optim.LBFGS([x], lr=lr, max_iter=1, history_size=history)

    def closure() -> Tensor:
        reference.zero_grad()
        loss: Tensor = (x @ a @ x) / 2 - b @ x
        loss.backward()
        return loss

    for _ in range(15):
        reference.step(closure)
    found, _ = descent(Lbfgs(name="lbfgs", lr=lr, history_size=history), 15)
    torch.testing.assert_close(found, x.detach(), rtol=1e-6, atol=1e-8)


def test_lbfgs_finds_the_bottom_of_a_bowl_and_stays_there() -> None:
    a, b = bowl()
    found, optimizer = descent(Lbfgs(name="lbfgs", lr=1.0, history_size=40), 80)
    torch.testing.assert_close(found, torch.linalg.solve(a, b), rtol=1e-3, atol=1e-3)
    before = found.clone()
    optimizer.step([torch.zeros(40, dtype=torch.float64)], 1.0)
    assert torch.equal(found, before)


def test_lbfgs_skips_pairs_of_negative_curvature() -> None:
    """Averaging or noise may create such pairs. The step uses the others only."""
    section = Lbfgs(name="lbfgs", lr=1.0, history_size=4)
    whole, spoilt = descent(section, 3)[1], descent(section, 3)[1]
    assert spoilt.moments[:2].eq(0).all()
    spoilt.moments[0, 0], spoilt.moments[4, 0] = 1.0, -1.0  # s y = -1: negative curvature
    gradient = torch.ones(40, dtype=torch.float64)
    for optimizer in whole, spoilt:
        optimizer.step([gradient], 1.0)
    assert torch.equal(whole._params[0], spoilt._params[0])


# Clipping of the gradient


@pytest.mark.parametrize("section", EVERY[::4], ids=lambda section: section.name)
@settings(max_examples=25)
@given(st.floats(0.01, 50), st.floats(0.01, 3), st.booleans())
def test_a_clipped_step_equals_torchs(section: AnyOptimizer, norm: float, value: float, both: bool) -> None:
    limits = {"clip_norm": norm} | ({"clip_value": value} if both else {})
    optimizer, params = ours(section.model_copy(update=limits), draws(0))
    plain, expected = ours(section, draws(0))
    given_, clipped = draws(1), [torch.nn.Parameter(tensor) for tensor in draws(0)]
    for parameter, gradient in zip(clipped, draws(1), strict=True):
        parameter.grad = gradient
    if both:
        torch.nn.utils.clip_grad_value_(clipped, value)
    torch.nn.utils.clip_grad_norm_(clipped, norm)
    optimizer.step(given_, section.lr)
    plain.step([parameter.grad for parameter in clipped], section.lr)
    assert all(torch.equal(one, other) for one, other in zip(params, expected, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(given_, draws(1), strict=True))


# State


@EACH
def test_the_state_is_complete(section: AnyOptimizer) -> None:
    """A new optimizer with the same moments and number of steps continues to the bit."""
    whole, params = ours(section, draws(0))
    for step in range(4):
        whole.step(draws(step + 1), section.lr)
    later, others = ours(section, params)
    later.moments.copy_(whole.moments)
    later.counts.copy_(whole.counts)
    for optimizer in whole, later:
        optimizer.step(draws(9), section.lr)
    assert all(torch.equal(one, other) for one, other in zip(params, others, strict=True))
    assert torch.equal(whole.moments, later.moments)


@EACH
def test_counts_steps_tells_whether_a_step_depends_on_their_number(section: AnyOptimizer) -> None:
    """Mixing must agree on the number of steps only if `counts_steps`."""
    one, params = ours(section, draws(0))
    one.step(draws(1), section.lr)
    other, others = ours(section, params)
    other.moments.copy_(one.moments)
    one.counts.fill_(1), other.counts.fill_(50)
    one.step(draws(2), section.lr)
    other.step(draws(2), section.lr)
    same = all(torch.equal(mine, yours) for mine, yours in zip(params, others, strict=True))
    assert same or section.counts_steps


def test_moments_begin_with_their_initial_values() -> None:
    adagrad, _ = ours(Adagrad(name="adagrad", lr=0.1, initial_accumulator_value=0.5), draws(0))
    rprop, _ = ours(Rprop(name="rprop", lr=0.1), draws(0))
    assert (adagrad.moments[0, :35].eq(0.5).all(), rprop.moments[1, :35].eq(0.1).all()) == (True, True)


# The learning rate


@pytest.mark.parametrize(("schedule", "warmup", "course"), [
    ("constant", 0.0, [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
    ("constant", 0.5, [0.0, 0.5, 1.0, 1.0, 1.0, 1.0]),
    ("linear", 0.0, [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]),
    ("linear", 0.5, [0.0, 0.5, 1.0, 0.5, 0.0, 0.0]),
    ("cosine", 0.0, [1.0, (2 + math.sqrt(2)) / 4, 0.5, (2 - math.sqrt(2)) / 4, 0.0, 0.0]),
    ("cosine", 0.5, [0.0, 0.5, 1.0, 0.5, 0.0, 0.0]),
])  # fmt: skip
def test_the_learning_rate_follows_item_iterations(schedule: str, warmup: float, course: list[float]) -> None:
    section = Sgd.model_validate({"lr": 8.0, "schedule": schedule, "warmup": warmup})
    rates = [section.rate(items, 400) / 8 for items in (0, 100, 200, 300, 400, 500)]
    assert rates == pytest.approx(course, abs=1e-12)


COURSES = [
    ({"schedule": "linear", "lr_end": 0.2}, [1.0, 0.8, 0.6, 0.4, 0.2, 0.2]),
    ({"schedule": "cosine", "lr_end": 0.5}, [1.0, 0.75 + math.sqrt(2) / 8, 0.75, 0.75 - math.sqrt(2) / 8, 0.5, 0.5]),
    ({"schedule": "linear", "warmup": 0.5, "lr_start": 0.5}, [0.5, 0.75, 1.0, 0.5, 0.0, 0.0]),
    ({"schedule": "polynomial"}, [1.0, 9 / 16, 1 / 4, 1 / 16, 0.0, 0.0]),
    ({"schedule": "polynomial", "power": 0.5, "lr_end": 0.1}, [1.0, 0.1 + 0.9 * math.sqrt(0.75), 0.1 + 0.9 * math.sqrt(0.5), 0.55, 0.1, 0.1]),
    ({"schedule": "exponential"}, [1.0, 0.1**0.5, 0.1, 0.1**1.5, 0.01, 0.01]),
    ({"schedule": "exponential", "lr_end": 0.0625, "warmup": 0.5}, [0.0, 0.5, 1.0, 0.25, 0.0625, 0.0625]),
    ({"schedule": "step"}, [1.0, 1.0, 0.1, 0.01, 0.01, 0.01]),
    ({"schedule": "step", "milestones": [0.7, 0.2], "gamma": 0.5}, [1.0, 0.5, 0.5, 0.25, 0.25, 0.25]),
    ({"schedule": "step", "every": 0.25, "gamma": 0.5, "warmup": 0.125}, [0.0, 0.5, 0.25, 0.125, 0.0625, 0.0625]),
    ({"schedule": "one-cycle", "warmup": 0.5, "lr_start": 0.2, "lr_end": 0.4}, [0.2, 0.6, 1.0, 0.7, 0.4, 0.4]),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "course"), COURSES)
def test_every_schedule_by_hand(settings: dict[str, object], course: list[float]) -> None:
    section = Sgd.model_validate({"lr": 8.0, **settings})
    assert list(section.check()) == []
    rates = [section.rate(items, 400) / 8 for items in (0, 100, 200, 300, 400, 500)]
    assert rates == pytest.approx(course, abs=1e-12)


def test_one_cycle_equals_torchs() -> None:
    section, parameter = Sgd(lr=0.8, schedule="one-cycle"), torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    reference = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.8, total_steps=201, pct_start=61 / 201)
    for step in range(201):
        assert section.rate(step, 200) == pytest.approx(reference.get_last_lr()[0], rel=1e-9)
        optimizer.step()
        if step < 200:
            reference.step()


@given(st.sampled_from([keys for keys, _ in COURSES]), st.floats(0, 2), st.floats(0, 0.9))
def test_every_schedule_stays_within_its_bounds(settings: dict[str, object], progress: float, warmup: float) -> None:
    section = Sgd.model_validate({"lr": 8.0, **settings, "warmup": warmup})
    assert 0 <= section.rate(progress * 1000, 1000) <= 8


@pytest.mark.parametrize(("table", "key"), [
    ({"lr_end": 0.1}, "lr_end"),
    ({"schedule": "linear", "power": 2.0}, "power"),
    ({"schedule": "cosine", "milestones": [0.5]}, "milestones"),
    ({"schedule": "cosine", "gamma": 0.5}, "gamma"),
    ({"schedule": "step", "every": 0.1, "milestones": [0.5]}, "every"),
    ({"schedule": "step", "lr_end": 0.1}, "lr_end"),
    ({"schedule": "linear", "lr_start": 0.1}, "lr_start"),
    ({"schedule": "exponential", "lr_end": 0.0}, "lr_end"),
    ({"horizon": 100}, "horizon"),
    ({"decay": "matrices"}, "decay"),
    ({"nesterov": True}, "nesterov"),
    ({"dampening": 0.1}, "dampening"),
    ({"dampening": 0.1, "momentum": 0.9, "nesterov": True}, "dampening"),
    ({"full_batch": True, "batch_size": 5}, "batch_size"),
    ({"batch_size": 5, "accumulate": 6}, "accumulate"),
    ({"name": "lbfgs", "batch_size": 5}, "batch_size"),
    ({"name": "rprop", "schedule": "linear"}, "schedule"),
    ({"name": "rprop", "clip_norm": 1.0}, "clip_norm"),
    ({"name": "rprop", "etas": [1.5, 2.0]}, "etas"),
    ({"name": "rprop", "step_sizes": [2.0, 1.0]}, "step_sizes"),
    ({"name": "radam", "decoupled_weight_decay": True}, "decoupled_weight_decay"),
])  # fmt: skip
def test_settings_without_effect_are_reported(table: dict[str, object], key: str) -> None:
    section = TypeAdapter(AnyOptimizer).validate_python({"name": "sgd", "lr": 1.0, **table})
    assert [(each.path[-1], each.severity) for each in section.check()] == [(key, "error")]


@pytest.mark.parametrize(("key", "number"), [("eps", 1e-60), ("eps", 1e39), ("lr", 1e-40)])
@pytest.mark.parametrize("section", [Adam, NAdam, Adagrad, Muon, RmsProp])
def test_settings_beyond_float32_are_refused(section: type[AnyOptimizer], key: str, number: float) -> None:
    """With eps = 0 an optimizer divides 0 by 0 if a gradient is 0."""
    (finding,) = section.model_validate(
        {"name": section.model_fields["name"].annotation.__args__[0], "lr": 0.1, key: number}
    ).check()
    assert (finding.path[-1], finding.severity) == (key, "error")
    assert finding.message.startswith(f"`{key}` = {number:g} is {'infinite' if number > 1 else '0'} in float32")


def test_defaults_are_without_findings() -> None:
    assert [each for section in EVERY for each in section.check()] == []


@pytest.mark.parametrize(
    "table", [{"name": "adam", "lr": 0.1, "betas": [0.9, 1.5]}, {"name": "adamw", "lr": 0.1, "betas": [-0.1, 0.9]}]
)
def test_betas_outside_their_range_are_refused(table: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(AnyOptimizer).validate_python(table)


def test_initial_values_beyond_float32() -> None:
    """Without the check each worker raises torch's `value cannot be converted to type float without overflow`."""
    with pytest.raises(ValidationError, match="initial_accumulator_value"):
        Adagrad(name="adagrad", lr=0.1, initial_accumulator_value=1e300)
    assert [each.path[-1] for each in Rprop(name="rprop", lr=1e300).check()] == ["lr"]
