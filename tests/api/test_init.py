"""`partrain.init` and `model="auto"`: what `partrain init --from` decides, for objects in memory."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest

import partrain
from partrain.errors import BadJob, InputMissing

pandas = pytest.importorskip("pandas")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def frame(rows: int = 200) -> pandas.DataFrame:
    """A table of numbers, words with holes, a row number and a target that follows them."""
    draw = random.Random(0)
    sizes = [draw.gauss(0, 1) for _ in range(rows)]
    cities = [draw.choice(["Ulm", "Bonn", None]) for _ in range(rows)]
    y = [2 * size + (1 if city == "Ulm" else 0) for size, city in zip(sizes, cities, strict=True)]
    return pandas.DataFrame({"id": range(1000, 1000 + rows), "size": sizes, "city": cities, "y": y})


def test_a_data_frame_is_looked_at_as_a_file_is(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = partrain.init(frame(), target="y")
    told = capsys.readouterr().err
    frame().to_csv("t.csv", index=False)
    by_file = partrain.init("t.csv", target="y")
    assert {key: value for key, value in tables["dataset"].items() if key != "data"} == {
        key: value for key, value in by_file["dataset"].items() if key not in ("kind", "path")
    }
    assert (tables["model"], tables["optimizer"], tables["stop"]) == (by_file["model"], by_file["optimizer"], by_file["stop"])
    assert "column `id` is left out" in told
    trained = partrain.train(**tables, out=place / "run")
    assert trained.summary["test"]["r2"] > 0.8
    assert trained.predict(frame(3)).shape == (3,)
    assert partrain.train(**by_file, out=place / "by file").summary["test"]["r2"] > 0.8


def test_auto_is_init() -> None:
    whole = frame()
    auto = partrain.train(model="auto", dataset=(whole.drop(columns="y"), whole["y"]), workers=1, out="auto")
    tables = partrain.init(whole, target="y")
    same = partrain.train(**{**tables, "workers": 1, "name": "python"}, out="same")
    assert auto.summary["test"] == same.summary["test"]
    shorter = partrain.train(model="auto", dataset={"data": whole, "target": "y"}, stop={"rounds": 2}, out="shorter")
    assert shorter.summary["rounds"] == 2


def test_whole_numbers_as_targets_of_arrays() -> None:
    x = np.random.default_rng(0).normal(size=(120, 3))
    ages = (50 + 20 * x[:, 0]).round().astype(int)
    tables = partrain.init((x, ages))
    assert (tables["dataset"]["target_kind"], tables["task"]["metrics"]) == ("number", ["r2", "mae"])
    assert "r2" in partrain.train(**{**tables, "stop": {"rounds": 2}}, out="numbers").summary["test"]
    signs = partrain.init((x, np.sign(x[:, 0]).astype(int)))
    assert "target_kind" not in signs["dataset"]
    assert set(partrain.train(**{**signs, "stop": {"rounds": 2}}, out="classes").predict(x)) <= {-1, 1}
    labels = partrain.init((x, x > 0))
    assert partrain.train(**{**labels, "stop": {"rounds": 2}}, out="labels").predict(x).shape == (120, 3)


@pytest.mark.parametrize(("shape", "network"), [((4,), "mlp"), ((6, 3), "gru"), ((1, 12, 12), "cnn")])
def test_arrays(shape: tuple[int, ...], network: str) -> None:
    draw = np.random.default_rng(0)
    X = draw.normal(size=(120, *shape)).astype(np.float32)
    y = (X.reshape(120, -1).sum(1) > 0).astype(np.int64)
    tables = partrain.init((X, y))
    assert tables["model"]["name"] == network
    tables["stop"] = {"rounds": 3}
    trained = partrain.train(**tables, out="run")
    assert trained.summary["test"].keys() == {"loss", "accuracy"}
    tables = partrain.init((X, y.astype(np.float32) + 0.5))
    assert tables["task"] == {"metrics": ["r2", "mae"]}


def test_mistakes(place: Path) -> None:
    with pytest.raises(InputMissing, match="name the column to predict"):
        partrain.init(frame())
    with pytest.raises(InputMissing, match="no column `z`"):
        partrain.init(frame(), target="z")
    with pytest.raises(InputMissing, match="no series: `y` is no column of numbers"):
        partrain.init(frame(), target="y", kind="series")
    with pytest.raises(BadJob, match="expected a path, a DataFrame"):
        partrain.init(np.zeros(3))
    with pytest.raises(BadJob, match="concern tables, and these are arrays"):
        partrain.init((np.zeros((30, 2)), np.zeros(30)), target="y")
    with pytest.raises(InputMissing, match="expected 20 items or more"):
        partrain.init((np.zeros((3, 2)), np.zeros(3)))
    with pytest.raises(InputMissing):
        partrain.init("nothing.csv", target="y")


@pytest.mark.parametrize(("name", "hint"), [
    ("epochs", "stop="), ("lr", "optimizer="), ("worker", "did you mean workers"), ("xyz", "there are job, model, dataset"),
])  # fmt: skip
def test_an_unknown_argument_is_a_failure_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(BadJob, match=f"train: no argument is called `{name}`: .*{hint}"):
        partrain.train(model="mlp", dataset=(np.zeros((30, 2)), np.zeros(30)), **{name: 3})


def test_a_classifier_weighs_classes() -> None:
    pytest.importorskip("sklearn")
    draw = np.random.default_rng(0)
    X = draw.normal(size=(600, 2))
    y = np.where(X.sum(1) + 0.8 * draw.normal(size=600) > 2.2, "rare", "usual")
    found = [
        (partrain.PartrainClassifier(class_weight=weights, random_state=0, rounds=20).fit(X, y).predict(X) == "rare").sum()
        for weights in (None, "balanced", {"rare": 30})
    ]
    assert found[0] < found[1]
    assert found[0] < found[2]
    with pytest.raises(ValueError, match="`odd` is no class"):
        partrain.PartrainClassifier(class_weight={"odd": 2}).fit(X, y)


def test_a_classifier_learns_several_labels() -> None:
    pytest.importorskip("sklearn")
    draw = np.random.default_rng(0)
    X = draw.normal(size=(400, 2))
    y = (X > [0, 0.5]).astype(int)
    model = partrain.PartrainClassifier(random_state=0, rounds=30).fit(X, y)
    assert model.predict(X).shape == (400, 2)
    assert model.score(X, y) > 0.9
    assert model.predict_proba(X).shape == (400, 2)


@pytest.mark.parametrize("model", ["gru", {"name": "bag"}, "transformer"])
def test_whole_numbers_are_tokens_where_the_network_embeds_them(model: object) -> None:
    draw = np.random.default_rng(0)
    X = draw.integers(0, 9, (120, 6))
    y = (X == 3).any(1).astype(int)
    trained = partrain.train(model=model, dataset={"inputs": X, "targets": y, "validation": 20}, stop={"rounds": 2}, out="run")
    assert trained.network.record.vocabulary == 9
    assert trained.predict(X[:4]).shape == (4,)


def test_a_series_of_a_data_frame(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    days = pandas.date_range("2020-01-01", periods=200)
    whole = pandas.DataFrame({"day": days, "y": [at / 10 + math.sin(at * math.tau / 7) for at in range(200)]})
    tables = partrain.init(whole, target="y")
    assert "a series: `day` has time stamps, 1 day apart" in capsys.readouterr().err
    whole.to_csv("t.csv", index=False)
    by_file = partrain.init("t.csv", target="y")
    kept = {key: value for key, value in by_file["dataset"].items() if key != "path"}
    assert {key: value for key, value in tables["dataset"].items() if key != "data"} == kept
    few = {"stop": {"rounds": 3}, "workers": 1}
    trained = partrain.train(**{**tables, **few}, out=place / "run")
    same = partrain.train(**{**by_file, **few}, out=place / "by file")
    assert trained.summary["test"] == same.summary["test"]
    assert trained.predict(whole).tolist() == same.predict("t.csv").tolist()
    assert trained.predict(whole).shape == (7,)
    assert trained.evaluate(whole) == same.evaluate("t.csv")
    with pytest.raises(BadJob, match="leave y out"):
        trained.evaluate(whole, whole["y"])
    loaded = partrain.load(place / "run", dataset={"data": whole, "target": "y", "kind": "series"})
    assert loaded.evaluate() == trained.evaluate()


def test_texts_of_a_data_frame(place: Path) -> None:
    texts = [f"a {'good' if at % 2 else 'poor'} film of {at} minutes" for at in range(120)]
    whole = pandas.DataFrame({"review": texts, "verdict": ["yes" if at % 2 else "no" for at in range(120)]})
    tables = partrain.init(whole, target="verdict")
    assert (tables["dataset"]["kind"], tables["dataset"]["text"]) == ("documents", "review")
    trained = partrain.train(**{**tables, "workers": 1}, out=place / "run")
    assert trained.summary["test"]["accuracy"] == 1.0
    assert trained.predict(whole.head(2)).tolist() == ["no", "yes"]
    with pytest.raises(BadJob, match='a DataFrame of kind "csv"'):
        partrain.train(model="mlp", dataset={"data": whole, "target": "verdict", "kind": "csv"})


def test_groups_are_judged_and_fine_tuned_in_python_as_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(1)
    rows = [(f"p{group}", x, x * group + draw.standard_normal() / 10) for group in range(12) for x in draw.standard_normal(12)]
    table = pandas.DataFrame(rows, columns=["person", "x", "y"])
    table.to_csv("t.csv", index=False)
    trained = partrain.train(
        model={"name": "mlp", "hidden": [8]},
        dataset={"kind": "csv", "path": "t.csv", "target": "y", "group": "person", "validation": 36},
        optimizer={"name": "adam", "lr": 0.01},
        stop={"rounds": 3},
    )
    told = trained.evaluate(by_group=True, fine_tune=2)["groups"]
    assert (told["column"], told["fine_tuned"]["count"]) == ("person", told["count"])
    by_file, by_frame = (trained.evaluate(items, by_group=True, fine_tune=2) for items in ("t.csv", table))
    assert by_file == by_frame
    assert by_file["groups"]["count"] == by_file["groups"]["fine_tuned"]["count"] == 12
    with pytest.raises(BadJob, match="by_group needs X with the column `person`"):
        trained.evaluate(np.zeros((3, 1), np.float32), np.zeros(3), by_group=True)
    with pytest.raises(BadJob, match="fine_tune needs by_group=True"):
        trained.evaluate(fine_tune=2)
