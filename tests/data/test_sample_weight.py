"""Weights of items: `sample_weight` of tables and arrays, and the passes that are drawn by them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runs import partrain

import partrain as package
from partrain import checkpoint
from partrain.data import load
from partrain.data.arrays.sections import Npz
from partrain.data.tables.sections import Csv
from partrain.errors import Failure, InputMissing
from partrain.training.batches import Batches

ROWS = "x,w,y\n1,0.5,a\n2,0,b\n3,2,a\n4,1.5,b\n5,1,a\n"
JOB = """
name = "job"
dataset = { kind = "npz", path = "items.npz", sample_weight = "weights", validation = 20 }
model = { name = "linear" }
optimizer = { name = "adam", lr = 0.02, batch_size = 10 }
sync = { rule = "average", iterations = 3 }
workers = [{ count = 2 }]
transport = { kind = "simulated" }
checkpoint = { commit = "every" }
stop = { rounds = 4, judge_every = 1 }
"""


def draw(weights: list[float], passes: int = 1) -> Counter[int]:
    """How often each item is drawn in some passes."""
    items = len(weights)
    batches = Batches(np.arange(items), 1, 1, passes=1, seed=0, rank=0, weights=np.array(weights, np.float32))
    batches.begin(1)
    return Counter(batches.draw(items * passes).tolist())


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30).filter(any))
def test_a_pass_has_each_item_as_often_as_its_weight_tells(weights: list[int]) -> None:
    counts = draw(list(map(float, weights)))
    assert counts.total() == len(weights)
    for item, weight in enumerate(weights):
        assert abs(counts[item] - len(weights) * weight / sum(weights)) < 1


def test_equal_weights_draw_each_item_once_in_another_order() -> None:
    assert set(draw([0.3] * 1000).values()) == {1}
    batches = Batches(np.arange(50), 1, 1, passes=1, seed=0, rank=0, weights=np.ones(50, np.float32))
    batches.begin(1)
    assert batches.draw(50).tolist() != batches.draw(50).tolist() != list(range(50))


def test_shares_are_met_in_the_long_run() -> None:
    counts = draw([0.1, 1.0, 2.5, 0.4], 5000)
    assert [counts[item] / 5000 for item in range(4)] == pytest.approx([0.1, 1.0, 2.5, 0.4], abs=0.02)


def test_items_without_any_weight_are_named() -> None:
    with pytest.raises(InputMissing, match="all 3 items of a worker have the weight 0"):
        draw([0.0] * 3)


def csv(folder: Path, text: str = ROWS, **more: Any) -> Csv:
    (folder / "t.csv").write_text(text)
    return Csv.model_validate({"kind": "csv", "path": "t.csv", "target": "y", "sample_weight": "w", "standardise": False, **more})


def test_a_column_of_weights_is_no_input(tmp_path: Path) -> None:
    data = load(csv(tmp_path), tmp_path)
    assert data.sample_weight is not None
    assert data.inputs.tolist() == [[1], [2], [3], [4], [5]]
    assert data.sample_weight.tolist() == [0.5, 0, 2, 1.5, 1]
    (tmp_path / "test.csv").write_text("x,y\n7,a\n8,b\n")  # test items need no weights
    assert load(csv(tmp_path, test_path="test.csv"), tmp_path).test_inputs is not None


@pytest.mark.parametrize("test_from", ["shuffled", "end"])
def test_weights_stay_with_their_items(tmp_path: Path, test_from: str) -> None:
    text = "x,w,y\n" + "".join(f"{row},{row}.25,{'ab'[row % 2]}\n" for row in range(40))
    kept = load(csv(tmp_path, text, test_items=8, test_from=test_from), tmp_path)
    assert kept.sample_weight is not None
    assert (kept.sample_weight == kept.inputs[:, 0] + 0.25).all()
    timed = load(csv(tmp_path, text, test_items=8, time="x"), tmp_path)
    assert timed.sample_weight is not None
    assert (timed.sample_weight == timed.inputs[:, 0] + 0.25).all()
    numbers = np.arange(40, dtype=np.float32)
    np.savez(tmp_path / "a.npz", inputs=numbers[:, None], targets=np.arange(40) % 3, w=numbers + 0.25)
    settings = {"kind": "npz", "path": "a.npz", "sample_weight": "w", "test_items": 8, "test_from": test_from, "classes": [2, 0]}
    data = load(Npz.model_validate(settings), tmp_path)
    assert data.sample_weight is not None
    rows = slice(None) if data.rows is None else data.rows
    assert (data.sample_weight[rows] == data.inputs[rows, 0] + 0.25).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("3,2,a", "3,-2,a"), "t.csv:4: column `w`: the weight -2: weights are 0 or more"),
        (("3,2,a", "3,,a"), "t.csv:4: column `w`: no value"),
        (("3,2,a", "3,much,a"), "t.csv:4: column `w`: `much` is no number"),
        (("x,w,y", "x,v,y"), "t.csv:1: no column `w`, which `sample_weight` asks for"),
    ],
)
def test_faults_in_a_column_of_weights(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(InputMissing) as caught:
        load(csv(tmp_path, ROWS.replace(*change)), tmp_path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones((5, 2), np.float32), "weights of shape (5, 2)"),
        (np.ones(4, np.float32), "holds 4 weights for 5 inputs"),
        (np.zeros(5), "all weights are 0"),
        (np.array([1, 2, -0.5, 1, 1]), "item 2: the weight -0.5"),
        (np.array([1, 2, np.nan, 1, 1]), "item 2 holds a number that is not finite"),
    ],
)
def test_faults_in_an_array_of_weights(tmp_path: Path, weights: Any, message: str) -> None:
    np.savez(tmp_path / "a.npz", inputs=np.zeros((5, 2), np.float32), targets=np.arange(5) % 2, w=weights)
    with pytest.raises(InputMissing) as caught:
        load(Npz.model_validate({"kind": "npz", "path": "a.npz", "sample_weight": "w"}), tmp_path)
    assert message in str(caught.value)


def items(folder: Path) -> Path:
    draws = np.random.default_rng(0)
    inputs = draws.normal(size=(120, 4)).astype(np.float32)
    np.savez(folder / "items.npz", inputs=inputs, targets=(inputs[:, 0] > 0).astype(int), weights=draws.random(120))
    (folder / "job.toml").write_text(JOB)
    return folder / "job.toml"


def test_a_weighted_run_resumes_to_the_bit(tmp_path: Path) -> None:
    job = items(tmp_path)
    whole, part, plain = tmp_path / "whole", tmp_path / "part", tmp_path / "plain"
    assert partrain("run", job, "--out", whole).code == 0
    assert partrain("run", job, "--out", part, "--set", "stop.rounds=2").code == 0
    assert partrain("resume", part, "--until", "rounds=4").code == 0
    (tmp_path / "plain.toml").write_text(JOB.replace('sample_weight = "weights", ', ""))
    assert partrain("run", tmp_path / "plain.toml", "--out", plain).code == 0
    ends = [checkpoint.read(folder / "checkpoint.h5").arrays for folder in (whole, part, plain)]
    assert all(np.array_equal(ends[0][name], ends[1][name], equal_nan=True) for name in ends[0])
    weights = next(name for name in ends[0] if name.startswith("model/"))
    assert not np.array_equal(ends[0][weights], ends[2][weights])


@pytest.mark.parametrize(("key", "value", "words"), [
    ("sync.rule", '"rprop"', 'weights of items draw mini-batches, but rule "rprop" takes full batches'),
    ("partition.sampling", '"balanced"', "the data set has weights that say how often"),
])  # fmt: skip
def test_what_weights_do_not_go_with(tmp_path: Path, key: str, value: str, words: str) -> None:
    done = partrain("validate", items(tmp_path), "--set", f"{key}={value}")
    assert (done.code, words in done.out + done.err) == (78, True), done


def test_weights_of_a_script(tmp_path: Path) -> None:
    """Half of the items say the opposite of the others: the weights decide which half is learned."""
    X = np.random.default_rng(0).normal(size=(400, 2)).astype(np.float32)
    first = np.arange(400) < 200
    y = ((X[:, 0] > 0) ^ ~first).astype(np.int64)
    settings: dict[str, Any] = {
        "model": "linear",
        "workers": 1,
        "stop": {"rounds": 30},
        "optimizer": {"name": "adam", "lr": 0.05, "batch_size": 20},
        "sync": {"rule": "average", "iterations": 20},
        "show": False,
    }
    for kept, number in ((first, 0), (~first, 1)):
        data = {"inputs": X, "targets": y, "sample_weight": np.where(kept, 1.0, 0.01)}
        trained = package.train(dataset=data, out=tmp_path / str(number), **settings)
        assert (trained.predict(X) == y)[kept].mean() > 0.95
    with pytest.raises(Failure, match="holds 3 weights for 400 inputs"):
        package.train(dataset=data | {"sample_weight": [1, 2, 3]}, out=tmp_path / "c", **settings)
