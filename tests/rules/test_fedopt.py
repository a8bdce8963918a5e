"""FedOpt: adaptive optimizers of the server."""

from typing import Any

import numpy as np
import pytest
from support.lab import Trial, descend
from support.rule_forms import findings

from partrain.optim import Sgd
from partrain.protocols.rule_traits import JobContext
from partrain.rules.fedopt import Fedopt

PLAIN = Sgd(lr=0.1, batch_size=4)
ALL = pytest.mark.parametrize("server", ["adam", "yogi", "adagrad"])


def fedopt(**settings: Any) -> Fedopt:
    return Fedopt.model_validate({"rule": "fedopt", "iterations": 1} | settings)


def test_golden() -> None:
    """No momentum, tau = 1, so v begins at 1; beta2 = 1/2. Two workers go half the way to 0 and to 4, and their mean half the way to 2.

    8 -> 4, 6     mean 5     delta -3     v = (1 + 9) / 2 = 5     8 - 3 (sqrt(5) - 1) / (5 - 1)
    """
    course = descend(fedopt(outer_lr=1.0, beta1=0.0, beta2=0.5, tau=1.0), start=[8.0], targets=[[0.0], [4.0]])
    assert course == [[[pytest.approx(8 - 0.75 * (5**0.5 - 1))]] * 2]


@ALL
@pytest.mark.parametrize("settings", [{}, {"beta1": 0.5, "beta2": 0.8, "tau": 0.1, "outer_lr": 0.3}])
@pytest.mark.parametrize("weights", ["items", "equal"])
def test_the_rounds_are_those_of_the_paper(server: str, settings: dict[str, float], weights: str) -> None:
    """Algorithm 2 with all clients, in float64, on the losses |x - t_i|^2 / 2; one of the numbers is at rest at first."""
    start, targets, caps, rate = [8.0, -3.0, 2.0], [[1.0, -2.0, 2.0], [3.0, 5.0, 2.001]], [1, 4], 0.25
    rule = fedopt(server=server, weights=weights, **settings)
    course = descend(rule, start=start, targets=targets, rounds=6, caps=caps, lr=rate)
    defaults = {"beta1": 0.0 if server == "adagrad" else 0.9, "beta2": 0.99, "tau": 1e-3, "outer_lr": 0.01}
    beta1, beta2, tau, eta = (settings.get(key, value) for key, value in defaults.items())
    x, m, v = np.array(start), np.zeros(3), np.full(3, tau**2)
    for row in course:
        ends = []
        for target, iterations in zip(np.array(targets), caps, strict=True):
            y = x.copy()
            for _ in range(iterations):
                y -= rate * (y - target)
            ends.append(y - x)
        delta = np.average(ends, axis=0, weights=caps if weights == "items" else None)
        m = beta1 * m + (1 - beta1) * delta
        if server == "adagrad":
            v = v + delta**2
        elif server == "adam":
            v = beta2 * v + (1 - beta2) * delta**2
        else:
            v = v - (1 - beta2) * delta**2 * np.sign(v - delta**2)
        x = x + eta * m / (np.sqrt(v) + tau)
        np.testing.assert_allclose(row, [x, x], atol=1e-5, rtol=1e-5)


@ALL
def test_it_learns_with_a_momentum_and_without(server: str) -> None:
    for beta1 in (0.0, 0.9):
        course = descend(fedopt(server=server, outer_lr=0.3, beta1=beta1), [8.0], [[0.0], [4.0]], rounds=400)
        assert course[-1] == [[pytest.approx(2.0, abs=0.3)]] * 2


def test_a_worker_that_does_not_train_yet_has_no_say() -> None:
    (first, second), _ = Trial(fedopt(iterations=3, ramp_workers=2), PLAIN).run(1)
    (alone,), _ = Trial(fedopt(iterations=3), PLAIN, partitions=[range(22)]).run(1)
    assert first.courses == second.courses == alone.courses


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({}, ""),
        ({"server": "yogi", "beta1": 0.9, "beta2": 0.5}, ""),
        ({"server": "adam", "beta1": 0.9, "beta2": 0.5}, "beta2"),
        ({"server": "adagrad", "beta2": 0.9}, "beta2"),
        ({"outer_lr": 1.0}, ""),
        ({"outer_lr": 2.0}, "outer_lr"),
        ({"outer_lr": 2.0, "tau": 2.0}, ""),
    ],
)
def test_senseless_settings_are_warned_about(settings: dict[str, Any], key: str) -> None:
    assert findings(fedopt(**settings)) == [(key, "warning")] * bool(key)


def test_messages_say_why() -> None:
    (finding,) = fedopt(server="adam", beta2=0.5).check(JobContext(2))
    assert finding.message == "the squares forget faster than the momentum (0.5 < 0.9^2): a step grows while deltas shrink"
