"""Slow momentum: averaging with a momentum from round to round."""

from typing import Any

import pytest
import torch
from support.lab import Trial, descend
from support.rule_forms import findings

from partrain.optim import Sgd
from partrain.rules.average import Average
from partrain.rules.slowmo import Slowmo


def slowmo(**settings: Any) -> Slowmo:
    return Slowmo.model_validate({"rule": "slowmo", "iterations": 1} | settings)


def course(rule: Slowmo, rounds: int = 3, lr: float = 0.5) -> list[float]:
    """Two workers from 8, each iteration going the share `lr` of the way to 0 and to 4."""
    replicas = descend(rule, start=[8.0], targets=[[0.0], [4.0]], rounds=rounds, lr=lr)
    assert all(one == other for one, other in replicas)
    return [one[0] for one, _ in replicas]


def test_golden() -> None:
    """Momentum 1/2, the rate 1/2, so the delta counts twice in u:

    8 -> 4, 6     mean 5     delta 3      u = 6           8 - 6 / 2 = 5
    5 -> 2.5, 4.5 mean 3.5   delta 1.5    u = 3 + 3       5 - 6 / 2 = 2
    2 -> 1, 3     mean 2     delta 0      u = 3 + 0       2 - 3 / 2 = 0.5
    """
    assert course(slowmo(momentum=0.5)) == [5.0, 2.0, 0.5]


def test_outer_lr_is_the_share_of_the_step_that_is_taken() -> None:
    """Half of it: 8 - 6 / 4 = 6.5; then 3.25 and 5.25, mean 4.25, delta 2.25, u = 3 + 4.5, 6.5 - 7.5 / 4 = 4.625."""
    assert course(slowmo(momentum=0.5, outer_lr=0.5), rounds=2) == [6.5, 4.625]


def test_momentum_is_kept_in_units_of_a_gradient() -> None:
    """The rate 1/4 at a flat place: u = 4 delta, so u * lr is the delta whatever the rate.

    8 -> 6, 7: mean 6.5, delta 1.5. Then 4.875 and 5.875, mean 5.375, delta 1.125, and half of the 1.5 before: 6.5 - 1.875.
    """
    assert course(slowmo(momentum=0.5), rounds=2, lr=0.25) == [6.5, 4.625]


def test_without_momentum_it_is_averaging() -> None:
    optimizer = Sgd(lr=0.1, momentum=0.9, batch_size=4)
    slow, _ = Trial(slowmo(iterations=3, momentum=0.0), optimizer).run(4)
    plain, _ = Trial(Average(iterations=3), optimizer).run(4)
    torch.testing.assert_close(slow[0].params, plain[0].params, atol=1e-6, rtol=1e-5)
    moved, _ = Trial(slowmo(iterations=3, momentum=0.5), optimizer).run(4)
    assert (moved[0].params - plain[0].params).abs().max() > 0.01


def test_at_a_constant_rate_it_is_block_momentum() -> None:
    """BMUF: D <- beta D + zeta (mean - x), x <- x + D; here the mean of two workers after an iteration is x / 2 + 1."""
    x, momentum, blocks = 8.0, 0.0, []
    for _ in range(6):
        momentum = 0.5 * momentum + 0.5 * (x / 2 + 1 - x)
        x += momentum
        blocks.append(x)
    assert course(slowmo(momentum=0.5, outer_lr=0.5), rounds=6) == blocks


@pytest.mark.parametrize(
    ("workers", "momentum"), [(1, 0.0), (3, 0.0), (4, 0.2), (7, 0.2), (8, 0.5), (15, 0.5), (16, 0.6), (18, 0.6)]
)
def test_momentum_by_number_of_workers(workers: int, momentum: float) -> None:
    targets = [[float(rank)] for rank in range(workers)]
    default, given = (descend(rule, [8.0], targets, rounds=3) for rule in (slowmo(), slowmo(momentum=momentum)))
    assert default == given
    assert default != descend(slowmo(momentum=momentum + 0.1), [8.0], targets, rounds=3)


def test_unequal_caps_do_not_part_the_replicas() -> None:
    """Worker 1 ends the round at another rate than worker 0."""
    optimizer = Sgd(lr=0.1, batch_size=4, schedule="linear")
    workers, _ = Trial(slowmo(momentum=0.5), optimizer, caps=[1, 3], horizon=200).run(4)
    assert workers[0].records[0]["lr"] != workers[1].records[0]["lr"]
    assert workers[0].courses == workers[1].courses


def test_a_rate_of_zero_moves_nothing() -> None:
    assert course(slowmo(momentum=0.5), rounds=2, lr=0.0) == [8.0, 8.0]


def test_a_worker_that_does_not_train_yet_has_no_say() -> None:
    optimizer = Sgd(lr=0.1, batch_size=4)
    (first, second), _ = Trial(slowmo(momentum=0.5, ramp_workers=2), optimizer).run(1)
    (alone,), _ = Trial(slowmo(momentum=0.5), optimizer, partitions=[range(22)]).run(1)
    assert first.courses == second.courses == alone.courses


@pytest.mark.parametrize(
    ("momentum", "workers", "warned"),
    [(None, 2, False), (0.5, 2, False), (0.7, 2, True), (0.6, 4, False), (0.7, 4, True), (0.7, 8, False), (0.8, 8, True)],
)
def test_a_momentum_too_high_for_so_few_is_warned_about(momentum: float | None, workers: int, warned: bool) -> None:
    assert findings(slowmo(momentum=momentum), workers) == [("momentum", "warning")] * warned
