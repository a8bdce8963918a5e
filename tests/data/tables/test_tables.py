"""Tables: items from rows, and a message for each fault, with its line and column."""

import csv
import gzip
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from partrain.data import Dataset, load, read_spec
from partrain.data.base import WrongContent, repeated
from partrain.data.codec import Codec
from partrain.data.partition import Partition, hold_out, training_of
from partrain.data.tables.files import CsvFile
from partrain.data.tables.load import encode
from partrain.data.tables.schema import open_table
from partrain.data.tables.sections import Csv, Parquet
from partrain.errors import InputMissing

HOUSES = """size,rooms,town,price
50.5,2,Ulm,1.5
80,3,Bonn,2.25
120,5,Ulm,4
65,2,Jena,2.5
"""
BIRDS = "wing,leg,kind\n" + "".join(f"{wing},{wing % 3},{'abc'[wing % 3]}\n" for wing in range(1, 31))


def table(folder: Path, text: str | bytes, name: str = "t.csv", **more: Any) -> Csv:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return Csv.model_validate({"kind": "csv", "path": name, **more})


def houses(folder: Path, text: str | bytes = HOUSES, **more: Any) -> Csv:
    return table(folder, text, **{"target": "price", "one_hot": ["town"], **more})


def said(section: Csv | Parquet, folder: Path) -> str:
    with pytest.raises(InputMissing) as caught:
        load(section, folder)
    assert "\n" not in caught.value.message
    return caught.value.message.replace(f"{folder}/", "")


# What rows become


def test_numbers_words_and_a_target(tmp_path: Path) -> None:
    section = houses(tmp_path, standardise=False, standardise_target=False)
    data, known = load(section, tmp_path), read_spec(section, tmp_path)
    assert known is not None
    assert (known.items, known.test_items, known.shape, known.task, known.outputs) == (4, 0, (5,), "regression", 1)
    assert data.inputs.tolist() == [[50.5, 2, 0, 0, 1], [80, 3, 1, 0, 0], [120, 5, 0, 0, 1], [65, 2, 0, 1, 0]]
    assert data.targets.tolist() == [[1.5], [2.25], [4], [2.5]]
    assert (data.inputs.dtype, data.targets.dtype) == (np.float32, np.float32)
    assert data.codec["features"] == ["size", "rooms", "town=Bonn", "town=Jena", "town=Ulm"]


def test_classes_are_sorted_and_kept(tmp_path: Path) -> None:
    words = load(table(tmp_path, BIRDS, target="kind"), tmp_path)
    assert (words.task, words.outputs, words.codec["classes"]) == ("classification", 3, ["a", "b", "c"])
    assert words.targets.tolist()[:4] == [1, 2, 0, 1]
    numbers = load(table(tmp_path, "x,y\n1,10\n2,-2\n3,9\n4,10\n", target="y"), tmp_path)
    assert (numbers.codec["classes"], numbers.targets.tolist()) == ([-2, 9, 10], [2, 0, 1, 2])


def test_whole_numbers_may_be_numbers_and_numbers_classes(tmp_path: Path) -> None:
    text = "x,y\n1,1\n2,2\n3,1\n"
    assert load(table(tmp_path, text, target="y", target_kind="number", standardise_target=False), tmp_path).targets.tolist() == [
        [1],
        [2],
        [1],
    ]
    classes = load(table(tmp_path, text.replace(",1", ",1.5"), target="y", target_kind="class"), tmp_path)
    assert (classes.codec["classes"], classes.targets.tolist()) == (["1.5", "2"], [0, 1, 0])


@pytest.mark.parametrize("kind", ["auto", "class"])
@pytest.mark.parametrize(
    ("written", "classes"),
    [
        (["007", " 07", "7"], ["007", "07", "7"]),
        (["+1", "1", "2"], ["+1", "1", "2"]),
        (["-0", "0", "1"], ["-0", "0", "1"]),
        (["01", "002", "0" * 30], ["0" * 30, "002", "01"]),
        (["10", "0", "-7"], [-7, 0, 10]),
    ],
)
def test_digits_that_are_no_usual_number_are_words(tmp_path: Path, kind: str, written: list[str], classes: list[Any]) -> None:
    rows = "".join(f"{x},{written[x % 3]}\n" for x in range(9))
    section = table(tmp_path, f"x,y\n{rows}", target="y", target_kind=kind, test_path="t.csv")
    data, known = load(section, tmp_path), read_spec(section, tmp_path)
    assert known is not None
    assert (data.task, data.codec["classes"], known.outputs) == ("classification", classes, 3)
    assert [str(classes[label]) for label in data.targets] == [written[x % 3].strip() for x in range(9)]
    assert data.test_targets is not None
    assert data.test_targets.tolist() == data.targets.tolist()


def test_such_digits_may_still_be_numbers(tmp_path: Path) -> None:
    section = table(tmp_path, "x,y\n1,007\n2,+1\n", target="y", target_kind="number", standardise_target=False)
    assert load(section, tmp_path).targets.tolist() == [[7], [1]]
    assert load(table(tmp_path, "x,y\n1,007\n2,1.5\n", target="y"), tmp_path).task == "regression"


def test_several_targets(tmp_path: Path) -> None:
    data = load(houses(tmp_path, target=["price", "size"], standardise_target=False), tmp_path)
    assert (data.outputs, data.targets.tolist()[1]) == (2, [2.25, 80])
    assert data.codec["inputs"] == ["rooms", "town"]


def test_inputs_and_drop_choose_columns(tmp_path: Path) -> None:
    assert load(houses(tmp_path, inputs=["rooms"], one_hot=[]), tmp_path).codec["features"] == ["rooms"]
    assert load(houses(tmp_path, drop=["town", "size"], one_hot=[]), tmp_path).codec["features"] == ["rooms"]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("t.tsv", lambda text: text.replace(",", "\t").encode()),
        ("t.csv.gz", lambda text: gzip.compress(text.encode())),
        ("t.tsv.gz", lambda text: gzip.compress(text.replace(",", "\t").encode())),
        ("t.csv", lambda text: b"\xef\xbb\xbf" + text.encode()),
        ("t.csv", lambda text: text.replace("\n", "\r\n").encode()),
        ("t.csv", lambda text: text.replace("Ulm", '"Ulm"').encode()),
        ("t.csv", lambda text: text.replace("\n80", "\n\n80").rstrip().encode()),
    ],
    ids=["tsv", "gz", "tsv.gz", "bom", "crlf", "quotes", "empty lines"],
)
def test_the_same_table_in_other_clothes(tmp_path: Path, name: str, change: Any) -> None:
    plain = load(houses(tmp_path, name="plain.csv"), tmp_path)
    other = load(houses(tmp_path, change(HOUSES), name=name), tmp_path)
    assert np.array_equal(plain.inputs, other.inputs)
    assert plain.fingerprint == other.fingerprint


def test_another_encoding_and_separator(tmp_path: Path) -> None:
    text = HOUSES.replace("Bonn", "Köln").replace(",", ";").encode("latin-1")
    data = load(houses(tmp_path, text, encoding="latin-1", separator=";"), tmp_path)
    assert data.codec["one_hot"] == {"town": ["Jena", "Köln", "Ulm"]}


cells = st.floats(-1e30, 1e30) | st.integers(-(10**9), 10**9)
words = st.text(st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8).map(
    lambda text: f"w{text}w"
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.lists(st.tuples(cells, words, cells), min_size=1, max_size=40))
def test_what_is_written_is_what_is_read(tmp_path: Path, rows: list[tuple[float, str, float]]) -> None:
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("x", "word", "y"), *rows])
    shape = {"target": "y", "target_kind": "number", "one_hot": ["word"]}
    shape |= {"standardise": False, "standardise_target": False}
    data = load(Csv.model_validate({"kind": "csv", "path": "t.csv", **shape}), tmp_path)
    assert data.inputs[:, 0].tolist() == [np.float32(x) for x, _, _ in rows]
    assert data.targets[:, 0].tolist() == [np.float32(y) for _, _, y in rows]
    known = data.codec["one_hot"]["word"]
    assert [known[label] for label in data.inputs[:, 1:].argmax(axis=1)] == [word for _, word, _ in rows]
    assert (data.inputs[:, 1:].sum(axis=1) == 1).all()


# Standardisation


def test_means_and_deviations_are_those_of_the_items_trained_on(tmp_path: Path) -> None:
    section = table(tmp_path, BIRDS, target="kind", validation=10, test_items=5)
    for seed in (0, 1):
        data = load(section, tmp_path, None, training_of(section, Partition(), seed))
        trained, held = hold_out(25, 10, "shuffled", seed)
        assert np.allclose(data.inputs[trained].mean(axis=0), 0, atol=1e-6)
        assert np.allclose(data.inputs[trained].std(axis=0), 1, atol=1e-6)
        assert not np.allclose(data.inputs[held].mean(axis=0), 0, atol=1e-3)
        assert data.test_inputs is not None
        raw = np.concatenate([data.inputs, data.test_inputs]) * data.codec["std"] + data.codec["mean"]
        assert sorted(np.rint(raw[:, 0])) == list(range(1, 31))


def test_a_column_that_never_varies_becomes_zero(tmp_path: Path) -> None:
    data = load(table(tmp_path, "x,c,y\n1,0.1,a\n2,0.1,b\n4,0.1,a\n", target="y"), tmp_path)
    assert data.inputs[:, 1].tolist() == pytest.approx([0, 0, 0], abs=1e-7)


def test_targets_are_standardised_unless_that_is_unwanted(tmp_path: Path) -> None:
    assert load(houses(tmp_path, standardise_target=False), tmp_path).targets.tolist() == [[1.5], [2.25], [4], [2.5]]
    data = load(houses(tmp_path), tmp_path)
    assert data.targets.mean() == pytest.approx(0, abs=1e-6)
    assert data.targets[:, 0] * data.codec["target_std"] + data.codec["target_mean"] == pytest.approx([1.5, 2.25, 4, 2.5])


def test_a_codec_makes_the_same_items_of_rows_without_targets(tmp_path: Path) -> None:
    section = houses(tmp_path)
    data = load(section, tmp_path)
    (tmp_path / "new.csv").write_text("town,size,rooms\nUlm,50.5,2\nJena,65,2\n")
    assert np.array_equal(encode(data.codec, open_table(section, tmp_path / "new.csv")), data.inputs[[0, 3]])
    (tmp_path / "new.csv").write_text("town,size,rooms\nRom,50.5,2\n")
    unseen = encode(data.codec, open_table(section, tmp_path / "new.csv"))
    assert unseen[0].tolist() == [*data.inputs[0, :2], 0, 0, 0]


# Test items


def test_test_items_are_split_off(tmp_path: Path) -> None:
    data = load(table(tmp_path, BIRDS, target="kind", test_share=0.3, stratify=True, standardise=False), tmp_path)
    assert data.test_inputs is not None
    assert data.test_targets is not None
    assert np.bincount(data.test_targets).tolist() == [3, 3, 3]
    assert sorted([*data.inputs[:, 0], *data.test_inputs[:, 0]]) == list(range(1, 31))
    last = load(table(tmp_path, BIRDS, target="kind", test_items=4, test_from="end", standardise=False), tmp_path)
    assert last.test_inputs is not None
    assert last.test_inputs[:, 0].tolist() == [27, 28, 29, 30]


def test_a_test_file(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("kind,wing,leg\nb,7,1\n")
    section = table(tmp_path, BIRDS, target="kind", test_path="test.csv")
    known = read_spec(section, tmp_path)
    assert known is not None
    assert known.test_items == 1
    data = load(section, tmp_path)
    assert data.test_inputs is not None
    assert data.test_targets is not None
    assert np.array_equal(data.test_inputs[0], data.inputs[6])
    assert data.test_targets.tolist() == [1]


# Missing values


@pytest.mark.parametrize("hole", ["", "NA", "nan", " ? ", "null", "N/A"])
def test_missing_values(tmp_path: Path, hole: str) -> None:
    text = HOUSES.replace("80,", f"{hole},")
    message = 't.csv:3: column `size`: no value; fill it in, or set missing = "drop", "mean" or "median"'
    assert said(houses(tmp_path, text), tmp_path) == message
    dropped = load(houses(tmp_path, text, missing="drop", standardise=False), tmp_path)
    assert dropped.inputs[:, 0].tolist() == [50.5, 120, 65]
    assert dropped.codec["one_hot"] == {"town": ["Jena", "Ulm"]}
    filled = load(houses(tmp_path, text, missing="mean", standardise=False), tmp_path)
    assert filled.inputs[1, 0] == np.float32((50.5 + 120 + 65) / 3)


def test_many_rows_are_dropped_one_after_the_other(tmp_path: Path) -> None:
    text = "x,y\n" + "1,\n" * 40_000 + "1,0.5\n2,1.5\n"
    assert len(load(table(tmp_path, text, target="y", missing="drop"), tmp_path).inputs) == 2


def test_the_mean_that_fills_is_that_of_the_items_trained_on(tmp_path: Path) -> None:
    section = table(tmp_path, "x,y\n1,a\n3,b\n,a\n100,b\n", target="y", missing="mean", validation=1)
    data = load(section, tmp_path, None, training_of(section, Partition(order="given"), 0))
    assert data.codec["fill"] == [2.0]
    assert data.inputs[2, 0] == 0


def test_targets_have_no_mean_and_words_are_a_category_of_their_own(tmp_path: Path) -> None:
    target = houses(tmp_path, HOUSES.replace("2.25", ""), missing="mean")
    assert said(target, tmp_path) == 't.csv:3: column `price`: no value; fill it in, or set missing = "drop"'
    text = HOUSES.replace("Bonn", "")
    refused = 't.csv:3: column `town`: no value; fill it in, or set missing = "drop", or {"town" = "category"}'
    assert said(houses(tmp_path, text), tmp_path) == refused
    for missing in ("mean", {"town": "category"}):
        data = load(houses(tmp_path, text, missing=missing, standardise=False), tmp_path)
        assert data.inputs[:, 2:].tolist() == [[0, 1], [0, 0], [0, 1], [1, 0]]  # Jena, Ulm


def test_missing_values_are_filled_by_column(tmp_path: Path) -> None:
    text = "a,b,c,d,y\n1,,5,u,1.5\n3,2,,,2\n,4,7,v,2.5\n100,4,8,u,\n9,1,1,u,3\n"
    missing = {"a": "median", "b": -1.0, "y": "drop", "*": "mean"}
    section = table(tmp_path, text, target="y", one_hot=["d"], missing=missing, missing_indicator=["b", "d"], standardise=False)
    data = load(section, tmp_path)
    assert data.codec["features"] == ["a", "b", "b missing", "c", "d=u", "d=v", "d missing"]
    assert data.inputs[:, :4].tolist() == pytest.approx(np.array([[1, -1, 1, 5], [3, 2, 0, 13 / 3], [3, 4, 0, 7], [9, 1, 0, 1]]))
    assert data.inputs[:, 4:].tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]
    (tmp_path / "new.csv").write_text("d,c,b,a\nw,,,\n")
    assert encode(data.codec, open_table(section, tmp_path / "new.csv")).tolist() == [pytest.approx([3, -1, 1, 13 / 3, 0, 0, 0])]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"missing": {"town": 3}}, "`missing`: `town` is a column of words, and 3 is a number"),
        ({"missing": {"size": "category"}}, "`missing`: `size` is no column of words"),
        ({"missing": {"price": "mean"}}, "`missing`: `price` is the target, which cannot be filled in"),
        ({"missing_indicator": ["size"]}, "`missing_indicator`: `size` has no missing values to tell"),
        ({"categories": ["town"]}, "`one_hot` and `categories` both name `town`"),
        ({"dates": ["price"]}, "`price` is the target"),
    ],
)
def test_keys_that_do_not_go_together(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        houses(tmp_path, **keys)


# Codes, dates, truth values


def test_codes_of_words_rare_ones_count_as_unseen(tmp_path: Path) -> None:
    text = "w,x,y\n" + "".join(f"{word},{number},{number}.5\n" for number, word in enumerate(["b", "a", "b", "", "c", "a"]))
    section = table(tmp_path, text, target="y", categories=["w"], missing={"w": "category"}, standardise=False)
    data, known = load(section, tmp_path), read_spec(section, tmp_path)
    assert known is not None
    assert (known.categories, data.categories, known.shape) == ((5, 0), (4, 0), (2,))
    assert (data.codec["categories"], data.inputs[:, 0].tolist()) == ({"w": ["a", "b"]}, [3, 2, 3, 0, 1, 2])
    (tmp_path / "new.csv").write_text("w,x\nb,1\nz,2\n?,3\n")
    assert encode(data.codec, open_table(section, tmp_path / "new.csv"))[:, 0].tolist() == [3, 1, 0]


def test_dates_become_numbers(tmp_path: Path) -> None:
    text = "t,y\n1970-01-02,1.5\n1971-01-01,2\n,3\n"
    data = load(table(tmp_path, text, target="y", dates=["t"], missing="mean", standardise=False), tmp_path)
    assert data.codec["features"] == ["t:day", *(f"t:{wave} of {one}" for one in ("year", "week") for wave in ("sin", "cos"))]
    friday = 2 * math.pi * 4 / 7
    assert data.inputs[0].tolist() == pytest.approx(
        [1, math.sin(2 * math.pi / 365.25), 1, math.sin(friday), math.cos(friday)], abs=1e-3
    )
    assert data.inputs[:, 0].tolist() == [1, 365, 183]
    timed = load(table(tmp_path, "t,y\n1970-01-02T06:00:00Z,1.5\n1970-01-02 12:00,2\n", target="y", dates=["t"]), tmp_path)
    assert timed.codec["fill"][0] == 1.375
    assert len(timed.codec["features"]) == 7
    assert said(table(tmp_path, "t,y\n31.12.1999,1.5\n", target="y", dates=["t"]), tmp_path) == (
        "t.csv:2: column `t`: `31.12.1999` is no date such as 2024-05-31 or 2024-05-31T12:00"
    )
    assert "is a date, no number; list the column in `dates`" in said(table(tmp_path, text, target="y"), tmp_path)


def test_truth_values_are_numbers(tmp_path: Path) -> None:
    data = load(table(tmp_path, "t,y\nTrue,1.5\nfalse,2\n1,3\n", target="y", standardise=False), tmp_path)
    assert data.inputs.tolist() == [[1], [0], [1]]


# Kinds of targets, columns that number the rows


def prices(folder: Path, values: Sequence[int], **more: Any) -> Csv:
    return table(folder, "x,y\n" + "".join(f"{number % 7},{value}\n" for number, value in enumerate(values)), target="y", **more)


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (range(20), "classification"),
        (range(21), "regression"),
        ([value % 26 for value in range(26 * 20)], "classification"),
        ([value % 26 for value in range(26 * 19)], "regression"),
        ([value % 40 + 1950 for value in range(1000)] + [7], "regression"),
    ],
)
def test_many_whole_numbers_are_a_regression_and_that_is_remarked(tmp_path: Path, values: Sequence[int], task: str) -> None:
    section = prices(tmp_path, values)
    known = read_spec(section, tmp_path)
    assert known is not None
    assert (known.task, load(section, tmp_path).task) == (task, task)
    assert [(one.key, "target_kind" in one.advice) for one in known.remarks] == [("target", True)] * (task == "regression")
    for kind, wanted in (("number", "regression"), ("class", "classification")):
        told = read_spec(prices(tmp_path, values, target_kind=kind), tmp_path)
        assert told is not None
        assert (told.task, told.remarks) == (wanted, ())


def test_a_test_class_that_is_not_known_is_found_in_its_line(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("kind,wing,leg\nb,7,1\na,8,2\nz,9,1\nq,9,1\n")
    with pytest.raises(WrongContent) as caught:
        load(table(tmp_path, BIRDS, target="kind", test_path="test.csv"), tmp_path)
    assert [keys for keys, _ in caught.value.faults] == [["test_path"]]
    assert caught.value.message == f"{tmp_path}/test.csv:4: column `kind`: the class `z` is not in t.csv"


def test_faults_of_a_test_file_concern_it(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("kind,wing\nb,7\n")
    section = table(tmp_path, BIRDS, target="kind", test_path="test.csv", missing="error")
    with pytest.raises(WrongContent) as caught:
        load(section, tmp_path)
    assert caught.value.faults == ((["test_path"], f"{tmp_path}/test.csv:1: no column `leg`, which t.csv has"),)


def test_all_faults_of_a_file_at_once(tmp_path: Path) -> None:
    text = "size,town,price\n,Ulm,1\n2,Bonn,cheap\n"
    with pytest.raises(WrongContent) as caught:
        read_spec(table(tmp_path, text, target="price", target_kind="number"), tmp_path)
    columns = [message.split("`")[1] for _, message in caught.value.faults]
    assert columns == ["size", "town", "price"]


def test_unseen_words_of_a_test_file_are_a_remark(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text(HOUSES.replace("Bonn", "Rom"))
    section = houses(tmp_path, test_path="test.csv", standardise=False)
    known, data = read_spec(section, tmp_path), load(section, tmp_path)
    assert known is not None
    assert data.test_inputs is not None
    assert data.test_inputs[1].tolist() == [80, 3, 0, 0, 0]
    assert known.remarks[0][:2] == (
        "test_path",
        f"{tmp_path}/test.csv:3: column `town`: the word `Rom` is not in t.csv, in 1 rows",
    )


@pytest.mark.parametrize("header", [",size,y", '"",size,y', "Unnamed: 0,size,y"])
def test_an_index_without_a_name_is_left_out(tmp_path: Path, header: str) -> None:
    section = table(tmp_path, header + "\n0,5,1.5\n1,6,2.5\n", target="y")
    known = read_spec(section, tmp_path)
    assert known is not None
    assert (known.shape, load(section, tmp_path).codec["inputs"]) == ((1,), ["size"])
    assert "column 1 has no name, like an index that pandas or R wrote: it is left out" in known.remarks[0].message
    assert load(section.model_copy(update={"inputs": ["Unnamed: 0"]}), tmp_path).codec["inputs"] == ["Unnamed: 0"]
    told = read_spec(section.model_copy(update={"drop": ["Unnamed: 0"]}), tmp_path)
    assert told is not None
    assert told.remarks == ()


@pytest.mark.parametrize(("name", "remarked"), [("id", True), ("PassengerId", True), ("order_id", True), ("paid", False)])
def test_a_column_that_numbers_the_rows_is_remarked(tmp_path: Path, name: str, remarked: bool) -> None:
    rows = "".join(f"{1000 + 3 * number},{number % 5},{number % 2}\n" for number in range(40))
    known = read_spec(table(tmp_path, f"{name},x,y\n{rows}", target="y"), tmp_path)
    assert known is not None
    assert [one.advice for one in known.remarks] == [f'leave it out: drop = ["{name}"]'] * remarked


# Faults


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "120",
            "12O",
            "t.csv:4: column `size`: `12O` is no number; list the column in `one_hot` or `categories` if it holds words, or in `drop`",
        ),
        (
            "120",
            "1_2",
            "t.csv:4: column `size`: `1_2` is no number; list the column in `one_hot` or `categories` if it holds words, or in `drop`",
        ),
        ("120", "inf", "t.csv:4: column `size`: `inf` is no finite number"),
        ("65,2,Jena,2.5", "65,2", "t.csv:5: 2 cells where line 1 names 4 columns: `town` and what follows are missing"),
        (
            "65,2,Jena",
            "65,2,Je,na",
            "t.csv:5: 5 cells where line 1 names 4 columns: put cells that hold the separator ',' in quotes, or set `separator`",
        ),
        ("rooms", "size", "t.csv:1: two columns are called `size`"),
        ("rooms", "", "t.csv:1: column 2 has no name"),
        ("price", "prize", "t.csv:1: no column `price`, which `target` asks for: did you mean `prize`?"),
        ("town", "x9", "t.csv:1: no column `town`, which `one_hot` asks for: there are size, rooms, x9, price"),
        (
            "size,rooms,town,price\n",
            "",
            "t.csv:1: no column `price`, which `target` asks for: there are 50.5, 2, Ulm, 1.5; "
            "t.csv:1: no column `town`, which `one_hot` asks for: there are 50.5, 2, Ulm, 1.5",
        ),
        (
            "size,rooms,town,price",
            "1,2,3,4",
            "t.csv:1: holds numbers where the names of columns are expected: add a line of names",
        ),
        (HOUSES, "", "t.csv:1: is empty: expected the names of columns"),
        (HOUSES, "size,rooms,town,price\n", "t.csv: holds no rows"),
        ("120,5,Ulm", '120,5,"Ulm', "t.csv:4: unexpected end of data"),
        ("120,5,Ulm", '120,5,"U"lm', "t.csv:4: ',' expected after '\"'"),
        ("2.25", "cheap", None),
    ],
)
def test_faults_have_their_place(tmp_path: Path, old: str, new: str, message: str | None) -> None:
    assert old in HOUSES
    section = houses(tmp_path, HOUSES.replace(old, new), target_kind="number")
    assert said(section, tmp_path) == (message or "t.csv:3: column `price`: holds a word, but targets must be numbers")


def test_numbers_too_large_for_an_item(tmp_path: Path) -> None:
    text = HOUSES.replace("120", "1e39")
    assert np.isfinite(load(houses(tmp_path, text), tmp_path).inputs).all()
    assert said(houses(tmp_path, text, standardise=False), tmp_path) == "t.csv: column `size`: holds a number that float32 cannot"


def test_cells_of_several_lines_are_placed_where_their_row_begins(tmp_path: Path) -> None:
    text = HOUSES.replace("Bonn", '"Bonn\nam\nRhein"').replace("120", "many")
    assert said(houses(tmp_path, text), tmp_path).startswith("t.csv:6: column `size`: `many` is no number")


def test_faults_far_down_have_their_line(tmp_path: Path) -> None:
    rows = [f"{number},{number / 2 + 0.25}" for number in range(40_000)]
    rows[39_000] = "x,1.5"
    text = "a,b\n" + "\n".join(rows)
    assert said(table(tmp_path, text, target="b"), tmp_path).startswith("t.csv:39002: column `a`: `x` is no number")


def test_text_in_another_encoding_has_its_line(tmp_path: Path) -> None:
    text = HOUSES.replace("Jena", "Köln").encode("latin-1")
    message = 't.csv:5: not utf-8 text (invalid start byte): save it so, or set encoding = "latin-1"'
    assert said(houses(tmp_path, text), tmp_path) == message


def test_utf8_is_not_read_in_the_encoding_of_a_job(tmp_path: Path) -> None:
    """Any file can be read as Latin-1, and words would have other letters."""
    text = HOUSES.replace("Jena", "Köln")
    message = 't.csv: is UTF-8 text, and would be read as cp1252: set encoding = "utf-8"'
    assert said(houses(tmp_path, text.encode(), encoding="cp1252"), tmp_path) == message
    assert load(houses(tmp_path, text.encode("cp1252"), encoding="cp1252"), tmp_path).items
    assert load(houses(tmp_path, HOUSES, encoding="cp1252"), tmp_path).items


def test_damaged_gzip(tmp_path: Path) -> None:
    packed = gzip.compress(HOUSES.encode() * 50)
    assert said(houses(tmp_path, packed[:-20], name="t.csv.gz"), tmp_path).startswith(
        "t.csv.gz: damaged gzip data: Compressed file ended"
    )


def test_no_file(tmp_path: Path) -> None:
    section = houses(tmp_path)
    (tmp_path / "t.csv").unlink()
    assert said(section, tmp_path) == "t.csv: No such file or directory"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind,wing,leg\nd,7,1\n", "test.csv:2: column `kind`: the class `d` is not in t.csv"),
        ("kind,wing,leg\na ,7,1\nA,7,1\n", "test.csv:3: column `kind`: the class `A` is not in t.csv"),
        ("kind,wing\na,7\n", "test.csv:1: no column `leg`, which t.csv has"),
        ("kind,wing,leg\na,7,1\na,7,x\n", "test.csv:3: column `leg`: `x` is no number"),
        ("kind,wing,leg\n", "test.csv: holds no rows"),
    ],
)
def test_faults_of_a_test_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "test.csv").write_text(text)
    assert said(table(tmp_path, BIRDS, target="kind", test_path="test.csv"), tmp_path).startswith(message)


@pytest.mark.parametrize("other", ["07", "+7", "7.0", "9" * 5000])
def test_a_whole_number_is_a_class_only_as_it_is_written(tmp_path: Path, other: str) -> None:
    (tmp_path / "test.csv").write_text(f"x,y\n1,7\n2,{other}\n")
    section = table(tmp_path, "x,y\n1,7\n2,1\n", target="y", test_path="test.csv")
    assert said(section, tmp_path) == f"test.csv:3: column `y`: the class `{other}` is not in t.csv"


def test_names_with_line_breaks_are_told_in_one_line(tmp_path: Path) -> None:
    text = HOUSES.replace("rooms", '"rooms\nin\tall"').replace("80,3", '80,"th\r\nree"')
    assert said(houses(tmp_path, text), tmp_path).startswith("t.csv:4: column `rooms in all`: `th ree` is no number")


def test_a_class_only_among_the_test_items(tmp_path: Path) -> None:
    """`validate`, which makes no numbers, finds it by the same draw; the advice is none that the job follows already."""

    def refused(rows: str, **keys: Any) -> str:
        section = table(tmp_path, BIRDS + rows, target="kind", **keys)
        with pytest.raises(InputMissing) as caught:
            read_spec(section, tmp_path)
        assert said(section, tmp_path) == caught.value.message.replace(f"{tmp_path}/", "")
        return said(section, tmp_path)

    once = "t.csv:32: column `kind`: the class `rare` occurs once, as a test item; add items of it, or leave it out by `classes`"
    assert refused("9,9,rare\n", test_items=1, test_from="end") == once
    assert refused("9,9,rare\n", test_share=0.5, stratify=True) == once
    two, twice = "9,9,rare\n8,8,rare\n", "the class `rare` occurs among the test items only, 2 times"
    assert refused(two, test_items=2, test_from="end").endswith(f'{twice}; set test_from = "shuffled", or hold fewer items out')
    shuffled = "t.csv:2: column `kind`: the class `b` occurs among the test items only, 10 times"
    assert refused(two, test_items=26) == f"{shuffled}; set stratify = true, or hold fewer items out"
    assert "the class `b` (one of 2 such classes) occurs" in refused(two, test_items=29)
    assert refused(two, test_items=23, stratify=True).endswith(f"{twice}; leave it out by `classes`, or hold fewer items out")
    for keys in ({"test_items": 2}, {"test_share": 0.4, "stratify": True}):
        section = table(tmp_path, BIRDS + two, target="kind", **keys)
        assert load(section, tmp_path).spec.test_items == read_spec(section, tmp_path).test_items  # type: ignore[union-attr]


@pytest.mark.parametrize("numbers", [["1", "1.5", "2"], ["1", "2", "3"]])
def test_a_word_among_the_targets_numbers(tmp_path: Path, numbers: list[str]) -> None:
    """One wrong cell must not turn a regression into a classification."""
    lines = [f"{target},{number}" for number, target in enumerate(numbers * 4)]
    lines[6] = '"4,5",6'
    text = "y,x\n" + "\n".join(lines) + "\n"
    message = (
        't.csv:8: column `y`: holds a word where other targets are numbers; correct it, or set target_kind = "class" if it is one'
    )
    assert said(table(tmp_path, text, target="y"), tmp_path) == message
    assert load(table(tmp_path, text, target="y", target_kind="class"), tmp_path).outputs == 4


def test_what_is_hardly_a_class(tmp_path: Path) -> None:
    text = "x,y\n" + "".join(f"{number},w{number}\n" for number in range(50))
    message = 't.csv: column `y`: 50 different values in 50 rows are hardly classes; set target_kind = "number" or "class"'
    assert said(table(tmp_path, text, target="y"), tmp_path) == message
    assert load(table(tmp_path, text, target="y", target_kind="class"), tmp_path).outputs == 50
    one = "x,y\n1,a\n2,a\n"
    assert said(table(tmp_path, one, target="y"), tmp_path) == "t.csv: column `y`: all rows have the class `a`"


@pytest.mark.parametrize("split", [{"test_items": 30}, {"test_share": 0.01}, {"test_share": 0.99}])
def test_nothing_left_of_one_part(tmp_path: Path, split: dict[str, Any]) -> None:
    assert "training or test would be empty" in said(table(tmp_path, BIRDS, target="kind", **split), tmp_path)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"test_items": 3, "test_path": "x.csv"}, "exclude one another"),
        ({"inputs": ["a"], "drop": ["b"]}, "`inputs` and `drop` exclude each other"),
        ({"inputs": ["a"], "one_hot": ["b"]}, "`one_hot` names `b`, which is not among `inputs`"),
        ({"drop": ["y"]}, "`y` is the target"),
        ({"target": ["y", "z"], "target_kind": "class"}, "several target columns are numbers"),
        ({"target": []}, "at least 1"),
        ({"test_from": "end"}, "`test_from` has no effect"),
        ({"encoding": "utf-88"}, "there is no `utf-88`"),
        ({"separator": ";;"}, "at most 1"),
    ],
)
def test_tables_that_contradict_themselves(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Csv.model_validate({"kind": "csv", "path": "t.csv", "target": "y", **more})


def test_facts_need_no_numpy(tmp_path: Path) -> None:
    houses(tmp_path)
    program = (
        "import sys; from pathlib import Path; from partrain.data import read_spec; from partrain.data.tables.sections import Csv;"
        "read_spec(Csv(kind='csv', path='t.csv', target=['price'], one_hot=['town']), Path(sys.argv[1]));"
        "print({'numpy', 'torch', 'polars', 'h5py'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_facts_follow_the_file(tmp_path: Path) -> None:
    section = houses(tmp_path)
    first = read_spec(section, tmp_path)
    houses(tmp_path, HOUSES + "1,2,Ulm,3.5\n")
    second = read_spec(section, tmp_path)
    assert first is not None
    assert second is not None
    assert (first.items, second.items) == (4, 5)


# Parquet


def test_parquet_is_the_same_table(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    houses(tmp_path)
    polars.read_csv(tmp_path / "t.csv").write_parquet(tmp_path / "t.parquet")
    section = Parquet(kind="parquet", path="t.parquet", target=["price"], one_hot=["town"])
    one, other = load(section, tmp_path), load(houses(tmp_path), tmp_path)
    assert np.array_equal(one.inputs, other.inputs)
    assert np.array_equal(one.targets, other.targets)
    frame = polars.DataFrame({"x": [1.0, None, math.nan], "flag": [True, False, True]})
    frame.write_parquet(tmp_path / "t.parquet")
    section = Parquet(kind="parquet", path="t.parquet", target=["flag"])
    assert said(section, tmp_path).startswith("t.parquet: row 2: column `x`: no value")
    data = load(section.model_copy(update={"missing": "mean", "standardise": False}), tmp_path)
    assert (data.inputs[:, 0].tolist(), data.targets.tolist()) == ([1, 1, 1], [1, 0, 1])
    assert data.codec["classes"] == ["false", "true"]


def test_digits_in_parquet_are_words_too(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    section = Parquet(kind="parquet", path="t.parquet", target=["y"])
    for cells, classes in ((["07", "7", "07"], ["07", "7"]), (["10", "7", "7"], [7, 10]), ([10, 7, 7], [7, 10])):
        polars.DataFrame({"x": [1.0, 2.0, 3.0], "y": cells}).write_parquet(tmp_path / "t.parquet")
        data = load(section, tmp_path)
        assert [data.codec["classes"][label] for label in data.targets] == [type(classes[0])(cell) for cell in cells]
        assert data.codec["classes"] == classes


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and so on")
    section = Parquet(kind="parquet", path="t.parquet", target=["y"])
    assert said(section, tmp_path).startswith("t.parquet: damaged, or no Parquet file: ")


# The embedded table


@pytest.fixture
def wine() -> Dataset:
    return load(Csv(kind="csv", path="wine.csv", target=["cultivator"]), Path(__file__).parents[3] / "datasets" / "wine")


def test_the_embedded_wines_are_all_there(wine: Dataset) -> None:
    assert (wine.inputs.shape, np.bincount(wine.targets).tolist()) == ((178, 13), [59, 71, 48])
    folder = Path(__file__).parents[3] / "datasets" / "wine"
    assert subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=folder, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_a_line_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It is refused before all of it is in memory, in the header and below."""
    monkeypatch.setattr("partrain.data.tables.files.MAX_LINE", 1000)
    for text, line in (("a,b\n" + "1" * 5000 + ",2\n", 2), ("a" * 5000 + ",b\n1,2\n", 1), ("a,b\n1,2\n" + "3,4," * 300, 3)):
        data = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
        with pytest.raises(InputMissing, match=rf"{name}:{line}: a line of more than 999 characters"):
            load(table(tmp_path, data, name, target="b"), tmp_path)
    data = ("a,b\n" + "1," + " " * 990 + "2\n" + "3,4\n" * 9).encode()
    assert load(table(tmp_path, gzip.compress(data) if name.endswith(".gz") else data, name, target="b"), tmp_path).items == 10


# Wide tables


class CountedName(str):
    """A name that counts how often it is compared: each step of a search in a list or tuple is one comparison."""

    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedName.comparisons += 1
        return str.__eq__(self, other)


def comparisons(count: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Read a table of this many columns of each kind; returns how often names were compared."""
    header = CsvFile._header
    monkeypatch.setattr(CsvFile, "_header", lambda file: list(map(CountedName, header(file))))
    kinds = {kind: [f"{kind}{number}" for number in range(count)] for kind in ("x", "word", "code", "date", "left", "hole")}
    cells = {"x": "0.5", "word": "a", "code": "b", "date": "2024-05-31", "left": "-", "hole": "1"}
    names = [name for some in kinds.values() for name in some]
    rows = [",".join([*(cells[kind] for kind in kinds for _ in range(count)), str(number % 2)]) for number in range(4)]
    text = "\n".join([",".join([*names, "y"]), *rows]) + "\n"
    section = table(
        folder, text, f"wide-{count}.csv", target="y", one_hot=kinds["word"], categories=kinds["code"], dates=kinds["date"],
        drop=kinds["left"], missing_indicator=kinds["hole"], missing="mean", target_kind="class",
    )  # fmt: skip
    CountedName.comparisons = 0
    data = load(section, folder)
    encode(data.codec, open_table(section, folder / section.path))
    return CountedName.comparisons


def test_names_are_looked_up_not_searched_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the columns take twice the comparisons of names, not four times."""
    assert comparisons(100, tmp_path, monkeypatch) * 3 > comparisons(200, tmp_path, monkeypatch)


def test_a_name_that_comes_twice_is_looked_up(tmp_path: Path) -> None:
    names = [CountedName(number) for number in range(1000)]
    CountedName.comparisons = 0
    assert repeated(names) is None
    assert CountedName.comparisons == 0
    assert repeated("abcba") == "a"
    assert said(table(tmp_path, "a,b,c,b,a\n", target="a"), tmp_path) == "t.csv:1: two columns are called `a`"


def test_a_column_of_texts_tells_which_frequent_words_a_cell_has(tmp_path: Path) -> None:
    texts = ["Good, good box", "bad box", "good", "Box!", "odd words here", "good bad box"]
    section = table(
        tmp_path, "review,size,y\n" + "".join(f'"{text}",{at},{at % 2}.5\n' for at, text in enumerate(texts)),
        target="y", texts=["review"], standardise_target=False,
    )  # fmt: skip
    data, known = load(section, tmp_path), read_spec(section, tmp_path)
    assert known is not None
    assert known.shape == data.item_shape
    assert data.codec["features"] == ["review has box", "review has good", "size"]
    words = [[1, 1], [1, 0], [0, 1], [1, 0], [0, 0], [1, 1]]
    assert data.inputs[:, :2].tolist() == words, "words of two texts are left out, as they are no sign of anything"
    (tmp_path / "new.csv").write_text('review,size\n"a BOX",2.5\n')
    assert encode(data.codec, open_table(section, tmp_path / "new.csv"))[0, :2].tolist() == [1, 0]
    holes = "review,size,y\n,1,0.5\ngood box,2,1.5\n"
    assert said(table(tmp_path, holes, "h.csv", target="y", texts=["review"]), tmp_path).startswith(
        "h.csv:2: column `review`: no value"
    )
    filled = load(table(tmp_path, holes, "h.csv", target="y", texts=["review"], missing="mean"), tmp_path)
    assert filled.codec["features"] == ["size"]
    marked = table(
        tmp_path, "review,size,y\n,1,0.5\ngood box,2,1.5\nodd,3,2.5\n", "i.csv",
        target="y", texts=["review"], missing="mean", missing_indicator=["review"],
    )  # fmt: skip
    assert load(marked, tmp_path).inputs[:, 0].tolist() == [1, 0, 0], "a text without a frequent word has a value"


def test_skewed_numbers_have_a_logarithm_beside_them(tmp_path: Path) -> None:
    numbers = [10.0 ** (at / 10 - 2) for at in range(60)]
    section = table(
        tmp_path, "dose,size,y\n" + "".join(f"{dose!r},{at},{at % 3}.5\n" for at, dose in enumerate(numbers)),
        target="y", logs=["dose"], standardise=False, standardise_target=False,
    )  # fmt: skip
    data, known = load(section, tmp_path), read_spec(section, tmp_path)
    assert known is not None
    assert known.shape == data.item_shape == (3,)
    assert data.codec["features"] == ["dose", "log dose", "size"]
    scale = data.codec["logs"]["dose"]
    assert scale == numbers[1], "one in fifty is smaller"
    np.testing.assert_allclose(data.inputs[:, 1], np.arcsinh(np.array(numbers) / scale), rtol=1e-6)
    (tmp_path / "new.csv").write_text("dose,size\n-1,2.5\n0,2.5\n1e30,0\n")
    new = encode(data.codec, open_table(section, tmp_path / "new.csv"))
    np.testing.assert_allclose(new[:, 1], np.arcsinh(np.array([-1, 0, 1e30]) / scale), rtol=1e-6)
    (tmp_path / "new.csv").write_text("dose,size\nhigh,2.5\n")
    with pytest.raises(InputMissing, match="column `dose`: `high` is no number"):
        encode(data.codec, open_table(section, tmp_path / "new.csv"))


def test_a_skewed_target_is_learned_by_its_logarithm_and_answered_in_its_units(tmp_path: Path) -> None:
    values = [0.5, -3.0, 20.0, 1e6, 4.0, 0.0]
    section = table(
        tmp_path, "a,y\n" + "".join(f"{at},{value}\n" for at, value in enumerate(values)), target="y", target_transform="log"
    )
    data = load(section, tmp_path)
    codec = Codec(data.codec)
    median = float(np.median(np.abs(values)))
    logs = np.arcsinh(np.array(values) / median)
    assert data.codec["target_log"] == [median]
    assert data.targets[:, 0] == pytest.approx((logs - logs.mean()) / logs.std(), rel=1e-6)
    assert codec.standardize_targets(np.array(values)[:, None])[:, 0] == pytest.approx(data.targets[:, 0], rel=1e-6)
    restored = codec.restore_units(torch.from_numpy(data.targets.astype(np.float64)))[:, 0]
    assert restored.tolist() == pytest.approx(values, rel=1e-5, abs=1e-6)
    for more in ({"standardise_target": False}, {"target_kind": "class"}):
        with pytest.raises(ValidationError, match="`target_transform` is for numbers that are standardised"):
            table(tmp_path, "a,y\n1,2\n", target="y", target_transform="log", **more)
