"""Windows, held-out items, assignment, and the warning about label skew."""

import doctest
import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from partrain.data import partition
from partrain.data.partition import Partition, assign, hold_out, uncovered, windows
from partrain.data.skew import skew_warning


def test_the_documented_examples_hold() -> None:
    assert doctest.testmod(partition).failed == 0


@pytest.mark.parametrize(
    ("n", "size", "starts"),
    [(6, 3, [0, 1, 3]), (5, 2, [0, 1, 3]), (9, 3, [0, 2, 4, 6]), (100, 40, [0, 12, 24, 36, 48, 60]), (9, 2, [0, 1, 3, 5, 7])],
)
def test_equal_sizes_start_evenly(n: int, size: int, starts: list[int]) -> None:
    assert windows(n, [size] * len(starts)) == [range(start, start + size) for start in starts]


def test_without_overlap_even_partitions_are_disjoint_where_they_divide() -> None:
    assert windows(55_000, [None] * 5) == [range(11_000 * j, 11_000 * (j + 1)) for j in range(5)]


def test_overlap_is_the_share_of_a_partition_its_neighbour_also_has() -> None:
    first, second = windows(1900, [None, None], 0.1)
    assert (len(first), len(second)) == (1000, 1000)
    assert first.stop - second.start == 100


def test_overlap_is_the_decimal_fraction_of_the_job_file() -> None:
    for tenths in range(10):
        for n in range(3, 200):
            exact = math.ceil(n / (1 + 2 * (1 - Fraction(tenths, 10))))
            assert len(windows(n, [None] * 3, tenths / 10)[0]) == exact


def test_six_small_and_two_large_workers_keep_their_sizes_and_cover_everything() -> None:
    for n in (55_000, 57_200):
        cut = windows(n, [2_200] * 6 + [22_000] * 2)
        assert [len(window) for window in cut] == [2_200] * 6 + [22_000] * 2
        assert uncovered(n, cut) == []


def test_exact_sizes_come_first_and_the_others_share_the_rest() -> None:
    assert windows(55_000, [None, None, 22_000]) == [range(22_000, 38_500), range(38_500, 55_000), range(22_000)]
    assert windows(10, [2, None, 3]) == [range(2), range(5, 10), range(2, 5)]


def test_too_small_sizes_leave_holes() -> None:
    cut = windows(60_000, [2_200] * 6 + [22_000] * 2)
    assert sum(map(len, uncovered(60_000, cut))) == 2_800
    assert uncovered(10, windows(10, [4])) == [range(4, 10)]


@pytest.mark.parametrize(("n", "sizes", "words"), [
    (10, [11], "worker 0: partition_size = 11 exceeds the 10 training items"),
    (10, [4, 0], "worker 1: partition_size = 0 is an empty partition"),
    (2, [None] * 3, "3 workers are more than the 2 training items"),
    (10, [5, 5, None], "partition_size takes 10 of the 10 training items: the 1 worker without one cannot share the 0"),
    (10, [8, 8, None], "cannot share the 0 that remain"),
    (10, [9, None, None], "the 2 workers without one cannot share the 1 that remain"),
    (10, [], "no workers"),
])  # fmt: skip
def test_what_cannot_be_shared_is_said(n: int, sizes: list[int | None], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        windows(n, sizes)


@given(st.integers(1, 60), st.integers(0, 500), st.floats(0, 0.999))
def test_even_windows_cover_everything_with_even_overlaps(count: int, more: int, overlap: float) -> None:
    n = count + more
    cut = windows(n, [None] * count, overlap)
    assert len({len(window) for window in cut}) == 1
    assert uncovered(n, cut) == []
    assert (cut[0].start, cut[-1].stop) == (0, n)
    steps = {b.start - a.start for a, b in pairwise(cut)}
    assert not steps or max(steps) - min(steps) <= 1


@given(st.lists(st.integers(1, 200), min_size=1, max_size=12), st.data())
def test_exact_sizes_are_exact_and_cover_if_they_can(sizes: list[int], data: st.DataObject) -> None:
    n = data.draw(st.integers(max(*sizes, len(sizes)), max(sum(sizes), len(sizes)) + 20))
    cut = windows(n, sizes)
    assert [len(window) for window in cut] == sizes
    assert all(window.start >= 0 and window.stop <= n for window in cut)
    assert (sum(map(len, uncovered(n, cut))) == 0) == (sum(sizes) >= n)


@given(st.lists(st.none() | st.integers(1, 50), min_size=1, max_size=10), st.integers(0, 300), st.floats(0, 0.9))
def test_mixed_sizes_cover_everything(sizes: list[int | None], more: int, overlap: float) -> None:
    n = sum(size or 1 for size in sizes) + more
    cut = windows(n, [None, *sizes], overlap) if more else windows(n, sizes, overlap)
    assert all(len(window) == size for window, size in zip(cut[-len(sizes) :], sizes, strict=True) if size)
    assert uncovered(n, cut) == []


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6))
def test_uncovered_is_what_no_window_holds(bounds: list[tuple[int, int]]) -> None:
    cut = [range(*pair) for pair in bounds]
    missed = [item for hole in uncovered(30, cut) for item in hole]
    assert missed == [item for item in range(30) if not any(item in window for window in cut)]


@given(st.integers(1, 300), st.data(), st.integers(0, 2**62))
def test_held_out_and_training_items_are_everything_once(n: int, data: st.DataObject, seed: int) -> None:
    validation = data.draw(st.integers(0, n - 1))
    training, held_out = hold_out(n, validation, "shuffled", seed)
    assert len(held_out) == validation
    assert training.dtype == held_out.dtype == np.int64
    assert sorted([*training, *held_out]) == list(range(n))
    assert np.array_equal(training, hold_out(n, validation, "shuffled", seed)[0])


def test_as_given_keeps_the_order_and_holds_out_the_last() -> None:
    training, held_out = hold_out(10, 3, "given", 1)
    assert (training.tolist(), held_out.tolist()) == ([0, 1, 2, 3, 4, 5, 6], [7, 8, 9])


def test_nothing_left_to_train_on() -> None:
    with pytest.raises(ValueError, match="validation = 10 leaves none of the 10 items"):
        hold_out(10, 10, "shuffled", 0)


def test_assignment_follows_the_windows() -> None:
    shares = assign(Partition(order="given"), 100, 10, [40, 50], seed=0)
    assert [part.tolist() for part in shares.partitions] == [list(range(40)), list(range(40, 90))]
    assert shares.held_out.tolist() == list(range(90, 100))


def test_seeds_differ_and_repeat() -> None:
    first, again, other = (assign(Partition(overlap=0.2), 100, 10, [None] * 3, seed) for seed in (1, 1, 2))
    assert all(map(np.array_equal, first.partitions, again.partitions))
    assert not np.array_equal(first.partitions[0], other.partitions[0])


def test_redrawing_changes_partitions_but_not_the_held_out_items() -> None:
    section = Partition(redraw="round")
    rounds = [assign(section, 100, 20, [None] * 4, 0, round) for round in (1, 1, 2)]
    assert all(np.array_equal(shares.held_out, rounds[0].held_out) for shares in rounds)
    assert np.array_equal(rounds[0].partitions[0], rounds[1].partitions[0])
    assert not np.array_equal(rounds[0].partitions[0], rounds[2].partitions[0])
    for shares in rounds:
        assert sorted(np.concatenate([*shares.partitions, shares.held_out])) == list(range(100))


def test_never_redrawing_ignores_the_round() -> None:
    one, two = (assign(Partition(), 50, 5, [None] * 2, 0, round) for round in (1, 2))
    assert np.array_equal(one.partitions[1], two.partitions[1])


def test_items_nobody_has_are_an_error_unless_allowed() -> None:
    with pytest.raises(ValueError, match=r'30 of the 90 training items belong to no worker.*uncovered = "allow"'):
        assign(Partition(), 100, 10, [30, 30], 0)
    assert len(assign(Partition(uncovered="allow"), 100, 10, [30, 30], 0).partitions[1]) == 30


def test_redrawing_contradicts_the_given_order() -> None:
    with pytest.raises(ValidationError, match="contradicts"):
        Partition(order="given", redraw="round")


def test_sorted_labels_are_told_apart_and_shuffled_ones_are_not() -> None:
    labels = np.repeat(np.arange(10), 500)
    cut = windows(5000, [None] * 5)
    warning = skew_warning(labels, cut)
    assert warning is not None
    assert "workers 0 and" in warning
    assert "100%" in warning
    assert skew_warning(np.random.default_rng(0).permutation(labels), cut) is None


def test_numbers_that_drift_are_told_apart() -> None:
    x = np.linspace(-1, 1, 4000, dtype=np.float32)[:, None]
    shuffled = np.random.default_rng(0).permutation(x)
    assert skew_warning(x, windows(4000, [None] * 2)) is not None
    assert skew_warning(shuffled, windows(4000, [None] * 2)) is None
    assert skew_warning(np.hstack([shuffled, x]), windows(4000, [None] * 2)) is not None


def test_equal_means_do_not_hide_unequal_spread() -> None:
    noise = np.random.default_rng(0).standard_normal((4000, 1))
    noise[:2000] *= 0.2
    assert skew_warning(noise, windows(4000, [None] * 2)) is not None


def test_small_partitions_are_not_accused_of_chance() -> None:
    draws = np.random.default_rng(0)
    accused = [skew_warning(draws.integers(0, 10, 80), windows(80, [None] * 8)) for _ in range(50)]
    assert accused == [None] * 50


def test_targets_that_never_vary_are_alike() -> None:
    assert skew_warning(np.zeros((10, 1), np.float32), windows(10, [None] * 2)) is None
    assert skew_warning(np.full((10, 1), np.nan, np.float32), windows(10, [None] * 2)) is None
