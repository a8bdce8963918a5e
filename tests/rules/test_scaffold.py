"""SCAFFOLD: control variates."""

from typing import Any

import pytest
import torch
from support.lab import Trial, descend

from partrain.optim import Sgd
from partrain.optim.sections import Adam
from partrain.protocols.rule_traits import JobContext
from partrain.rules.average import Average
from partrain.rules.scaffold import Scaffold

PLAIN = Sgd(lr=0.1, batch_size=4)


def scaffold(**settings: Any) -> Scaffold:
    return Scaffold.model_validate({"rule": "scaffold", "iterations": 2} | settings)


@pytest.mark.parametrize("outer", [1.0, 0.5])
@pytest.mark.parametrize("caps", [[2, 2], [1, 5]])
def test_the_rounds_are_those_of_the_paper(outer: float, caps: list[int]) -> None:
    """Algorithm 1 with option II and all clients, in float64, on the losses |x - t_i|^2 / 2."""
    start, targets, rate = [8.0, -3.0], [[1.0, -2.0], [3.0, 5.0]], 0.25
    course = descend(scaffold(outer_lr=outer), start=start, targets=targets, rounds=4, caps=caps, lr=rate)
    x, c = torch.tensor(start, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    own = [c.clone(), c.clone()]
    for row in course:
        ways, changes = [], []
        for i, (target, iterations) in enumerate(zip(targets, caps, strict=True)):
            y = x.clone()
            for _ in range(iterations):
                y = y - rate * ((y - torch.tensor(target, dtype=torch.float64)) - own[i] + c)
            new = own[i] - c + (x - y) / (iterations * rate)
            ways.append(y - x)
            changes.append(new - own[i])
            own[i] = new
        x, c = x + outer * (ways[0] + ways[1]) / 2, c + (changes[0] + changes[1]) / 2
        torch.testing.assert_close(torch.tensor(row, dtype=torch.float64), x.repeat(2, 1), atol=1e-5, rtol=1e-5)


def test_unlike_workers_leave_no_bias() -> None:
    """One iteration a round towards 0, three towards 4: the minimum of the mean of both losses is 2, where averaging does not rest."""
    for rule, rest in (scaffold(), 2.0), (Average(iterations=1, weights="equal"), 3.0):
        (end, _) = descend(rule, start=[8.0], targets=[[0.0], [4.0]], rounds=400, caps=[1, 3], lr=1 / 64)[-1]
        assert end[0] == pytest.approx(rest, abs=0.03)


def test_equal_workers_train_as_by_averaging() -> None:
    """One worker alone has c_i = c."""
    controlled, _ = Trial(scaffold(iterations=3), PLAIN, partitions=[range(26)]).run(3)
    plain, _ = Trial(Average(iterations=3), PLAIN, partitions=[range(26)]).run(3)
    torch.testing.assert_close(controlled[0].params, plain[0].params)


def test_a_worker_that_does_not_train_yet_has_no_say() -> None:
    (first, second), _ = Trial(scaffold(iterations=3, ramp_workers=2), PLAIN).run(1)
    (alone,), _ = Trial(scaffold(iterations=3), PLAIN, partitions=[range(22)]).run(1)
    assert first.courses == second.courses == alone.courses


@pytest.mark.parametrize(
    ("optimizer", "warned"),
    [(PLAIN, False), (Sgd(lr=0.1, momentum=0.9, batch_size=4), True), (Adam(name="adam", lr=0.1, batch_size=4), True)],
)
def test_steps_that_are_no_gradients_are_warned_of(optimizer: Any, warned: bool) -> None:
    found = [(str(finding.path[-1]), finding.severity) for finding in scaffold().check(JobContext(2, optimizer))]
    assert found == [("name", "warning")] * warned
