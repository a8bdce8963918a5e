"""Values unlike those trained on: another spelling of a code is that code; what no training had is remarked on."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas
import pytest
from support.runs import SIMULATED, partrain

import partrain as partrain_package
from partrain.inference.onnx_text import words_for_codes
from partrain.preprocess.words import UNSEEN, CategoryColumn, places_of

JOB = f"""
name = "codes"
model = {{ name = "tabular", hidden = 8 }}
optimizer = {{ name = "adam", lr = 0.01, batch_size = 20 }}
sync = {{ rule = "average", iterations = 5 }}
workers = [{{}}]
stop = {{ rounds = 2 }}

[dataset]
kind = "csv"
path = "codes.csv"
target = "y"
categories = ["code"]
one_hot = ["kind"]
missing = "mean"

[transport]
{SIMULATED.replace("transport.", "")}
"""


@pytest.mark.parametrize(("words", "cells"), [
    (["1", "2", "-3"], {"1": 0, "1.0": 0, "2.0": 1, "-3.0": 2, "1.00": UNSEEN, "01": UNSEEN, "4.0": UNSEEN}),
    (["1.0", "2.0"], {"1": 0, 1: 0, 2.0: 1}),
    (["1", "1.0"], {"1": 0, "1.0": 1}),
    (["1", "x"], {"1": 0, "1.0": UNSEEN}),
    (["1.0", "1.5"], {"1": UNSEEN}),
])  # fmt: skip
def test_whole_numbers_are_codes_in_both_spellings(words: list[str], cells: dict[object, int]) -> None:
    column = CategoryColumn(tuple(words))
    assert {cell: column.parse(cell) for cell in cells} == cells


def test_a_graph_knows_both_spellings() -> None:
    onnx = pytest.importorskip("onnx")
    codes = onnx.helper.make_tensor_value_info("codes", onnx.TensorProto.INT64, ["items", 1])
    model = onnx.helper.make_model(onnx.helper.make_graph([], "graph", [codes], []))
    words_for_codes(model, {"code": ["1", "2"]})
    (lookup,) = (node for node in model.graph.node if node.op_type == "LabelEncoder")
    told = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in lookup.attribute}
    pairs = dict(zip((key.decode() for key in told["keys_strings"]), told["values_int64s"], strict=True))
    assert {word: place for word, place in pairs.items() if place >= 0} == places_of(["1", "2"])


def trained(folder: Path, more: str = "") -> Path:
    draw = np.random.default_rng(0)
    rows = [f"{code},{'ab'[code % 2]},{draw.normal():.3f},{3 * code + 0.5}" for code in draw.integers(1, 4, 120)]
    (folder / "codes.csv").write_text("\n".join(["code,kind,size,y", *rows]))
    (folder / "job.toml").write_text(JOB.replace('missing = "mean"', f'missing = "mean"\n{more}'))
    said = partrain("run", folder / "job.toml", "--out", folder / "run", "-q")
    assert said.code == 0, said
    return folder / "run"


def test_answers_to_codes_that_became_floats(tmp_path: Path) -> None:
    """pandas writes `1.0` where a cell of the column is empty."""
    run, answers = trained(tmp_path), {}
    for name, codes in {
        "whole": ["1", "2", "3", "2"],
        "floats": ["1.0", "2.0", "3.0", "2"],
        "strange": ["7.0", "8.0", "", "x"],
    }.items():
        rows = [f"{code},{kind},{size}" for code, kind, size in zip(codes, "abzz", [0, 1, 2, 3], strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["code,kind,size", *rows]))
        said = partrain("predict", run, "--input", tmp_path / f"{name}.csv")
        assert said.code == 0, said
        answers[name] = [row["y"] for row in csv.DictReader(io.StringIO(said.out))]
        told = f"warning: {tmp_path}/strange.csv:2: column `code`: none of 3 words is known to the network; the first: `7.0`"
        assert said.err.splitlines() == ([f"partrain: {told}"] if name == "strange" else [])
    assert answers["floats"] == answers["whole"] != answers["strange"]


def test_numbers_far_from_training_and_words_that_none_knows_are_told(tmp_path: Path) -> None:
    run = trained(tmp_path)
    (tmp_path / "new.csv").write_text("code,kind,size,y\n1,c,0,3\n1,d,1e6,3\n2,e,-5e5,6\n")
    for command in ("predict", "evaluate"):
        said = partrain(command, run, "--input", tmp_path / "new.csv")
        assert said.code == 0, said
        where, beyond = f"partrain: warning: {tmp_path}/new.csv", "more than 1,000 standard deviations from the mean in training"
        assert said.err.splitlines() == [
            f"{where}:2: column `kind`: none of 3 words is known to the network; the first: `c`",
            f"{where}: column `size`: 2 items {beyond}; the first: item 1",
        ]


def test_numbers_that_are_not_standardised_have_no_bound(tmp_path: Path) -> None:
    run = trained(tmp_path, "standardise = false")
    (tmp_path / "new.csv").write_text("code,kind,size\n1,a,50000\n")
    said = partrain("predict", run, "--input", tmp_path / "new.csv")
    assert (said.code, said.err) == (0, ""), said


def test_a_far_number_has_the_number_of_its_row_where_bad_rows_are_left_out(tmp_path: Path) -> None:
    run = trained(tmp_path)
    (tmp_path / "new.csv").write_text("code,kind,size\n1,a,x\n1,a,0\n2,b,1e6\n")
    said = partrain("predict", run, "--input", tmp_path / "new.csv", "--skip-bad")
    assert "the first: item 2" in said.err, said


BEYOND = "more than 1,000 standard deviations from the mean in training"


@pytest.mark.parametrize(("name", "file", "column", "expected"), [
    ("spots", "series", 1, {"predict": "column `spots`: 1 moment {}; the first: moment 13",
                            "evaluate": "column `spots`: 2 moments {}; the first: moment 0"}),
    ("changes", "sales", 1, {"predict": "column `sold`: 3 moments {}; the first: moment 2",
                             "evaluate": "column `sold`: 3 moments {}; the first: moment 2"}),
])  # fmt: skip
def test_numbers_of_a_series_far_from_training_are_told(
    run_of: Callable[[str], Path], tmp_path: Path, name: str, file: str, column: int, expected: dict[str, str]
) -> None:
    """`predict` sees the newest window alone; of a differenced series the differences count."""
    run, path = run_of(name), tmp_path / "new.csv"
    rows = [line.split(",") for line in (run.parent / f"{file}.csv").read_text().splitlines()[:25]]
    for moment in 0, 13 if name == "spots" else 21:
        rows[1 + moment][column] += "e9"
    path.write_text("\n".join(map(",".join, rows)))
    for command, told in expected.items():
        said = partrain(command, run, "--input", path)
        assert (said.code, said.err) == (0, f"partrain: warning: {path}: {told.format(BEYOND)}\n"), said


def test_python_warns_with_the_same_sentences(tmp_path: Path) -> None:
    trained_network = partrain_package.load(trained(tmp_path))
    frame = pandas.DataFrame({"code": [7.0, 8.0, 1e3], "kind": ["a", "b", "a"], "size": [0, 0, 1e6], "y": [1.0, 2.0, 3.0]})
    for answer in (trained_network.predict, trained_network.evaluate):
        with pytest.warns(partrain_package.UnlikeTraining) as warned:
            answer(frame)
        assert [str(one.message) for one in warned] == [
            "X: row 1: column `code`: none of 3 words is known to the network; the first: `7.0`",
            f"X: column `size`: 1 item {BEYOND}; the first: item 2",
        ]
        assert {one.filename for one in warned} == {__file__}


def test_estimators_and_arrays_warn_too(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    X, new = draw.normal(size=(30, 2)), np.array([[0, 0], [0, 5e4], [-1e5, 0]])
    fitted = partrain_package.PartrainRegressor(hidden=4, rounds=1).fit(X, X[:, 0])
    trained_network = partrain_package.train(
        model="mlp", dataset={"inputs": X, "targets": X[:, 0], "standardise": True}, stop={"rounds": 1}, out=tmp_path / "run"
    )
    for predictor in (fitted, trained_network):
        with pytest.warns(partrain_package.UnlikeTraining) as warned:
            predictor.predict(new)
        assert [str(one.message) for one in warned] == [f"X: 2 items {BEYOND}; the first: item 1"]
        assert warned[0].filename == __file__
