"""Trajectories that can be checked in the head: one weight, two workers."""

import pytest
from support.lab import OneWeight, Trial, descend, line

from partrain.optim import Sgd
from partrain.protocols import Rule
from partrain.rules.average import Average
from partrain.rules.bsp import Bsp


def course(rule: Rule, rounds: int) -> list[float]:
    """The weight after each round of real workers: one has the item x = 1, y = 0, the other x = 2, y = 8; the rate is 1/8."""
    trial = Trial(
        rule=rule,
        optimizer=Sgd(lr=0.125, batch_size=1),
        network=OneWeight,
        items=line([1.0, 2.0], [0.0, 8.0]),
        partitions=[range(1), range(1, 2)],
    )
    workers, _ = trial.run(rounds)
    assert workers[0].courses == workers[1].courses
    return [row[0] for row in workers[0].courses]


def test_average() -> None:
    """y = w x with the loss (w x - y)^2 has the gradient 2 x (w x - y): 2 w for the one, 8 (w - 4) for the other.

    With the rate 1/8 the one keeps 3/4 of w at each iteration, the other is at 4 at once and stays there.
    Two iterations, then the mean:

        16 -> 12 -> 9            |  6.5 -> 4.875 -> 3.65625
        16 ->  4 -> 4    6.5     |  6.5 -> 4     -> 4         3.828125
    """
    assert course(Average(iterations=2), rounds=2) == [6.5, 3.828125]


def test_bsp() -> None:
    """The same items. The mean gradient is (2 w + 8 w - 32) / 2 = 5 w - 16, so w <- w - (5 w - 16) / 8 = 3 w / 8 + 2.

    Two such iterations a round:  16 -> 8 -> 5  |  5 -> 3.875 -> 3.453125
    """
    assert course(Bsp(rule="bsp", iterations=2), rounds=2) == [5.0, 3.453125]


@pytest.mark.parametrize("rule", [Average(iterations=2), Bsp(rule="bsp", iterations=2)])
def test_equal_curvature(rule: Rule) -> None:
    """Losses |x - 0|^2 / 2 and |x - 4|^2 / 2, the rate 1/2: each iteration goes half the way. Rules agree, for all is linear.

    average:   8 -> 4 -> 2      |  3.5 -> 1.75 -> 0.875
               8 -> 6 -> 5  3.5 |  3.5 -> 3.75 -> 3.875  2.375
    bsp, half the way to the mean of the targets, 2:   8 -> 5 -> 3.5  |  3.5 -> 2.75 -> 2.375
    """
    assert descend(rule, start=[8.0], targets=[[0.0], [4.0]], rounds=2) == [[[3.5], [3.5]], [[2.375], [2.375]]]
