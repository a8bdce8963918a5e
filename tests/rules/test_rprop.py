"""Parallel Rprop: only the signs of the gradient over all items count."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from support.lab import OneWeight, Trial, descend, line, restless
from support.rule_forms import findings
from torch.nn import functional

from partrain.optim import Sgd
from partrain.optim.sections import Adam
from partrain.rules.rprop import RpropRule

VARIANTS = ["irprop-", "irprop+", "rprop+", "rprop-"]
PLAIN = Sgd(lr=0.1, batch_size=4)


def rprop(**settings: Any) -> RpropRule:
    return RpropRule.model_validate({"rule": "rprop", "iterations": 2} | settings)


def course(rounds: int = 3, **settings: Any) -> list[float]:
    """Two workers from 8 with the targets 0 and 4: the mean gradient is x - 2, the mean loss ((x - 2)^2 + 4) / 2."""
    replicas = descend(rprop(**settings), start=[8.0], targets=[[0.0], [4.0]], rounds=rounds)
    assert all(one == other for one, other in replicas)
    return [one[0] for one, _ in replicas]


@pytest.mark.parametrize(
    ("variant", "expected"),
    [("irprop-", [5.0, 1.0, 3.0]), ("irprop+", [5.0, 1.0, 3.0]), ("rprop+", [5.0, 5.0, -1.0]), ("rprop-", [5.0, 3.0, 2.0])],
)
def test_golden(variant: str, expected: list[float]) -> None:
    """Steps of 1 at first, times 2 and 1/2; two iterations a round.

    all       8 -> 7 (1) -> 5 (2)  |  -> 1 (4), where the sign changes, so the step size falls to 2
    irprop-   1 -> 1               |  1 -> 3 (2), changed -> 3 (1)
    irprop+   the same: the loss is 2.5 at 1, less than at 5, and at 3 no more than at 1
    rprop+    1 -> 5, back         |  5 -> 3 (2) -> -1 (4)
    rprop-    1 -> 3 (2), changed  |  3 -> 2 (1), where the gradient is 0 -> 2
    """
    assert course(variant=variant, step=1.0, increase=2.0) == expected


@pytest.mark.parametrize(("variant", "expected"), [("irprop-", [3.0, -13.0, 27.0]), ("irprop+", [3.0, 3.0, 3.0])])
def test_golden_where_the_loss_rises(variant: str, expected: list[float]) -> None:
    """Steps of 1 at first, times 4 and 1/2.

    both      8 -> 7 (1) -> 3 (4)  |  -> -13 (16), where the sign has changed and the loss has risen, step size 8
    irprop-   -13 -> -13           |  -13 -> -5 (8) -> 27 (32)
    irprop+   -13 -> 3, back       |  3 -> -5 (8), risen from 2.5 to 26.5 -> 3, back
    """
    assert course(variant=variant, step=1.0, increase=4.0) == expected


def test_steps_have_a_largest_size() -> None:
    """8 -> 7 -> 5 | 5 -> 3 -> 1."""
    assert course(2, step=1.0, increase=2.0, step_max=2.0) == [5.0, 1.0]


@pytest.mark.parametrize(("step_min", "end"), [(4.0, 0.0), (1.0, -2.0)])
def test_steps_have_a_smallest_size(step_min: float, end: float) -> None:
    """8 -> 4 (4) -> -4 (8) | changed, a quarter of 8 or the smallest -> -4 -> 0 or -2."""
    assert course(2, step=4.0, increase=2.0, decrease=0.25, step_min=step_min) == [-4.0, end]


def test_one_worker_is_torchs_rprop_to_the_bit() -> None:
    settings = {"step": 0.02, "increase": 1.3, "decrease": 0.4, "step_min": 1e-5, "step_max": 0.05}
    trial = Trial(rprop(iterations=5, **settings), Sgd(lr=0.1, batch_size=48), partitions=[range(48)])
    (worker,), _ = trial.run(4)

    reference = trial.worker()
    steps = torch.optim.Rprop(reference.module.parameters(), lr=0.02, etas=(0.4, 1.3), step_sizes=(1e-5, 0.05))
    for _ in range(20):
        steps.zero_grad()
        functional.cross_entropy(reference.module(trial.items.inputs), trial.items.targets).backward()
        steps.step()
    assert torch.equal(worker.params, reference.params)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("cuts", [[0, 22, 48], [0, 5, 30, 48]], ids=["two", "three"])
def test_workers_do_what_one_does_with_all_items(variant: str, cuts: list[int]) -> None:
    trial = Trial(rprop(iterations=4, variant=variant), PLAIN)
    parts = [range(first, last) for first, last in pairwise(cuts)]
    many, _ = replace(trial, partitions=parts).run(5)
    (one,), _ = replace(trial, partitions=[range(48)]).run(5)
    torch.testing.assert_close(many[0].params, one.params, atol=1e-6, rtol=0)
    assert all(worker.courses == many[0].courses for worker in many)
    start = trial.worker().params
    assert (one.params - start).abs().max() > 0.5


def test_variants_are_different_algorithms() -> None:
    ends = [Trial(rprop(iterations=20, variant=variant, step=1.0), PLAIN).run(1)[0][0].params for variant in VARIANTS]
    assert len({tuple(end.tolist()) for end in ends}) == len(VARIANTS)


@pytest.mark.parametrize(("weights", "expected"), [("items", 15.75), ("equal", 16.25)])
def test_gradients_are_weighted_by_the_items_of_the_partition(weights: str, expected: float) -> None:
    """y = 16 for x = 1: the gradient of one item is 2 (16 - t): -16 for t = 24, 8 for each of three with t = 12."""
    items = line([1.0] * 4, [24.0, 12.0, 12.0, 12.0])
    trial = Trial(rprop(iterations=1, step=0.25, weights=weights), PLAIN, OneWeight, items, [range(1), range(1, 4)])
    workers, _ = trial.run(1)
    assert workers[0].params[0] == expected


def test_the_local_optimizer_is_not_used() -> None:
    """Neither its rate nor its moments."""
    one, _ = Trial(rprop(iterations=3), PLAIN, restless).run(3)
    other, _ = Trial(rprop(iterations=3, optimizer_state="average"), Adam(name="adam", lr=9.0, batch_size=4), restless).run(3)
    assert one[1].courses[-1] == other[1].courses[-1]
    assert one[0].records[-1]["items"] == 3 * 22
    assert one[1].records[-1]["items"] == 3 * 26


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_worker_that_does_not_train_yet_has_no_say(variant: str) -> None:
    (first, second), _ = Trial(rprop(variant=variant, ramp_workers=2), PLAIN).run(1)
    (alone,), _ = Trial(rprop(variant=variant), PLAIN, partitions=[range(22)]).run(1)
    assert first.courses == second.courses == alone.courses


def test_workers_meet_after_each_iteration() -> None:
    assert rprop().syncs_every_iteration
    assert rprop().keeps_replicas_equal


@pytest.mark.parametrize(("settings", "key"), [
    ({}, None),
    ({"iterations": None, "passes": 1}, "passes"),
    ({"step": 60.0}, "step"),
    ({"step": 1e-3, "step_min": 0.01}, "step"),
])  # fmt: skip
def test_findings(settings: dict[str, Any], key: str | None) -> None:
    assert findings(rprop(**settings)) == ([(key, "error")] if key else [])
