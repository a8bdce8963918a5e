"""Robust averaging: the middle of replicas, whatever a few of them are."""

from typing import Any

import numpy as np
import pytest
import torch
from support.lab import Trial, descend
from support.rule_forms import findings

from partrain.optim import Sgd
from partrain.rules.robust import Robust

PLAIN = Sgd(lr=0.1, batch_size=4)
TARGETS = [[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [1.5, -1.0], [1e6, -1e6]]
"""The last worker is wrong."""


def robust(estimate: str, **settings: Any) -> Robust:
    return Robust.model_validate({"rule": "robust", "iterations": 1, "estimate": estimate} | settings)


def replicas(center: np.ndarray, targets: list[list[float]]) -> np.ndarray:
    """One iteration of each worker at the rate 1/2: half the way to its target."""
    return (center + np.array(targets)) / 2


@pytest.mark.parametrize("workers", [4, 5])
def test_the_median_of_each_number(workers: int) -> None:
    course = descend(robust("median"), start=[8.0, -3.0], targets=TARGETS[-workers:], rounds=3)
    center = np.array([8.0, -3.0])
    for row in course:
        center = np.median(replicas(center, TARGETS[-workers:]), axis=0)
        assert row == [pytest.approx(center.tolist(), rel=1e-6)] * workers


@pytest.mark.parametrize("faulty", [0, 1, 2])
def test_the_mean_without_the_ends(faulty: int) -> None:
    course = descend(robust("trimmed", faulty=faulty), start=[8.0, -3.0], targets=TARGETS, rounds=3)
    center = np.array([8.0, -3.0])
    for row in course:
        ordered = np.sort(replicas(center, TARGETS), axis=0)
        center = ordered[faulty : 5 - faulty].mean(0)
        assert row == [pytest.approx(center.tolist(), rel=1e-6)] * 5


@pytest.mark.parametrize("keep", [1, 3])
def test_krum_as_in_the_paper(keep: int) -> None:
    """s(i) is the sum of the squared distances to the N - f - 2 nearest others; the least ones are chosen."""
    course = descend(robust("krum", keep=keep), start=[8.0, -3.0], targets=TARGETS, rounds=3)
    center = np.array([8.0, -3.0])
    for row in course:
        points = replicas(center, TARGETS)
        scores = [sum(sorted(((points[i] - points[j]) ** 2).sum() for j in range(5) if j != i)[: 5 - 1 - 2]) for i in range(5)]
        center = points[np.argsort(scores, kind="stable")[:keep]].mean(0)
        assert row == [pytest.approx(center.tolist(), rel=1e-6)] * 5


def test_centered_clipping_as_in_the_paper() -> None:
    """v <- v + mean of (x_i - v) min(1, tau / |x_i - v|), three times from the last network."""
    course = descend(robust("clipped", radius=0.7), start=[8.0, -3.0], targets=TARGETS, rounds=4)
    center = np.array([8.0, -3.0])
    for row in course:
        points = replicas(center, TARGETS)
        for _ in range(3):
            ways = points - center
            lengths = np.linalg.norm(ways, axis=1, keepdims=True)
            center = center + (ways * np.minimum(1, 0.7 / lengths)).mean(0)
        assert row == [pytest.approx(center.tolist(), rel=1e-5)] * 5


@pytest.mark.parametrize(
    ("estimate", "settings"), [("median", {}), ("trimmed", {}), ("krum", {}), ("krum", {"keep": 3}), ("clipped", {})]
)
def test_a_wrong_worker_does_not_move_the_network_far(estimate: str, settings: dict[str, Any]) -> None:
    (end, *_) = descend(robust(estimate, **settings), start=[8.0, -3.0], targets=TARGETS, rounds=60)[-1]
    assert max(map(abs, end)) < 3


def test_a_worker_that_does_not_train_yet_has_no_say() -> None:
    (first, second), _ = Trial(robust("median", iterations=3, ramp_workers=2), PLAIN).run(1)
    (alone,), _ = Trial(robust("median", iterations=3), PLAIN, partitions=[range(22)]).run(1)
    assert first.courses == second.courses == alone.courses


def test_parts_of_large_networks_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for estimate in "median", "krum":
        rule = robust(estimate, iterations=2, faulty=0)
        whole, _ = Trial(rule, PLAIN).run(2)
        monkeypatch.setattr("partrain.rules.robust.CHUNK", 3)
        parts, _ = Trial(rule, PLAIN).run(2)
        monkeypatch.undo()
        assert torch.equal(whole[0].params, parts[0].params)


def test_too_few_workers_are_refused() -> None:
    assert findings(robust("trimmed"), 2) == [("faulty", "error")]
    assert findings(robust("krum"), 4) == [("faulty", "error")]
    assert findings(robust("krum", keep=5), 5) == [("keep", "error")]
    assert [findings(robust(name), 5) for name in ("median", "trimmed", "krum", "clipped")] == [[]] * 4
