"""The workers that train in a round: drawn alike by all, as often as they should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from support.lab import Trial

from partrain.optim import Sgd
from partrain.rules.average import Average
from partrain.training.participation import Participation

ROUNDS = 4_000


def draws(sizes: list[int], availability: Sequence[Sequence[float]] = (), seed: int = 1, **sync: Any) -> list[list[int]]:
    """Draw the workers of many rounds."""
    drawn = Participation(Average(iterations=1, **sync), seed, sizes, availability)
    return [list(drawn.of(number)) for number in range(1, ROUNDS + 1)]


def frequencies(rounds: list[list[int]], workers: int) -> np.ndarray[Any, Any]:
    """Count how often each worker trains, per round."""
    counts = Counter(rank for ranks in rounds for rank in ranks)
    return np.array([counts[rank] for rank in range(workers)]) / len(rounds)


@pytest.mark.parametrize(("clients", "count"), [(3, 3), (0.3, 3), (0.25, 2), (0.01, 1), (10, 10), (0.99, 10)])
def test_a_round_has_so_many_workers(clients: float, count: int) -> None:
    for ranks in draws([7] * 10, clients=clients)[:50]:
        assert len(ranks) == count
        assert ranks == sorted(set(ranks)), "each once"
        assert set(ranks) <= set(range(10))


def test_all_workers_train_by_default() -> None:
    assert draws([5, 6, 7])[:3] == [[0, 1, 2]] * 3
    assert draws([5] * 4, ramp_workers=4)[:5] == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3]]


def test_uniform_draws_are_as_frequent_for_each_worker_whatever_its_items() -> None:
    measured = frequencies(draws([1, 10, 100, 1000], clients=2), 4)
    np.testing.assert_allclose(measured, 0.5, atol=4 * 0.5 / ROUNDS**0.5)


def test_a_worker_of_twice_the_items_is_drawn_twice_as_often() -> None:
    measured = frequencies(draws([100, 200, 300, 400], clients=1, client_sampling="items"), 4)
    np.testing.assert_allclose(measured, [0.1, 0.2, 0.3, 0.4], atol=4 * 0.5 / ROUNDS**0.5)


def test_workers_are_drawn_among_those_that_can_be_reached() -> None:
    chances = (0.2, 0.5, 0.9, 1.0)
    cycles = [[chance] for chance in chances]
    measured = frequencies(draws([9] * 4, cycles), 4)
    np.testing.assert_allclose(measured, chances, atol=4 * 0.5 / ROUNDS**0.5)
    rounds = draws([9] * 4, cycles, clients=2)
    assert {len(ranks) for ranks in rounds} == {1, 2}, "fewer where fewer can be reached"
    assert frequencies(rounds, 4)[0] < 0.2
    assert all(draws([9] * 3, [[0.05]] * 3)), "a round begins when a worker can be reached"


def test_rounds_and_seeds_draw_anew_and_a_round_always_the_same() -> None:
    first = draws([4] * 8, clients=2)
    assert first == draws([4] * 8, clients=2)
    assert first != draws([4] * 8, clients=2, seed=2)
    assert len({tuple(ranks) for ranks in first}) == 28, "all pairs of 8"


def test_a_trace_says_which_workers_can_be_reached_and_begins_again() -> None:
    trace = [[1, 0, 0, 0], [0, 1, 0], [1, 1, 0, 0]]
    expected = [[0, 2], [1, 2], [0, 1, 2], [0, 1, 2], [0, 1, 2], [2], [1]]
    assert draws([9] * 3, trace)[:7] == expected, "rounds 3, 4 and 7 take the next moment at which one can be reached"


def test_workers_take_the_clients_of_a_round_in_turn() -> None:
    drawn = Participation(Average(iterations=1), 1, [5] * 50, workers=4)
    each = Participation(Average(iterations=1, clients=4), 1, [5] * 50)
    for number in range(1, 100):
        assert drawn.of(number) == range(4)
        assert [drawn.client_of(rank, number) for rank in range(4)] == each.of(number), "as if each client had a worker"
    seldom = Participation(Average(iterations=1), 1, [5] * 50, [[0.02]] * 50, workers=4)
    counts = {len(seldom.of(number)) for number in range(1, 100)}
    assert counts >= {1, 2}
    assert max(counts) <= 4, "fewer where fewer can be reached"


def test_a_worker_that_sits_a_round_out_trains_nothing_sends_nothing_and_gets_the_mean() -> None:
    parts = [range(16), range(16, 32), range(32, 48)]
    trial = Trial(Average(iterations=2, clients=1), Sgd(lr=0.1, batch_size=4), partitions=parts)
    members, _ = trial.run(6)
    trained = [[record["items"] for record in member.records] for member in members]
    drawn = Participation(trial.rule, trial.seed, [16] * 3)
    assert [[8 * (rank in drawn.of(number)) for number in range(1, 7)] for rank in range(3)] == trained
    for member in members:
        for record in member.records:
            assert record["items"] or record["bytes"] == record["wait"] == 0
            assert record["bytes"] or not record["items"]
        assert torch.equal(member.params, members[0].params)


def test_the_schedule_counts_the_workers_that_train() -> None:
    from partrain.training.learning_rate import LearningRate

    rule = Average(iterations=10, clients=2, lr_scale="linear")
    rate = LearningRate(Sgd(lr=0.1, batch_size=1, schedule="linear"), rule, 1000)
    rate.begin(1, 0, [10, 30], 10)
    assert rate.at(0) == pytest.approx(0.2), "times two workers, not three"
    assert rate.at(10) == pytest.approx(0.2 * (1 - 40 / 1000)), "10 and 30 item-iterations later"
