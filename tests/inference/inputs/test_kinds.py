"""Every kind of file that a job takes is one to predict from; columns are carried, bad rows left out, and stdin is a file."""

from __future__ import annotations

import csv
import io
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from support.runs import partrain, train

from partrain.inference.inputs.kinds import kind_of, stored_stdin
from partrain.inference.network import TrainedNetwork
from partrain.tasks.kinds import KINDS

Runs = Callable[[str], Path]
PETS = Path(__file__).parents[2] / "data/arrays/pets_by_datasets"
ITEMS = np.random.default_rng(2).normal(size=(7, 2)).astype(np.float32)
TABLE = "size,name,colour\n9.5,ann,blue\n0.25,bob,red\n"
BAD = "size,name,colour\n9.5,ann,blue\nbig,bob,red\n1,2\n2,cid,pink\n0.25,dan,red\n"


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def type_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Make these bytes the standard input."""

    def become(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return become


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on an HDF5 file whose arrays have names of their own, and whose labels are texts."""
    folder = tmp_path_factory.mktemp("hdf5")
    items = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    labels = np.where(items[:, 0] > 0, "plus", "minus")
    with h5py.File(folder / "d.h5", "w") as file:
        file["x"], file["group/y"] = items, labels.astype("S")
    np.savez(folder / "d.npz", x=items, **{"group/y": labels})
    train(folder, 'dataset={kind="hdf5", path="d.h5", inputs="x", targets="group/y", validation=10}', "stop.rounds=5")
    return folder


def test_hdf5_and_npz_by_the_names_of_the_job(arrays: Path) -> None:
    told = [partrain("predict", arrays / "run", "-i", arrays / name) for name in ("d.h5", "d.npz")]
    assert (told[0].code, told[0].err) == (0, "")
    assert told[0].out == told[1].out
    judged = [json.loads(partrain("evaluate", arrays / "run", "-i", arrays / name, "--json").out) for name in ("d.h5", "d.npz")]
    first, second = (one[str(arrays / name)] for one, name in zip(judged, ("d.h5", "d.npz"), strict=True))
    assert first == second
    assert first["items"] == 60


def test_hdf5_by_the_usual_names(run_of: Runs, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ITEMS)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["inputs"] = ITEMS
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["values"] = ITEMS
    same = [partrain("predict", run_of("clouds"), "-i", tmp_path / name).out for name in ("a.npy", "a.h5")]
    assert same[0] == same[1]
    said = partrain("predict", run_of("clouds"), "-i", tmp_path / "b.h5")
    assert (said.code, said.errors) == (66, ["no-input"])
    assert "b.h5: has no array `inputs`; it has: values" in said.err


@pytest.mark.parametrize("column", ["photo", "spot", "curve"])
def test_a_saved_data_set(tmp_path: Path, column: str) -> None:
    """The folder of the test split is judged as the test split is."""
    table = f'{{kind="huggingface", path="{PETS}", inputs="{column}", target="kind"}}'
    run = train(tmp_path, f"dataset={table}", "stop.rounds=2", "optimizer.batch_size=1", "workers=[{count=1}]")
    own = json.loads(partrain("evaluate", run, "--json").out)["test"]
    judged = json.loads(partrain("evaluate", run, "-i", PETS / "test", "--json").out)[str(PETS / "test")]
    assert judged.pop("loss") == pytest.approx(own.pop("loss"), rel=1e-6)
    assert own.pop("constant")["accuracy"] == 0.5
    assert judged == own
    told = rows(partrain("predict", run, "-i", PETS / "test").out)
    assert len(told) == own["items"] == 2
    said = partrain("predict", run, "-i", PETS)
    assert said.code == 66
    assert f"{PETS}: holds the splits train, test: name one, as in {PETS / 'test'}" in said.err


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "stdin csv", "stdin jsonl", "stdin parquet"])
def test_tables_of_every_form(run_of: Runs, tmp_path: Path, type_in: Callable[[bytes], None], form: str) -> None:
    polars = pytest.importorskip("polars")
    path = tmp_path / f"new.{form.removeprefix('stdin ')}"
    table = polars.read_csv(TABLE.encode())
    {"csv": table.write_csv, "jsonl": table.write_ndjson, "parquet": table.write_parquet}[path.suffix[1:]](path)
    if form.startswith("stdin"):
        type_in(path.read_bytes())
    said = partrain("predict", run_of("tabular"), "-i", "-" if form.startswith("stdin") else path, "--id", "name")
    assert (said.code, said.err) == (0, ""), said
    assert said.out == "name,label,class\nann,0,large\nbob,1,small\n"


def test_columns_are_carried_and_no_name_is_taken_twice(run_of: Runs, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("size,label,colour,input_label\n9.5,x,blue,u\n0.25,y,red,v\n")
    words = ["predict", run_of("tabular"), "-i", tmp_path / "new.csv", "--with-input"]
    said = partrain(*words, "--probabilities", "--top", 1)
    heads = "size,input_input_label,colour,input_label,label,class,probability_large,probability_small,top_1,top_1_probability"
    assert said.out.splitlines()[0] == heads
    (first, _) = rows(said.out)
    assert (first["input_input_label"], first["input_label"], first["label"]) == ("x", "u", "0")
    assert first["top_1"] == "large"
    assert first["top_1_probability"] == first["probability_large"]
    assert partrain(*words, "-o", tmp_path / "a.npz").code == 0
    with np.load(tmp_path / "a.npz") as archive:
        assert archive["input_input_label"].tolist() == ["x", "y"]
    (tmp_path / "new.csv").write_text("size,price,colour\n9.5,7,blue\n")
    said = partrain("predict", run_of("prices"), "-i", tmp_path / "new.csv", "--with-input")
    assert said.out.splitlines()[0] == "size,input_price,colour,price"


def test_bad_rows_are_left_out_and_the_others_answered_as_before(
    run_of: Runs, tmp_path: Path, type_in: Callable[[bytes], None]
) -> None:
    (tmp_path / "good.csv").write_text(TABLE)
    (tmp_path / "bad.csv").write_text(BAD)
    good = rows(partrain("predict", run_of("tabular"), "-i", tmp_path / "good.csv", "--probabilities").out)
    refused = partrain("predict", run_of("tabular"), "-i", tmp_path / "bad.csv")
    assert refused.code == 66
    said = partrain("predict", run_of("tabular"), "-i", tmp_path / "bad.csv", "--probabilities", "--skip-bad")
    assert said.code == 0
    assert "rows left out; the first: " in said.err
    assert f"{tmp_path / 'bad.csv'}:3: " in said.err
    some = rows(said.out)
    assert (some[0]["item"], some[-1]["item"]) == ("0", "4"), "rows keep their numbers"
    for one, other in zip(good, (some[0], some[-1]), strict=True):
        assert {**one, "item": ""} == {**other, "item": ""}
    type_in(BAD.encode())
    told = json.loads(partrain("predict", run_of("tabular"), "-i", "-", "--skip-bad", "--id", "name", "--json").out)
    assert told["name"] == [row for row in ("ann", "cid", "dan") if row in told["name"]]
    assert told["skipped"]["first"].startswith("<stdin>:3: ")
    (tmp_path / "none.csv").write_text("size,colour\nbig,red\n")
    said = partrain("predict", run_of("tabular"), "-i", tmp_path / "none.csv", "--skip-bad")
    assert (said.code, said.errors) == (66, ["no-input"])
    assert "none.csv:2: " in said.err


def test_many_bad_rows(network_of: Callable[[str], TrainedNetwork], tmp_path: Path) -> None:
    """Any rows may be bad: the rest have the same inputs as in a file of their own."""
    from partrain.inference.inputs.read import read

    draw = random.Random(5)
    network = network_of("tabular")
    for share in (0.0, 0.02, 0.5, 0.98):
        bad = [draw.random() < share for _ in range(300)]
        good = [f"{number / 10},red" for number in range(300)]
        wrong = [draw.choice([f"z{number},red", f"{number},", f"{number}", f"{number},red,1"]) for number in range(300)]
        lines = [other if is_bad else one for one, other, is_bad in zip(good, wrong, bad, strict=True)]
        (tmp_path / "bad.csv").write_text("\n".join(["size,colour", *lines, ""]))
        left = [one for one, is_bad in zip(good, bad, strict=True) if not is_bad]
        (tmp_path / "good.csv").write_text("\n".join(["size,colour", *left, ""]))
        some, whole = read(network, tmp_path / "bad.csv", skip_bad=True), read(network, tmp_path / "good.csv")
        assert some.inputs.equal(whole.inputs)
        assert some.names == [str(number) for number, is_bad in enumerate(bad) if not is_bad]
        assert len(some.skipped) == sum(bad)


def test_evaluate_leaves_bad_rows_out(run_of: Runs, tmp_path: Path) -> None:
    lines = (run_of("tabular").parent / "table.csv").read_text().splitlines()
    (tmp_path / "whole.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "bad.csv").write_text("\n".join([*lines[:5], "a,b,c,large", *lines[5:], "1,2"]) + "\n")
    whole, some = (
        json.loads(partrain("evaluate", run_of("tabular"), "-i", tmp_path / name, "--skip-bad", "--json").out)
        for name in ("whole.csv", "bad.csv")
    )
    assert some.pop("skipped")["rows"] == 2
    assert some[str(tmp_path / "bad.csv")] == whole[str(tmp_path / "whole.csv")]


def test_text_from_stdin_and_from_a_folder(run_of: Runs, tmp_path: Path, type_in: Callable[[bytes], None]) -> None:
    text = "a rose is a rose is a rose. " * 4
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "1.txt").write_text(text[:50])
    (tmp_path / "all" / "2.txt").write_text(text[50:])
    type_in(text.encode())
    one, other = (partrain("evaluate", run_of("rose"), "-i", path, "--json") for path in ("-", tmp_path / "all"))
    assert (one.code, other.code) == (0, 0), one
    assert json.loads(one.out)["<stdin>"] == json.loads(other.out)[str(tmp_path / "all")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "<stdin>: is empty"),
        (
            b'{"size": 1, "colour": "red"}\n{"size": 1}\n',
            "<stdin>:2: column `colour`: no value; fill it in",
        ),
        (b'{"size": 1, "colour": ["red"]}\n', "<stdin>:1: `colour` holds list, and a cell of a table is one value"),
        (b'{"size": 1, "colour": "red"}\n{"size": \n', "<stdin>:2: is no JSON object"),
        (b"size,colour\n1,red\n1,red,2\n", "<stdin>:3: 3 cells where line 1 names 2 columns"),
    ],
)
def test_faults_of_stdin_have_a_line(run_of: Runs, type_in: Callable[[bytes], None], content: bytes, message: str) -> None:
    type_in(content)
    said = partrain("predict", run_of("tabular"), "-i", "-")
    assert (said.code, said.errors) == (66, ["no-input"])
    assert message in said.err


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("clouds", ["-i", "a.npy", "--id", "x"], "--id concerns the rows of a table"),
        ("clouds", ["-i", "a.npy", "--skip-bad"], "--skip-bad concerns the rows of a table"),
        ("spots", ["-i", "series.csv", "--with-input"], "--with-input concerns the rows of a table, and this is a series"),
        ("tabular", ["-i", "new.csv", "--id", "nam"], "no column `nam`, which `--id` asks for: did you mean `name`?"),
        ("tabular", ["-i", "new.csv", "--top", "3"], "--top 3: the network has 2 classes"),
        ("prices", ["-i", "new.csv", "--top", "1"], "only a classification network has likeliest classes"),
    ],
)
def test_options_that_do_not_apply(run_of: Runs, tmp_path: Path, name: str, words: list[Any], message: str) -> None:
    np.save(tmp_path / "a.npy", ITEMS)
    (tmp_path / "new.csv").write_text(TABLE)
    (tmp_path / "series.csv").write_text((run_of("spots").parent / "series.csv").read_text())
    said = partrain("predict", run_of(name), words[0], tmp_path / words[1], *words[2:])
    assert (said.code, said.errors) == (66, ["no-input"]), said
    assert message in said.err


@pytest.mark.parametrize("name", ["clouds", "tabular", "prices", "rose", "codes"])
def test_items_that_were_converted(run_of: Runs, tmp_path: Path, type_in: Callable[[bytes], None], name: str) -> None:
    """They are those of training: the loss on them is that on training and validation items together."""
    run, items = run_of(name), tmp_path / "x.ptitems"
    assert partrain("data", "convert", run.parent / "job.toml", "-o", items).code == 0
    told = json.loads(partrain("evaluate", run, "-i", items, "--json").out)[str(items)]
    splits = [
        json.loads(partrain("evaluate", run, "--split", split, "--json").out)[split] for split in ("training", "validation")
    ]
    if name == "rose":  # windows that lie in both parts belong to neither
        assert told["items"] == sum(one["items"] for one in splits) + 15
        return
    assert told["items"] == sum(one["items"] for one in splits)
    assert told["loss"] == pytest.approx(sum(one["items"] * one["loss"] for one in splits) / told["items"], rel=1e-5)
    if name == "prices":
        answers = partrain("predict", run, "-i", items).out
        assert answers == partrain("predict", run, "-i", run.parent / "table.csv").out
        type_in(items.read_bytes())
        assert partrain("predict", run, "-i", "-").out == answers


def test_items_of_another_data_set_are_refused(run_of: Runs, tmp_path: Path) -> None:
    items = tmp_path / "x.ptitems"
    assert partrain("data", "convert", run_of("prices").parent / "job.toml", "-o", items).code == 0
    said = partrain("predict", run_of("tabular"), "-i", items)
    assert said.code == 66
    assert f"{items}: its items were made with other means, classes or columns than those the network was trained on" in said.err


@pytest.mark.parametrize("form", ["png", "jpeg", "bmp", "gif", "tiff", "webp", "ppm"])
def test_an_image_from_stdin(tmp_path: Path, type_in: Callable[[bytes], None], form: str) -> None:
    image = pytest.importorskip("PIL.Image")
    kinds = {"png": ".png", "jpeg": ".jpg", "bmp": ".bmp", "gif": ".gif", "tiff": ".tif", "webp": ".webp", "ppm": ".ppm"}
    path = tmp_path / f"one{kinds[form]}"
    pixels = np.random.default_rng(0).integers(256, size=(16, 16, 3), dtype=np.uint8)
    image.fromarray(pixels).save(path, format=form)
    type_in(path.read_bytes())
    with stored_stdin(KINDS["classification"]) as stored:
        assert stored.suffix == path.suffix
        assert kind_of(stored, KINDS["classification"]) == "images"


def test_a_network_takes_an_image_from_stdin(tmp_path: Path, type_in: Callable[[bytes], None]) -> None:
    image = pytest.importorskip("PIL.Image")
    draw = np.random.default_rng(0)
    for name, shade in (("dark", 40), ("light", 200)):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(20):
            pixels = draw.integers(shade - 30, shade + 30, (4, 4), dtype=np.uint8)
            image.fromarray(pixels).save(tmp_path / "pets" / name / f"{number}.png")
    train(tmp_path, 'dataset={kind="images", path="pets", size=[4, 4], channels=1, validation=8}', "stop.rounds=5")
    file = tmp_path / "pets/light/3.png"
    said = partrain("predict", tmp_path / "run", "-i", file)
    assert (said.code, said.out.splitlines()[1].split(",")[-1]) == (0, "light"), said
    type_in(file.read_bytes())
    assert (
        partrain("predict", tmp_path / "run", "-i", "-").out.splitlines()[1].split(",")[1:]
        == said.out.splitlines()[1].split(",")[1:]
    )
