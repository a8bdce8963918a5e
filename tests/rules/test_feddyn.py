"""FedDyn: dynamic regularization."""

from typing import Any

import numpy as np
import pytest
from support.lab import Trial, descend
from support.rule_forms import findings

from partrain.optim import Sgd
from partrain.optim.sections import Adam
from partrain.protocols.rule_traits import JobContext
from partrain.rules.average import Average
from partrain.rules.feddyn import Feddyn

PLAIN = Sgd(lr=0.1, batch_size=4)


def feddyn(**settings: Any) -> Feddyn:
    return Feddyn.model_validate({"rule": "feddyn", "iterations": 1} | settings)


def test_golden() -> None:
    """One iteration at the rate 1/2 towards 0 and 4, alpha = 1:

    8 -> 4, 6     h_i = 4, 2     mean 5    h = 3            5 - 3 = 2
    2 -> 3, 4     h_i = 3, 0     mean 3.5  h = 3 - 1.5      3.5 - 1.5 = 2

    In the second round the gradients are 2 - 4 and -2 - 2.
    """
    course = descend(feddyn(proximal=1.0), start=[8.0], targets=[[0.0], [4.0]], rounds=2)
    assert course == [[[2.0]] * 2] * 2


@pytest.mark.parametrize("alpha", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("weights", ["equal", "items"])
def test_the_rounds_are_those_of_the_paper(alpha: float, weights: str) -> None:
    """Algorithm 1 with all clients, in float64, on the losses |x - t_i|^2 / 2; the minimum by gradient steps."""
    start, targets, caps, rate = [8.0, -3.0], [[1.0, -2.0], [3.0, 5.0]], [1, 4], 0.25
    rule = feddyn(proximal=alpha, weights=weights)
    course = descend(rule, start=start, targets=targets, rounds=6, caps=caps, lr=rate)
    theta, server, linear = np.array(start), np.zeros(2), np.zeros((2, 2))
    for row in course:
        ends = []
        for i, (target, iterations) in enumerate(zip(np.array(targets), caps, strict=True)):
            y = theta.copy()
            for _ in range(iterations):
                y -= rate * ((y - target) - linear[i] + alpha * (y - theta))
            linear[i] -= alpha * (y - theta)
            ends.append(y)
        mean = np.average(ends, axis=0, weights=caps if weights == "items" else None)
        server -= alpha * (mean - theta)
        theta = mean - server / alpha
        np.testing.assert_allclose(row, [theta, theta], atol=1e-4, rtol=1e-5)


def test_exact_workers_take_the_papers_minimum() -> None:
    """Many iterations reach argmin f_i(x) - <h_i, x> + alpha/2 |x - a|^2, where the new h_i is the gradient of f_i."""
    alpha, targets = 0.5, np.array([[0.0], [4.0]])
    course = descend(feddyn(proximal=alpha), start=[8.0], targets=targets.tolist(), rounds=5, caps=[60, 60])
    theta, server, linear = np.array([8.0]), np.zeros(1), np.zeros((2, 1))
    for row in course:
        ends = (targets + linear + alpha * theta) / (1 + alpha)
        linear = ends - targets
        server = server - alpha * (ends - theta).mean(axis=0)
        theta = ends.mean(axis=0) - server / alpha
        np.testing.assert_allclose(row, [theta, theta], atol=1e-5)


@pytest.mark.parametrize(("weights", "rest"), [("equal", 2.0), ("items", 3.0)])
def test_unlike_workers_leave_no_bias(weights: str, rest: float) -> None:
    """One iteration a round towards 0, three towards 4: averaging rests at neither minimum, (0 + 4) / 2 and (0 + 3 * 4) / 4."""
    targets, caps = [[0.0], [4.0]], [1, 3]
    course = descend(feddyn(proximal=0.5, weights=weights), start=[8.0], targets=targets, rounds=400, caps=caps, lr=1 / 8)
    assert course[-1][0] == [pytest.approx(rest, abs=0.01)]
    plain = descend(
        Average.model_validate({"weights": weights, "iterations": 1}), [8.0], targets, rounds=400, caps=caps, lr=1 / 8
    )
    assert plain[-1][0] != [pytest.approx(rest, abs=0.2)]


def test_a_worker_that_does_not_train_yet_keeps_its_term() -> None:
    """A round of one of two workers: the paper's h takes half of its movement, so a goes one and a half times as far as it."""
    start = Trial(feddyn(), PLAIN).worker(0).params.clone()
    (first, second), _ = Trial(feddyn(iterations=3, ramp_workers=2), PLAIN).run(1)
    (alone,), _ = Trial(feddyn(iterations=3), PLAIN, partitions=[range(22)]).run(1)
    assert first.courses == second.courses
    np.testing.assert_allclose((first.params - start) / 1.5, (alone.params - start) / 2, atol=1e-6)


def test_steps_that_overshoot_are_found() -> None:
    assert findings(feddyn()) == []
    (finding,) = feddyn(proximal=20.0).check(JobContext(2, PLAIN))
    assert (finding.path[-1], finding.severity) == ("proximal", "warning")


@pytest.mark.parametrize(
    ("settings", "optimizer", "warned"),
    [
        ({"iterations": 20}, PLAIN, False),
        ({"iterations": 19}, PLAIN, True),
        ({"iterations": 2, "proximal": 0.1}, PLAIN, False),
        ({"iterations": 19}, Sgd(lr=0.1, momentum=0.9), False),
        ({"iterations": 19}, Adam(name="adam", lr=0.01), False),
        ({"iterations": None, "passes": 1}, PLAIN, False),
    ],
)
def test_a_correction_that_hardly_fades_is_found(settings: dict[str, Any], optimizer: Any, warned: bool) -> None:
    found = list(feddyn(**settings).check(JobContext(2, optimizer)))
    assert [(finding.path[-1], finding.suggestion) for finding in found] == [("proximal", "with 0.11 it forgets 0.2")] * warned
