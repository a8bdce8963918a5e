"""Orders by class, stratified held-out items, and the measured label skew."""

import doctest
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from partrain.data import orders
from partrain.data.orders import by_group, by_label, dirichlet, in_proportion, stratified, unequal_sizes
from partrain.data.partition import Partition, assign, hold_out, windows
from partrain.data.skew import label_skew

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 100))
EACH: list[dict[str, Any]] = [{"order": "stratified"}, {"order": "by-label"}, {"order": "dirichlet", "alpha": 0.5}]
labelled = st.lists(st.integers(0, 6), min_size=1, max_size=200).map(np.array)


def shares(seed: int = 0, number: int | None = None, targets: Any = LABELS, **section: Any) -> Any:
    return assign(Partition(**section), len(targets), 100, [None] * 4, seed, number, targets=targets)


def test_the_documented_examples_hold() -> None:
    assert doctest.testmod(orders).failed == 0


@pytest.mark.parametrize("section", EACH, ids=str)
def test_every_item_is_somebodys_and_sizes_are_the_windows(section: dict[str, Any]) -> None:
    cut = shares(**section)
    assert [len(part) for part in cut.partitions] == [225] * 4
    assert sorted(np.concatenate([*cut.partitions, cut.held_out])) == list(range(1000))
    sized = assign(Partition(**section), 1000, 100, [100, 300, 500], 0, targets=LABELS)
    assert [len(part) for part in sized.partitions] == [100, 300, 500]
    assert sorted(np.concatenate([*sized.partitions, sized.held_out])) == list(range(1000))


@pytest.mark.parametrize("section", EACH, ids=str)
def test_seeds_and_rounds_repeat_and_differ(section: dict[str, Any]) -> None:
    one, again, other = shares(1, **section), shares(1, **section), shares(2, **section)
    assert all(map(np.array_equal, one.partitions, again.partitions))
    assert not np.array_equal(one.partitions[0], other.partitions[0])
    redrawn = [shares(1, number, redraw="round", **section) for number in (1, 1, 2)]
    assert all(np.array_equal(cut.held_out, one.held_out) for cut in redrawn)
    assert all(map(np.array_equal, redrawn[0].partitions, redrawn[1].partitions))
    assert not np.array_equal(redrawn[0].partitions[0], redrawn[2].partitions[0])
    assert sorted(np.concatenate([*redrawn[2].partitions, redrawn[2].held_out])) == list(range(1000))


def test_stratified_partitions_have_each_class_in_proportion() -> None:
    cut = shares(order="stratified")
    whole = np.bincount(LABELS[np.concatenate(cut.partitions)])
    for part in cut.partitions:
        assert abs(np.bincount(LABELS[part]) - whole / 4).max() <= 2
    assert max(label_skew(LABELS, cut.partitions)) < 0.02


@given(labelled, st.data())
def test_any_run_of_stratified_items_is_in_proportion(groups: Any, data: st.DataObject) -> None:
    line = groups[stratified(groups)]
    assert sorted(line) == sorted(groups)
    start = data.draw(st.integers(0, len(groups)))
    stop = data.draw(st.integers(start, len(groups)))
    _, counts = np.unique(groups, return_counts=True)
    for group, count in zip(np.unique(groups), counts, strict=True):
        exact = count * (stop - start) / len(groups)
        assert abs((line[start:stop] == group).sum() - exact) <= 1 + len(counts) * count / len(groups) + 1e-9


def test_by_label_gives_each_worker_few_classes() -> None:
    cut = shares(order="by-label")
    assert max(len(set(LABELS[part])) for part in cut.partitions) <= 4
    assert min(label_skew(LABELS, cut.partitions)) > 0.65


@given(labelled)
def test_by_label_is_sorted(groups: Any) -> None:
    assert groups[by_label(groups)].tolist() == sorted(groups)


@settings(max_examples=60)
@given(labelled, st.integers(1, 6), st.floats(0, 0.9), st.sampled_from([1e-6, 0.1, 1.0, 1e6]), st.integers(0, 9))
def test_dirichlet_uses_every_item_once(groups: Any, workers: int, overlap: float, alpha: float, seed: int) -> None:
    cut = windows(len(groups), [None] * min(workers, len(groups)), overlap)
    line = dirichlet(groups, cut, alpha, np.random.default_rng(seed))
    assert sorted(line) == list(range(len(groups)))
    assert np.array_equal(line, dirichlet(groups, cut, alpha, np.random.default_rng(seed)))


def test_dirichlet_leaves_what_no_window_has_to_the_end() -> None:
    line = dirichlet(np.arange(10) % 2, [range(6, 8), range(1, 3)], 1.0, np.random.default_rng(0))
    assert sorted(line) == list(range(10))


def test_alpha_says_how_unlike_workers_are() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 1000))
    measured = []
    for alpha in (0.01, 1.0, 100.0, 1e6):
        drawn = [
            label_skew(
                labels, assign(Partition(order="dirichlet", alpha=alpha), 10_000, 0, [None] * 4, seed, targets=labels).partitions
            )
            for seed in range(5)
        ]
        measured.append(np.mean(drawn))
    assert measured[0] > measured[1] > 2 * measured[2] > 2 * measured[3]
    assert measured[3] < 0.01


def test_label_shares_are_dirichlet_draws() -> None:
    """The first worker draws freely: its shares have mean n_g / n and variance p (1 - p) / (alpha + 1)."""
    labels, alpha = np.repeat(np.arange(3), [5000, 3000, 2000]), 4.0
    first = [dirichlet(labels, [range(500), range(500, 10_000)], alpha, np.random.default_rng(seed))[:500] for seed in range(400)]
    drawn = np.stack([np.bincount(labels[part], minlength=3) / 500 for part in first])
    prior = np.array([0.5, 0.3, 0.2])
    assert np.allclose(drawn.mean(axis=0), prior, atol=0.04)
    assert np.allclose(drawn.var(axis=0), prior * (1 - prior) / (alpha + 1), rtol=0.25)


def test_numbers_are_sorted_by_tenths() -> None:
    targets = np.random.default_rng(0).standard_normal((1000, 2)).astype(np.float32)
    cut = shares(order="by-label", targets=targets)
    highest = [targets[part, 0].max() for part in cut.partitions]
    lowest = [targets[part, 0].min() for part in cut.partitions]
    assert highest[0] < lowest[2]
    assert highest[1] < lowest[3]
    assert max(label_skew(targets[:, :1], shares(order="stratified", targets=targets).partitions)) < 0.03


def test_unevenness_by_hand() -> None:
    labels = np.array([0, 0, 0, 1, 1, 1, 1, 1])
    assert label_skew(labels, [range(4), range(4, 8)]) == [0.375, 0.375]
    assert label_skew(labels, [np.array([0, 3]), np.array([1, 4])]) == [0, 0]
    assert label_skew(labels, [range(8)]) == [0]


@given(labelled, st.data())
def test_held_out_items_have_each_class_in_proportion(labels: Any, data: st.DataObject) -> None:
    validation = data.draw(st.integers(0, len(labels) - 1))
    training, held = hold_out(len(labels), validation, "shuffled", 3, None, labels)
    assert len(held) == validation
    assert sorted([*training, *held]) == list(range(len(labels)))
    counts, kept = np.bincount(labels), np.bincount(labels[held], minlength=labels.max() + 1)
    assert abs(kept - counts * validation / len(labels)).max() < 1


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=20).map(np.array), st.floats(0, 1))
def test_largest_remainders_add_up(counts: Any, share: float) -> None:
    total = int(share * counts.sum())
    quotas = in_proportion(total, counts)
    assert quotas.sum() == total
    assert (quotas <= counts).all()
    assert abs(quotas - counts * (total / counts.sum())).max() < 1 + 1e-6


def test_items_in_time_are_held_out_last_behind_a_gap() -> None:
    training, held = hold_out(10, 3, "shuffled", 0, 2)
    assert sorted(training) == list(range(7))
    assert held.tolist() == [9, 10, 11]
    assert hold_out(10, 3, "given", 0, 2)[0].tolist() == list(range(7))


@pytest.mark.parametrize("section", [{"order": "dirichlet"}, {"alpha": 0.5}, {"order": "dirichlet", "alpha": 0.0}])
def test_alpha_belongs_to_dirichlet(section: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="alpha"):
        Partition.model_validate(section)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=200).map(np.array), st.data())
def test_each_worker_has_whole_groups_and_as_many_as_the_others(groups: Any, draw: st.DataObject) -> None:
    count = len(set(groups.tolist()))
    parts = by_group(groups, workers := draw.draw(st.integers(1, count)))
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(groups)))
    owned = [set(groups[part].tolist()) for part in parts]
    assert sum(map(len, owned)) == count, "no group is in two parts"
    assert {len(names) for names in owned} <= {count // workers, -(-count // workers)}
    for part in parts:
        assert list(part) == sorted(part), "in the order of the items"


@given(st.integers(1, 50), st.integers(0, 500), st.floats(0.05, 100), st.integers(0, 9))
def test_drawn_sizes_add_up_and_no_partition_is_empty(parts: int, more: int, alpha: float, seed: int) -> None:
    sizes = unequal_sizes(parts + more, parts, alpha, np.random.default_rng(seed))
    assert len(sizes) == parts
    assert sum(sizes) == parts + more
    assert min(sizes) >= 1


def test_a_small_alpha_makes_sizes_unequal() -> None:
    spread = [float(np.std(unequal_sizes(1000, 10, alpha, np.random.default_rng(1)))) for alpha in (0.1, 1.0, 10.0, 1000.0)]
    assert spread == sorted(spread, reverse=True)
    assert spread[-1] < 10 < spread[0]


def test_partitions_are_the_groups_that_are_not_held_out() -> None:
    groups = np.repeat(np.arange(6), [5, 9, 4, 7, 8, 3])
    held = np.flatnonzero(groups == 1)
    training, _ = hold_out(36, held, "by-group", 0)
    sizes = [len(part) for part in by_group(groups[training], 5)]
    cut = assign(Partition(order="by-group"), 36, held, sizes, 0, groups=groups)
    assert sorted(sorted(set(groups[part].tolist())) for part in cut.partitions) == [[0], [2], [3], [4], [5]]
