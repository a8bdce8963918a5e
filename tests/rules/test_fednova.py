"""Normalised averaging: unequal work without a bias."""

from typing import Any

import pytest
import torch
from support.lab import OneWeight, Trial, descend, line
from support.rule_forms import findings

from partrain.optim import Sgd
from partrain.protocols import Rule
from partrain.rules.average import Average
from partrain.rules.fednova import Fednova

PLAIN = Sgd(lr=0.1, batch_size=4)


def fednova(**settings: Any) -> Fednova:
    return Fednova.model_validate({"rule": "fednova", "iterations": 1} | settings)


def test_golden() -> None:
    """One iteration and two, half the way to 0 and to 4; the mean amount of work is 3/2, so ways count 3/2 and 3/4 times.

    8     -> 4                 way -4       8     - 6       = 2
          -> 6 -> 5            way -3       8     - 2.25    = 5.75           mean 3.875
    3.875 -> 1.9375            way -1.9375  3.875 - 2.90625 = 0.96875
          -> 3.9375 -> 3.96875 way 0.09375  3.875 + 0.0703125 = 3.9453125    mean 2.45703125
    """
    course = descend(fednova(), start=[8.0], targets=[[0.0], [4.0]], rounds=2, caps=[1, 2])
    assert course == [[[3.875]] * 2, [[2.45703125]] * 2]


def test_equal_work_is_averaging_to_the_bit() -> None:
    optimizer = Sgd(lr=0.1, momentum=0.9, batch_size=4)
    nova, _ = Trial(fednova(iterations=3, weights="equal"), optimizer).run(4)
    plain, _ = Trial(Average(iterations=3, weights="equal"), optimizer).run(4)
    assert nova[0].courses == nova[1].courses == plain[0].courses


def test_one_worker_trains_alone_to_the_bit() -> None:
    nova, _ = Trial(fednova(iterations=3), PLAIN, partitions=[range(26)]).run(3)
    plain, _ = Trial(Average(iterations=3), PLAIN, partitions=[range(26)]).run(3)
    assert nova[0].courses == plain[0].courses


def rests_at(rule: Rule) -> float:
    """Find the fixed point of two workers: one iteration a round towards 0, three towards 4, at the rate 1/64."""
    (end, _) = descend(rule, start=[8.0], targets=[[0.0], [4.0]], rounds=400, caps=[1, 3], lr=1 / 64)[-1]
    return end[0]


def test_unequal_work_has_no_bias() -> None:
    """The minimum of the mean of both losses is 2. At a low rate K iterations go K times as far as one, whence for averaging

        1 * 1 * x + 3 * 3 * (x - 4) = 0      x = 3.6 by items
            1 * x +     3 * (x - 4) = 0      x = 3   if replicas count alike

    With the rate r three iterations go 1 - (1 - r)^3 of the way, a third of that for FedNova, one goes r of it.
    """
    thrice = 1 - (1 - 1 / 64) ** 3
    unbiased = 4 * (thrice / 3) / (1 / 64 + thrice / 3)
    assert rests_at(fednova()) == pytest.approx(unbiased, abs=1e-4)
    assert abs(unbiased - 2) < 0.02
    assert rests_at(Average(iterations=1)) == pytest.approx(4 * 3 * thrice / (1 / 64 + 3 * thrice), abs=1e-4)
    assert rests_at(Average(iterations=1)) > 3.5
    assert rests_at(Average(iterations=1, weights="equal")) > 2.9


@pytest.mark.parametrize(("weights", "share"), [("items", 0.75), ("equal", 0.5)])
def test_weights_are_shares_of_the_items_not_of_the_work(weights: str, share: float) -> None:
    """Partitions of 12 and 36 items, two iterations each."""
    trial = Trial(fednova(iterations=2, weights=weights), PLAIN, partitions=[range(12), range(12, 48)])
    mixed, _ = trial.run(1)
    ends = []
    for rank in (0, 1):
        worker = trial.worker(rank)
        worker.begin(1, 0)
        worker.train()
        ends.append(worker.params.double())
    torch.testing.assert_close(mixed[0].params.double(), (1 - share) * ends[0] + share * ends[1], atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("iterations", [0, 1, 2, 5, 40])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_amount_of_work_under_momentum(iterations: int, momentum: float) -> None:
    """Sum the movement under a constant gradient of 1, in steps of the rate: v <- rho v + 1, a <- a + v."""
    velocity = way = 0.0
    for _ in range(iterations):
        velocity = momentum * velocity + 1
        way += velocity
    assert fednova(local_momentum=momentum).work(iterations) == pytest.approx(way)


def test_local_momentum_counts_in_the_ways() -> None:
    """rho = 1/2: amounts 1 and 1 + 1.5, their mean 1.75; ways count 1.75 and 0.7 times: 8 - 7 = 1 and 8 - 2.1 = 5.9."""
    ((one, other),) = descend(fednova(local_momentum=0.5), start=[8.0], targets=[[0.0], [4.0]], caps=[1, 2])
    assert one == other == [pytest.approx(3.45)]


@pytest.mark.parametrize(
    ("settings", "least", "most"),
    [({}, 3.5, 4.0), ({"optimizer_state": "reset"}, 3.0, 3.5), ({"optimizer_state": "reset", "local_momentum": 0.9}, 1.9, 2.1)],
)
def test_only_momentum_that_is_reckoned_with_leaves_no_bias(settings: dict[str, Any], least: float, most: float) -> None:
    """One iteration a round towards 0 and nine towards 4: the minimum of the mean of both losses is 2."""
    optimizer = Sgd(lr=1 / 512, momentum=0.9, batch_size=1)
    trial = Trial(fednova(**settings), optimizer, OneWeight, line([1.0, 1.0], [0.0, 4.0]), [range(1), range(1, 2)], [1, 9])
    workers, _ = trial.run(150)
    assert least < workers[0].params[0].item() < most


def test_a_worker_that_does_not_train_yet_has_no_say() -> None:
    (first, second), _ = Trial(fednova(iterations=3, ramp_workers=2), PLAIN).run(1)
    (alone,), _ = Trial(fednova(iterations=3), PLAIN, partitions=[range(22)]).run(1)
    assert first.courses == second.courses == alone.courses


@pytest.mark.parametrize(
    ("settings", "warned"),
    [({}, False), ({"local_momentum": 0.9}, True), ({"local_momentum": 0.9, "optimizer_state": "reset"}, False)],
)
def test_momentum_that_outlives_the_round_is_warned_about(settings: dict[str, Any], warned: bool) -> None:
    assert findings(fednova(**settings)) == [("local_momentum", "warning")] * warned
