"""Values unlike those trained on: another spelling of a code is that code; what no training had is remarked on."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from support.runs import SIMULATED, partrain

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
            f"{where}: column `size`: 2 rows {beyond}; the first: item 1",
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
