"""Swapping: networks travel."""

from typing import Any

import pytest
import torch
from support.lab import Quadratic, Trial, descend, restless, simulate
from torch import Tensor

from partrain.comm.group import ArenaGroup
from partrain.optim import Sgd
from partrain.protocols.rule_traits import JobContext
from partrain.rules.swap import Swap


def swap(**settings: Any) -> Swap:
    return Swap.model_validate({"rule": "swap", "iterations": 1} | settings)


def test_golden() -> None:
    """Each iteration goes half the way to 0 and to 4; then the two change places.

    8 -> 4    8 -> 6    |  6 -> 3    4 -> 4    |  4 -> 2    3 -> 3.5
    6         4         |  4         3         |  3.5       2
    """
    course = descend(swap(), start=[8.0], targets=[[0.0], [4.0]], rounds=3)
    assert course == [[[6.0], [4.0]], [[4.0], [3.0]], [[3.5], [2.0]]]


def test_every_so_many_rounds() -> None:
    """8 -> 4 -> 2 and 8 -> 6 -> 5, which then change places."""
    course = descend(swap(every=2), start=[8.0], targets=[[0.0], [4.0]], rounds=2)
    assert course == [[[4.0], [6.0]], [[5.0], [2.0]]]


def journeys(rule: Swap, workers: int, rounds: int) -> list[list[int]]:
    """For each round: whose network each worker has after it, if each had its own before."""

    def program(group: ArenaGroup, row: Tensor) -> list[int]:
        worker, seen = Quadratic(group, row, [0.0], [0.0], iterations=0), []
        for _ in range(rounds):
            worker.begin()
            worker.params.fill_(group.rank)
            rule.round(worker, group, None)
            seen.append(int(worker.params))
        return seen

    return [list(places) for places in zip(*simulate(workers, program, 8, 2), strict=True)]


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7])
def test_pairs_are_disjoint(workers: int) -> None:
    for places in journeys(swap(), workers, rounds=10):
        assert [places[other] for other in places] == list(range(workers))
        assert sum(places[rank] == rank for rank in range(workers)) == workers % 2


@pytest.mark.parametrize("workers", [3, 4])
def test_everyone_meets_everyone(workers: int) -> None:
    """And where they are an odd number, each is left over at times."""
    met = list(zip(*journeys(swap(), workers, rounds=40), strict=True))
    everyone = set(range(workers))
    assert [set(networks) for networks in met] == [everyone if workers % 2 else everyone - {rank} for rank in range(workers)]


def test_moments_stay_and_params_go() -> None:
    """A round with the swap at its end, and one without."""
    optimizer = Sgd(lr=0.1, momentum=0.9, batch_size=4)
    (one, other), _ = Trial(swap(iterations=3), optimizer).run(1)
    (first, second), _ = Trial(swap(iterations=3, every=2), optimizer).run(1)
    assert torch.equal(one.params, second.params)
    assert torch.equal(other.params, first.params)
    assert not torch.equal(one.params, other.params)
    assert torch.equal(one.worker.optimizer.moments, first.worker.optimizer.moments)
    assert torch.equal(other.worker.optimizer.moments, second.worker.optimizer.moments)


def test_the_network_that_counts_is_that_of_worker_0() -> None:
    def program(group: ArenaGroup, row: Tensor) -> tuple[list[float], list[float]]:
        worker = Quadratic(group, row, [3.0 + group.rank, 5.0], [0.0, 0.0])
        result = swap().result(worker, group, None)
        assert result.data_ptr() != worker.params.data_ptr()
        return result.tolist(), worker.params.tolist()

    assert simulate(3, program, 8, 4) == [([3.0, 5.0], [3.0 + rank, 5.0]) for rank in range(3)]


def test_replicas_differ_and_statistics_are_recomputed() -> None:
    assert not swap().keeps_replicas_equal
    assert swap().buffers == "recalibrate"
    workers, _ = Trial(swap(iterations=3), network=restless).run(2)
    assert workers[0].courses != workers[1].courses


def test_a_worker_that_does_not_train_yet_swaps_with_nobody() -> None:
    """Of three workers one trains in the first round, two in the second."""
    workers, _ = Trial(swap(ramp_workers=3), partitions=[range(16), range(16, 32), range(32, 48)]).run(2)
    (alone,), _ = Trial(swap(), partitions=[range(16)]).run(1)
    start = Trial(swap()).worker().params.tolist()
    assert [worker.courses[0] for worker in workers] == [alone.courses[0], start, start]
    assert [worker.courses[1] == start for worker in workers] == [False, False, True]


@pytest.mark.parametrize(("workers", "word"), [(1, "single"), (2, None), (3, "odd"), (4, None), (7, "odd")])
def test_an_odd_number_is_warned_about(workers: int, word: str | None) -> None:
    found = list(swap().check(JobContext(workers)))
    assert [finding.severity for finding in found] == ["warning"] * bool(word)
    assert all(str(word) in finding.message for finding in found)
