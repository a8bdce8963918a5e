"""Parameter averaging: unequal work, weights."""

import pytest
from lab import descend

from partrain.rules.average import Average


def test_replicas_are_weighted_by_their_items() -> None:
    """One iteration ends at 8 -> 4; three at 8 -> 6 -> 5 -> 4.5; with weights 1 and 3 the mean is (4 + 3 * 4.5) / 4."""
    rule = Average(iterations=1)
    assert descend(rule, start=[8.0], targets=[[0.0], [4.0]], caps=[1, 3]) == [[[4.375], [4.375]]]


def test_replicas_may_count_alike() -> None:
    rule = Average(iterations=1, weights="equal")
    assert descend(rule, start=[8.0], targets=[[0.0], [4.0]], caps=[1, 3]) == [[[4.25], [4.25]]]


def test_each_coordinate_is_averaged_by_itself() -> None:
    rule = Average(iterations=1)
    assert descend(rule, start=[0.0, 8.0], targets=[[4.0, 0.0], [0.0, 8.0], [2.0, 4.0]]) == [[[1.0, 6.0]] * 3]


@pytest.mark.parametrize(("weights", "weight"), [("items", 640.0), ("equal", 1.0)])
def test_weight_of_a_replica(weights: str, weight: float) -> None:
    assert Average.model_validate({"weights": weights}).weight(640) == weight
