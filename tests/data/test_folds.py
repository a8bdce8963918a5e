"""Folds: disjoint, covering, balanced; their bits as documented; runs that hold one out; messages with their places."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runs import JOB, newest, partrain, round_file

from partrain.data import folds
from partrain.data.folds import Fold, held_out_count
from partrain.data.partition import Partition, assign, hold_out
from partrain.seeds import generator


def every(k: int) -> list[Fold]:
    return [Fold(number, k) for number in range(1, k + 1)]


def test_the_documented_examples_hold() -> None:
    assert doctest.testmod(folds).failed == 0


@given(st.data())
def test_folds_are_disjoint_cover_all_items_and_differ_by_one_at_most(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 200), "items")
    k = data.draw(st.integers(2, min(n, 12)), "folds")
    order = data.draw(st.sampled_from(["shuffled", "given", "stratified"]), "order")
    labels = None
    if order != "given" and data.draw(st.booleans(), "stratify"):
        labels = np.array(data.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n), "labels"))
    splits = [hold_out(n, fold, order, 7, None, labels) for fold in every(k)]
    assert sorted(np.concatenate([held for _, held in splits])) == list(range(n))
    for fold, (training, held) in zip(every(k), splits, strict=True):
        assert sorted([*training, *held]) == list(range(n))
        assert len(held) == fold.count(n) == held_out_count(fold, n)
        assert len(held) in (n // k, -(-n // k))
    if labels is not None:
        for label in set(labels):
            counts = [int((labels[held] == label).sum()) for _, held in splits]
            assert max(counts) - min(counts) <= 1


def test_a_fold_is_a_block_of_the_seeded_permutation() -> None:
    permutation = generator(3, "order").permutation(103)
    for fold, block in zip(every(5), np.array_split(permutation, 5), strict=True):
        training, held = hold_out(103, fold, "shuffled", 3)
        assert np.array_equal(held, block)
        assert np.array_equal(training, permutation[~np.isin(permutation, block)])


def test_the_first_fold_holds_out_the_items_of_validation() -> None:
    for one, other in zip(hold_out(100, Fold(1, 5), "shuffled", 3), hold_out(100, 20, "shuffled", 3), strict=True):
        assert np.array_equal(one, other)


def test_a_stratified_fold_takes_every_kth_item_of_the_classes() -> None:
    labels = np.random.default_rng(0).integers(0, 3, 50)
    permutation = generator(3, "order").permutation(50)
    by_class = np.concatenate([permutation[labels[permutation] == label] for label in range(3)])
    for fold in every(4):
        held = hold_out(50, fold, "shuffled", 3, None, labels)[1]
        assert set(held) == set(by_class[fold.number - 1 :: 4])
        assert np.array_equal(held, permutation[np.isin(permutation, held)]), "in the order of the permutation"


def test_folds_of_items_as_given_are_neighbours() -> None:
    assert hold_out(7, Fold(2, 3), "given", 0)[1].tolist() == [3, 4]
    assert hold_out(7, Fold(2, 3), "given", 0)[0].tolist() == [0, 1, 2, 5, 6]


def test_folds_of_some_rows_are_those_of_as_many_items() -> None:
    rows = np.array([0, 2, 3, 5, 8, 9, 11])
    for one, other in zip(hold_out(7, Fold(2, 3), "shuffled", 1, rows=rows), hold_out(7, Fold(2, 3), "shuffled", 1), strict=True):
        assert np.array_equal(one, rows[other])


def test_the_workers_share_all_items_but_the_fold() -> None:
    shares = assign(Partition(), 100, Fold(4, 4), [None] * 3, 0)
    assert sorted(np.concatenate([*shares.partitions, shares.held_out])) == list(range(100))
    assert len(shares.held_out) == 25


def test_a_fold_needs_an_item_and_items_that_are_independent() -> None:
    with pytest.raises(ValueError, match="5 folds are more than the 4 items"):
        hold_out(4, Fold(1, 5), "shuffled", 0)
    with pytest.raises(ValueError, match="follow one another in time"):
        hold_out(10, Fold(1, 5), "given", 0, 0)


FOLDED = JOB.replace("validation = 30", 'fold = "2/5"')


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(FOLDED)
    return tmp_path


def test_a_fold_run_resumes_to_the_bit_and_is_evaluated_on_its_fold(place: Path) -> None:
    assert partrain("run", "job.toml", "--out", "whole", "--quiet").code == 0
    said = partrain("resume", round_file(Path("whole"), 2), "--out", "again", "--quiet")
    assert said.code == 0, said
    assert newest(Path("again")) == newest(Path("whole"))
    judged = json.loads(Path("whole/summary.json").read_text())
    found = json.loads(partrain("evaluate", "whole", "--json").out)
    validation = found["validation"] if "validation" in found else found["splits"]["validation"]
    assert validation["items"] == 46
    assert validation["loss"] == pytest.approx(judged["best"]["loss"], rel=1e-5)


@pytest.mark.parametrize(("old", "new", "message"), [
    ('fold = "2/5"', 'fold = "2/5"\nvalidation = 30', "job.toml:14:1: `fold` and `validation` both choose the held-out items"),
    ('"2/5"', '"6/5"', "job.toml:14:8: `fold`: there is no fold 6 of 5"),
    ('"2/5"', '"1/1"', "job.toml:14:8: `fold`: there is no fold 1 of 1: k must be 2 or more"),
    ('"2/5"', '"second"', 'job.toml:14:8: `fold`: expected "i/k", such as "2/5"'),
    ('"2/5"', '"2/500"', "job.toml:14:8: 500 folds are more than the 230 items"),
])  # fmt: skip
def test_messages_name_the_place(place: Path, old: str, new: str, message: str) -> None:
    Path("job.toml").write_text(FOLDED.replace(old, new))
    said = partrain("validate", "job.toml")
    assert said.code == 78, said
    assert message in said.out + said.err


def test_a_fold_of_a_text_is_refused(place: Path) -> None:
    Path("text.txt").write_text("to be or not to be " * 50)
    start = FOLDED.index("[dataset]")
    text = '[dataset]\nkind = "text"\npath = "text.txt"\nlength = 8\nfold = "2/5"\n\n'
    job = FOLDED[:start] + text + FOLDED[FOLDED.index("[optimizer]") :]
    Path("job.toml").write_text(job.replace('name = "mlp"', 'name = "lstm"').replace("hidden = [16]", "hidden = 16"))
    said = partrain("validate", "job.toml")
    assert said.code == 78, said
    assert "job.toml:13:1: `fold`: the items follow one another in time" in said.out + said.err
