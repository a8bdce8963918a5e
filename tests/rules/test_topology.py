"""Topologies: mixing keeps the mean and draws all workers together; pairs are disjoint."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partrain.rules.topology import Topology, grid, pairable, pairs, peers

TOPOLOGIES: tuple[Topology, ...] = get_args(Topology)

topologies = st.sampled_from(TOPOLOGIES)
sizes = st.integers(1, 40)


def matrix(topology: Topology, size: int, round: int = 0) -> np.ndarray:
    """W (N, N)."""
    whole = np.zeros((size, size))
    for rank in range(size):
        for peer, weight in peers(topology, rank, size, round):
            whole[rank, peer] += weight
    return whole


def connected(links: np.ndarray) -> bool:
    """Return whether non-zero entries of W connect all workers."""
    size = len(links)
    return bool((np.linalg.matrix_power((links + np.eye(size) > 0).astype(float) / size, size) > 0).all())


@given(topologies, sizes, st.integers(0, 9))
def test_the_mixing_matrix_keeps_the_mean(topology: Topology, size: int, round: int) -> None:
    whole = matrix(topology, size, round)
    assert (whole == whole.T).all()
    assert (whole >= 0).all()
    assert (np.diag(whole) > 0).all()
    np.testing.assert_allclose(whole.sum(axis=1), 1, rtol=1e-12)


@given(topologies, sizes)
def test_the_graph_is_connected(topology: Topology, size: int) -> None:
    assert connected(matrix(topology, size))


@given(topologies, sizes, st.data())
def test_peers_are_ranks_in_ascending_order_each_once_and_oneself_among_them(
    topology: Topology, size: int, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, size - 1))
    ranks = [peer for peer, _ in peers(topology, rank, size)]
    assert ranks == sorted(set(ranks))
    assert set(ranks) <= set(range(size))
    assert rank in ranks


@given(topologies, sizes)
def test_nobody_mixes_faster_than_all_with_all(topology: Topology, size: int) -> None:
    """The second largest eigenvalue is below 1, and 0 where all meet all."""
    values = np.sort(np.abs(np.linalg.eigvalsh(matrix(topology, size))))
    if size > 1:
        assert values[-2] < 1 - 1e-3
    if topology == "complete" and size > 1:
        assert values[-2] < 1e-9


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_one_worker_keeps_its_own_and_two_meet_half_way(topology: Topology) -> None:
    assert peers(topology, 0, 1) == [(0, 1.0)]
    assert peers(topology, 0, 2) == peers(topology, 1, 2) == [(0, 0.5), (1, 0.5)]


def test_rows_worked_out_by_hand() -> None:
    assert peers("ring", 0, 5) == [(0, 1 / 3), (1, 1 / 3), (4, 1 / 3)]
    assert peers("exponential", 0, 8) == [(rank, 1 / 6) for rank in (0, 1, 2, 4, 6, 7)]
    assert peers("complete", 1, 4) == [(rank, 0.25) for rank in range(4)]
    assert peers("torus", 0, 9) == [(rank, 0.2) for rank in (0, 1, 2, 3, 6)]
    assert peers("torus", 5, 6) == [(rank, 0.25) for rank in (2, 3, 4, 5)], "two rows: above is below"


def test_a_grid_is_as_square_as_can_be() -> None:
    assert [grid(size) for size in (1, 2, 4, 6, 8, 9, 12, 16)] == [(1, 1), (1, 2), (2, 2), (2, 3), (2, 4), (3, 3), (3, 4), (4, 4)]


@pytest.mark.parametrize("size", [2, 3, 5, 7, 11, 13])
def test_a_torus_of_a_prime_number_is_a_ring(size: int) -> None:
    assert [peers("torus", rank, size) for rank in range(size)] == [peers("ring", rank, size) for rank in range(size)]
    assert [pairs("torus", size, round) for round in range(4)] == [pairs("ring", size, round) for round in range(4)]


# Pairs


def over_rounds(topology: Topology, size: int, rounds: int) -> list[list[int]]:
    draw = np.random.default_rng(0)
    return [pairs(topology, size, number, draw) for number in range(rounds)]


@given(topologies, sizes, st.integers(0, 99))
def test_pairs_are_disjoint_neighbours_and_as_many_as_can_be(topology: Topology, size: int, round: int) -> None:
    if not pairable(topology, size):
        return
    partners = pairs(topology, size, round, np.random.default_rng(round))
    assert len(partners) == size
    assert all(partners[partners[rank]] == rank for rank in range(size))
    links = matrix(topology, size)
    assert all(links[rank, partner] > 0 for rank, partner in enumerate(partners))
    alone = sum(partner == rank for rank, partner in enumerate(partners))
    rows, columns = grid(size) if topology == "torus" else (1, size)
    assert alone == 0 if size % 2 == 0 and columns % 2 == 0 and rows % 2 == 0 else alone <= max(rows, columns)
    if topology in ("ring", "complete"):
        assert alone == size % 2


@given(topologies, sizes)
def test_pairs_of_a_few_rounds_connect_all(topology: Topology, size: int) -> None:
    if not pairable(topology, size):
        return
    links = np.zeros((size, size))
    for partners in over_rounds(topology, size, 4 * size.bit_length() + 4):
        links[range(size), partners] = 1
    assert connected(links)


def test_pairs_worked_out_by_hand() -> None:
    assert over_rounds("ring", 4, 3) == [[1, 0, 3, 2], [3, 2, 1, 0], [1, 0, 3, 2]]
    assert over_rounds("ring", 5, 2) == [[1, 0, 3, 2, 4], [0, 2, 1, 4, 3]]
    assert over_rounds("torus", 8, 5) == [
        [1, 0, 3, 2, 5, 4, 7, 6],
        [4, 5, 6, 7, 0, 1, 2, 3],
        [3, 2, 1, 0, 7, 6, 5, 4],
        [4, 5, 6, 7, 0, 1, 2, 3],
        [1, 0, 3, 2, 5, 4, 7, 6],
    ]
    assert over_rounds("exponential", 4, 3) == [[1, 0, 3, 2], [2, 3, 0, 1], [1, 0, 3, 2]]


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_one_worker_is_its_own_partner_and_two_are_each_others(topology: Topology) -> None:
    assert over_rounds(topology, 1, 3) == [[0]] * 3
    assert over_rounds(topology, 2, 3) == [[1, 0]] * 3


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_exponential_pairs_find_the_exact_mean(size: int) -> None:
    x = np.arange(size, dtype=float) ** 2
    mean = x.mean()
    for partners in over_rounds("exponential", size, size.bit_length() - 1):
        x = (x + x[partners]) / 2
    assert x.tolist() == [mean] * size


@pytest.mark.parametrize("size", [3, 6, 12])
def test_exponential_pairs_need_a_power_of_two(size: int) -> None:
    assert not pairable("exponential", size)
    with pytest.raises(ValueError, match=f"{size} workers have no exponential pairs"):
        pairs("exponential", size, 0)


def test_a_random_matching_depends_on_the_draw_alone() -> None:
    drawn = {tuple(pairs("complete", 6, 0, np.random.default_rng(seed))) for seed in range(200)}
    assert len(drawn) == 15, "6 workers have 5 * 3 * 1 perfect matchings"
    assert pairs("complete", 6, 0, np.random.default_rng(3)) == pairs("complete", 6, 1, np.random.default_rng(3))
