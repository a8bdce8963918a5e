"""The outline that `inspect` prints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.checkpoint_samples import JOB, arrays, content, manifest
from support.runs import summary, train

from partrain.checkpoint import Content, decode, encode, read
from partrain.checkpoint.describe import describe


def test_outline() -> None:
    outline = describe(decode(encode(content())))
    assert json.loads(json.dumps(outline, allow_nan=False)) == outline
    assert (outline["job"], outline["run"], outline["round"], outline["numbers"]) == ("sample", "0123abcd", 3, 15)
    assert outline["tensors"]["model"]["0.bias"] == {
        "dtype": "float32",
        "shape": [3],
        "norm": pytest.approx(2**0.5),
        "nonfinite": 0,
    }
    assert outline["tensors"]["rule"]["step"]["norm"] == 3
    assert outline["workers"]["1"]["optimizer/momentum"]["norm"] == pytest.approx(15**0.5)
    assert outline["history"]["rows"] == 3
    assert outline["history"]["columns"]["loss"] == {"first": 2.0, "last": 0.5}
    assert outline["history"]["columns"]["judged_loss"] == {"first": None, "last": 0.6}
    assert "items" not in outline["history"]["columns"]  # one number per worker
    assert outline["manifest"]["item_iterations"] == 3840


def test_facts_of_a_training(tmp_path: Path) -> None:
    run = train(tmp_path)
    outline = describe(read(run / "checkpoint.h5"))
    assert (outline["task"], outline["input"], outline["outputs"]) == ("classification", [2], 3)
    assert outline["item_iterations"] == summary(run)["item_iterations"]
    assert outline["best_round"] == summary(run)["best"]["round"]


def test_odd_contents() -> None:
    odd = {
        "model/x": np.array([1.0, np.nan, np.inf]),
        "model/e": np.zeros((0, 2)),
        "model/b": np.array([True]),
        "history/loss": np.zeros(0),
    }
    outline = describe(Content(odd, "no toml = = ", manifest()))
    json.dumps(outline, allow_nan=False)
    assert outline["job"] is None
    assert outline["tensors"]["model"]["x"] == {"dtype": "float64", "shape": [3], "norm": None, "nonfinite": 2}
    assert outline["tensors"]["model"]["e"]["norm"] == 0
    assert outline["history"] == {"rows": 0, "columns": {}}
    for job in ("name = 3", "name = " + "[" * 100_000, "name = " + "9" * 5000):
        assert describe(Content({}, job, manifest()))["job"] is None


def test_workers_by_number() -> None:
    many = {f"workers/{rank}/x": np.zeros(1) for rank in range(12)}
    assert list(describe(Content(arrays() | many, JOB, manifest()))["workers"]) == [str(rank) for rank in range(12)]
