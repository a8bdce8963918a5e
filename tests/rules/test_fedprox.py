"""FedProx: a pull towards the round's start."""

from typing import Any

import pytest
import torch
from support.lab import Trial, descend
from support.rule_forms import findings

from partrain.optim import Sgd
from partrain.protocols.rule_traits import JobContext
from partrain.rules.average import Average
from partrain.rules.fedprox import Fedprox

PLAIN = Sgd(lr=0.1, batch_size=4)


def fedprox(**settings: Any) -> Fedprox:
    return Fedprox.model_validate({"rule": "fedprox", "iterations": 2} | settings)


def test_golden() -> None:
    """Two iterations at the rate 1/2 towards 0 and 4, mu = 1: the second gradient is the distance from the target less the way so far.

    8 -> 8 - 8/2 = 4 -> 4 - (4 - 4)/2 = 4          8 -> 8 - 4/2 = 6 -> 6 - (2 - 2)/2 = 6          mean 5
    5 -> 2.5         -> 2.5                        5 -> 4.5         -> 4.5                        mean 3.5
    """
    course = descend(fedprox(proximal=1.0), start=[8.0], targets=[[0.0], [4.0]], rounds=2, caps=[2, 2])
    assert course == [[[5.0]] * 2, [[3.5]] * 2]


@pytest.mark.parametrize("mu", [0.001, 0.1, 1.0])
def test_the_steps_are_those_on_the_papers_objective(mu: float) -> None:
    """Gradient descent in float64 on h_i(x) = |x - t_i|^2 / 2 + mu |x - a|^2 / 2, by autograd."""
    targets, caps, rate = [[1.0, -2.0], [3.0, 5.0]], [2, 5], 0.25
    course = descend(fedprox(proximal=mu), start=[8.0, -3.0], targets=targets, rounds=3, caps=caps, lr=rate)
    a = torch.tensor([8.0, -3.0], dtype=torch.float64)
    for row in course:
        ends = []
        for target, iterations in zip(targets, caps, strict=True):
            x = a.clone().requires_grad_()
            for _ in range(iterations):
                h = 0.5 * (x - torch.tensor(target, dtype=torch.float64)).square().sum() + 0.5 * mu * (x - a).square().sum()
                (gradient,) = torch.autograd.grad(h, x)
                x = (x.detach() - rate * gradient).requires_grad_()
            ends.append(x.detach() * iterations)  # one item an iteration
        a = sum(ends) / sum(caps)  # type: ignore[assignment]
        torch.testing.assert_close(torch.tensor(row, dtype=torch.float64), a.repeat(2, 1), atol=1e-5, rtol=1e-5)


def test_without_a_pull_it_is_averaging() -> None:
    prox, _ = Trial(fedprox(proximal=0.0, iterations=3), PLAIN).run(4)
    plain, _ = Trial(Average(iterations=3), PLAIN).run(4)
    torch.testing.assert_close(prox[0].params, plain[0].params)


def test_a_stronger_pull_keeps_replicas_nearer() -> None:
    def way(mu: float) -> float:
        trial = Trial(fedprox(proximal=mu, iterations=8), PLAIN)
        start, (worker, _) = trial.worker(0).params.clone(), trial.run(1)[0]
        return float((worker.params - start).norm())

    assert way(10.0) < way(1.0) < way(0.0)


def test_a_worker_that_does_not_train_yet_has_no_say() -> None:
    (first, second), _ = Trial(fedprox(iterations=3, ramp_workers=2), PLAIN).run(1)
    (alone,), _ = Trial(fedprox(iterations=3), PLAIN, partitions=[range(22)]).run(1)
    assert first.courses == second.courses == alone.courses


def test_steps_that_overshoot_are_found() -> None:
    assert findings(fedprox()) == []
    (finding,) = fedprox(proximal=20.0).check(JobContext(2, PLAIN))
    assert (finding.path[-1], finding.severity) == ("proximal", "warning")
