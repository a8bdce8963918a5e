"""Items and targets that a network cannot be evaluated on are refused in one line."""

from __future__ import annotations

import json
import math
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.runs import partrain

TABLE = "\n".join(["x,y,kind", *(f"{i / 7:.3f},{(i * i) % 11},{'abc'[i % 3]}" for i in range(90))]) + "\n"
JOB = """name = "t"
[model]
name = "mlp"
hidden = [4]
[dataset]
kind = "csv"
path = "t.csv"
target = "kind"
[optimizer]
name = "sgd"
lr = 0.1
batch_size = 8
[sync]
rule = "average"
iterations = 2
[transport]
kind = "simulated"
[[workers]]
count = 2
[stop]
rounds = 2
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reviewed")
    (folder / "t.csv").write_text(TABLE)
    (folder / "t.toml").write_text(JOB)
    (folder / "empty.csv").write_text("x,y,kind\n")
    assert partrain("run", folder / "t.toml", "--out", folder / "run", "-q").code == 0
    return folder


def inputs(**change: Any) -> dict[str, Any]:
    numbers = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    return {"inputs": numbers, "targets": np.array([0, 1, 2, 0, 1])} | change


GAP = np.where(np.arange(10).reshape(5, 2) == 3, np.nan, 1.0)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (inputs(inputs=GAP), "item 1 holds a number that is not finite"),
        (inputs(inputs=np.full((5, 2), 1e300)), "item 0 holds a number that is not finite"),
        (inputs(targets=np.eye(3, dtype=int)[[0, 1, 2, 0, 1]]), "expected one label for each of 5 items"),
        (inputs(targets=np.array(1)), "1 targets for 5 items"),
    ],
)
def test_arrays_to_be_judged_by(place: Path, tmp_path: Path, content: dict[str, Any], what: str) -> None:
    np.savez(tmp_path / "a.npz", **content)
    said = partrain("evaluate", place / "run", "--input", tmp_path / "a.npz")
    assert (said.code, said.errors) == (66, ["no-input"]), said
    assert what in said.err


def test_a_gap_is_no_mean_unless_the_job_says_so(place: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", GAP)
    assert partrain("predict", place / "run", "--input", tmp_path / "a.npy").code == 66


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("1,2,7", "column `kind`: the class `7` is not one that was trained on"),
        ("1,2,seven", "column `kind`: the class `seven` is not one that was trained on"),
        ("1,2,", "column `kind`: no value"),
        ("1,nan,a", "column `y`: no value; fill it in; --skip-bad leaves such rows out"),
        ("1,inf,a", "column `y`: `inf` is no finite number"),
    ],
)
def test_a_bad_cell_of_a_table_to_be_judged_by(place: Path, tmp_path: Path, row: str, what: str) -> None:
    (tmp_path / "new.csv").write_text(f"x,y,kind\n1,2,a\n\n{row}\n1,2,b\n")
    said = partrain("evaluate", place / "run", "--input", tmp_path / "new.csv")
    assert (said.code, said.errors) == (66, ["no-input"]), said
    assert f"new.csv:4: {what}" in said.err


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x,y\n1,\n", ":2: column `y`: no value; fill it in; --skip-bad leaves such rows out"),
        ("x,y\n1,high\n", ":2: column `y`: `high` is no number; --skip-bad leaves such rows out"),
        ("x,y\n1,2,3\n", ":2: 3 cells where line 1 names 2 columns: put cells that hold the separator ',' in quotes"),
        (
            "x;y\n1;2\n",
            ":1: no column `x`, which `inputs` asks for: line 1 is a single name: its cells seem to be separated by ';', and the job's by ','",
        ),
    ],
)
def test_advice_names_no_key_that_predict_does_not_have(place: Path, tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "new.csv").write_text(text)
    said = partrain("predict", place / "run", "--input", tmp_path / "new.csv")
    assert (said.code, said.errors) == (66, ["no-input"]), said
    assert said.err.splitlines()[0].endswith(f"new.csv{what}"), said.err


def test_a_class_is_one_only_as_it_is_written(place: Path, tmp_path: Path) -> None:
    for name, kinds in (("whole", "172"), ("words", ["007", "07", "7"])):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "t.csv").write_text("x,kind\n" + "".join(f"{i / 7:.3f},{kinds[i % 3]}\n" for i in range(30)))
        (folder / "t.toml").write_text(JOB)
        assert partrain("run", folder / "t.toml", "--out", folder / "run", "-q").code == 0
    (tmp_path / "new.csv").write_text("x,kind\n1,7\n2,07\n")
    said = partrain("evaluate", tmp_path / "whole" / "run", "--input", tmp_path / "new.csv")
    assert (said.code, said.errors) == (66, ["no-input"]), said
    assert "new.csv:3: column `kind`: the class `07` is not one that was trained on" in said.err
    said = partrain("evaluate", tmp_path / "words" / "run", "--input", tmp_path / "new.csv", "--json")
    classes = json.loads(said.out)[str(tmp_path / "new.csv")]["classes"]
    assert [(one["name"], one["count"]) for one in classes] == [("007", 0), ("07", 1), ("7", 1)]


def test_the_class_of_a_picture_is_its_outermost_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate(["a/b/1", "a/2", "b/3", "b/a/4"]):
        (tmp_path / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), 60 * number).save(tmp_path / "pets" / f"{name}.png")
    dataset = 'kind = "images"\npath = "pets"\nsize = [4, 4]\nchannels = 1'
    (tmp_path / "t.toml").write_text(JOB.replace('kind = "csv"\npath = "t.csv"\ntarget = "kind"', dataset))
    assert partrain("run", tmp_path / "t.toml", "--out", tmp_path / "run", "-q", "--set", "optimizer.batch_size=1").code == 0

    def items(path: Path) -> list[int]:
        said = partrain("evaluate", tmp_path / "run", "--input", path, "--json")
        assert said.code == 0, said
        return [sum(row) for row in json.loads(said.out)[str(path)]["confusion"]]

    assert items(tmp_path / "pets") == [2, 2]
    assert items(tmp_path / "pets" / "b" / "3.png") == [0, 1]
    monkeypatch.chdir(tmp_path / "pets" / "a")
    said = partrain("evaluate", tmp_path / "run", "--input", ".", "--json")
    assert "b/1.png" not in said.err
    assert items(Path()) == [1, 1], "a/2 of the folder itself, a/b/1 of the one within"


def test_a_table_without_rows(place: Path) -> None:
    said = partrain("evaluate", place / "run", "--input", place / "empty.csv")
    assert (said.code, said.errors) == (66, ["no-input"]), said
    assert "holds no items" in said.err


def test_one_number_is_inspected(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.float64(3))
    said = partrain("data", "inspect", tmp_path / "a.npy", "--json")
    assert said.code == 0, said
    json.loads(said.out)


@pytest.mark.parametrize("task", ["forecast", "autoencoder"])
def test_a_series_far_from_zero_is_standardised_before_it_is_rounded(tmp_path: Path, task: str) -> None:
    """Near 1.6e9, as in seconds since 1970, float32 has steps of 128: a sine would vanish."""
    (tmp_path / "t.csv").write_text("y\n" + "".join(f"{1.6e9 + math.sin(row / 5)!r}\n" for row in range(80)))
    model = 'name = "autoencoder"\ncode = 2\nhidden = [4]' if task == "autoencoder" else 'name = "lstm"\nhidden = 4'
    text = JOB.replace('name = "mlp"\nhidden = [4]', model)
    text = text.replace('kind = "csv"', 'kind = "series"').replace('target = "kind"', 'target = "y"\nwindow = 6\nvalidation = 10')
    (tmp_path / "t.toml").write_text(text)
    assert partrain("run", tmp_path / "t.toml", "--out", tmp_path / "run", "-q").code == 0
    (tmp_path / "end.csv").write_text("y\n" + "".join((tmp_path / "t.csv").read_text().splitlines(keepends=True)[-15:]))
    whole = json.loads(partrain("evaluate", tmp_path / "run", "--json").out)["validation"]
    part = json.loads(partrain("evaluate", tmp_path / "run", "--input", tmp_path / "end.csv", "--json").out)
    part = part[str(tmp_path / "end.csv")]
    assert (part["items"], whole["items"]) == ((10, 10) if task == "autoencoder" else (9, 10))
    if task == "forecast":
        assert 0 < part["naive"]["mae"] < 0.5
        assert part["r2"] is not None
    assert part["loss"] == pytest.approx(whole["loss"], rel=0.5)


@pytest.mark.parametrize("name", ["packed.npz", "huge.npz", "pipe.npy"])
def test_arrays_that_cannot_be_read(place: Path, name: str) -> None:
    path = place / name
    if name == "pipe.npy":
        os.mkfifo(path)
    elif name == "packed.npz":
        np.savez_compressed(path, inputs=np.random.default_rng(0).normal(size=(400, 2)))
        content = bytearray(path.read_bytes())
        content[300:310] = b"\xff" * 10
        path.write_bytes(content)
    else:
        text = "{'descr': '<f4', 'fortran_order': False, 'shape': (40, 100000000000), }\n"
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("inputs.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode())
    said = partrain("predict", place / "run", "--input", path)
    assert (said.code, said.errors) == (66, ["no-input"]), said


@pytest.mark.parametrize("kind", [np.uint8, np.int64])
def test_columns_of_whole_numbers_are_what_they_are(place: Path, tmp_path: Path, kind: type) -> None:
    """Bytes in a file are scaled for networks that were trained on bytes only."""
    numbers = np.array([[0, 1], [12, 3], [5, 10]])
    np.save(tmp_path / "numbers.npy", numbers.astype(kind))
    (tmp_path / "numbers.csv").write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in numbers))
    told = [
        partrain("predict", place / "run", "--input", tmp_path / f"numbers.{one}", "--probabilities") for one in ("npy", "csv")
    ]
    assert told[0].code == 0
    assert told[0].out == told[1].out


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_no_file_takes_the_place_of_a_pipe(place: Path, tmp_path: Path, force: tuple[str, ...]) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    made = partrain("predict", place / "run", "--input", place / "t.csv", "--output", pipe, *force)
    assert (made.code, made.err.count("\n")) == (73, 1), made.err
    assert "pipe.csv is a pipe or a device" in made.err
    assert pipe.is_fifo()
