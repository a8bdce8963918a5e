"""`partrain predict`: the network's answers, for every kind of input and of task."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import struct
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.runs import partrain, train

import partrain as partrain_package
from partrain.errors import InputMissing
from partrain.inference.inputs.sample import Sample
from partrain.inference.network import TrainedNetwork
from partrain.inference.predict import predict

Runs = Callable[[str], Path]
Networks = Callable[[str], TrainedNetwork]
ITEMS = np.random.default_rng(4).normal(size=(5, 2)).astype(np.float32)


def answers(network: TrainedNetwork, items: np.ndarray) -> torch.Tensor:
    with torch.no_grad():
        return network.module(torch.from_numpy(items))


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_form_of_input_and_output_says_the_same(run_of: Runs, network_of: Networks, tmp_path: Path) -> None:
    expected = answers(network_of("clouds"), ITEMS)
    np.save(tmp_path / "items.npy", ITEMS)
    np.savez(tmp_path / "items.npz", inputs=ITEMS, other=1)
    (tmp_path / "items.csv").write_text("a,b\n" + "".join(f"{x!r},{y!r}\n" for x, y in ITEMS.tolist()))
    idx = struct.pack(">HBBII", 0, 0x0D, 2, *ITEMS.shape) + ITEMS.astype(">f4").tobytes()
    (tmp_path / "items.idx").write_bytes(idx)
    (tmp_path / "items.idx.gz").write_bytes(gzip.compress(idx))
    for name in "items.npy", "items.npz", "items.csv", "items.idx", "items.idx.gz":
        said = partrain("predict", run_of("clouds"), "--input", tmp_path / name, "--probabilities", "--json")
        assert (said.code, said.err) == (0, ""), said
        told = json.loads(said.out)
        assert told["label"] == expected.argmax(1).tolist()
        assert torch.equal(torch.tensor(told["probability"]), expected.softmax(1))
        assert told["probability_names"] == ["probability_0", "probability_1", "probability_2"]
    for suffix in "csv", "npz", "json":
        output = tmp_path / f"answers.{suffix}"
        assert partrain("predict", run_of("clouds"), "-i", tmp_path / "items.npy", "--probabilities", "-o", output).code == 0
    assert json.loads((tmp_path / "answers.json").read_text())["probability"] == told["probability"]
    with np.load(tmp_path / "answers.npz") as archive:
        assert archive["label"].tolist() == told["label"]
        assert np.array_equal(archive["probability"], expected.softmax(1).numpy())
    table = rows((tmp_path / "answers.csv").read_text())
    assert [int(row["label"]) for row in table] == told["label"]
    assert [float(np.float32(row["probability_2"])) for row in table] == [row[2] for row in told["probability"]], "to the bit"
    shown = partrain("predict", run_of("clouds"), "-i", tmp_path / "items.npy", "--probabilities")
    assert shown.out == (tmp_path / "answers.csv").read_text()


def test_one_item_by_itself(run_of: Runs, network_of: Networks, tmp_path: Path) -> None:
    np.save(tmp_path / "item.npy", ITEMS[0])
    (row,) = rows(partrain("predict", run_of("clouds"), "-i", tmp_path / "item.npy").out)
    assert int(row["label"]) == answers(network_of("clouds"), ITEMS[:1]).argmax()


def test_a_table_by_the_names_of_its_columns(run_of: Runs, network_of: Networks, tmp_path: Path) -> None:
    network = network_of("tabular")
    (tmp_path / "new.csv").write_text("note,colour,size\nx,blue,9.5\ny,red,0.25\n")
    mean, std = network.codec.stored["mean"], network.codec.stored["std"]
    features = network.codec.stored["features"]
    items = np.zeros((2, len(features)), np.float32)
    items[:, features.index("size")] = (np.array([9.5, 0.25]) - mean[0]) / std[0]
    items[0, features.index("colour=blue")] = items[1, features.index("colour=red")] = 1
    expected = answers(network, items)
    table = rows(partrain("predict", run_of("tabular"), "-i", tmp_path / "new.csv", "--probabilities").out)
    assert [row["class"] for row in table] == [network.codec.stored["classes"][label] for label in expected.argmax(1).tolist()]
    assert [float(row["probability_small"]) for row in table] == pytest.approx(
        expected.softmax(1)[:, network.codec.stored["classes"].index("small")].tolist(), rel=1e-6
    )


def test_numbers_are_in_the_units_of_the_file(run_of: Runs, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("size,colour\n2,green\n8,red\n")
    table = rows(partrain("predict", run_of("prices"), "-i", tmp_path / "new.csv").out)
    assert [float(row["price"]) for row in table] == pytest.approx([7000, 13000], abs=900)


def test_a_series_goes_on(run_of: Runs, tmp_path: Path) -> None:
    """Forecast from the newest window; only the network's columns matter."""
    values = [100 + 40 * math.sin(row / 4) for row in range(30)]
    (tmp_path / "new.csv").write_text("spots\n" + "".join(f"{value}\n" for value in values[:28]))
    (row,) = rows(partrain("predict", run_of("spots"), "-i", tmp_path / "new.csv").out)
    assert list(row) == ["item", "spots+1", "spots+2"]
    assert [float(row["spots+1"]), float(row["spots+2"])] == pytest.approx(values[28:], abs=8)
    windows = np.array(values[16:28]).reshape(1, 12, 1)
    np.save(tmp_path / "new.npy", windows)
    (same,) = rows(partrain("predict", run_of("spots"), "-i", tmp_path / "new.npy").out)
    assert float(same["spots+1"]) == pytest.approx(float(row["spots+1"]), rel=1e-6)


def test_how_odd_an_item_is(run_of: Runs, network_of: Networks, tmp_path: Path) -> None:
    network = network_of("codes")
    items = np.concatenate([ITEMS, [[50.0, -50.0]]]).astype(np.float32)
    np.save(tmp_path / "items.npy", items)
    told = json.loads(partrain("predict", run_of("codes"), "-i", tmp_path / "items.npy", "--json").out)
    off = (answers(network, items).double().numpy() - items.astype(float)) ** 2
    assert told["error"] == pytest.approx(off.mean(1).tolist())
    assert max(told["error"]) == told["error"][-1]
    coded = json.loads(partrain("predict", run_of("codes"), "-i", tmp_path / "items.npy", "--encode", "--json").out)
    with torch.no_grad():
        assert coded["code"] == network.module.encode(torch.from_numpy(items)).tolist()


def test_text_goes_on(run_of: Runs) -> None:
    def text(*words: object) -> str:
        said = partrain("predict", run_of("rose"), "--prompt", "a rose", "--tokens", 30, *words)
        assert (said.code, said.err) == (0, ""), said
        return said.out.removesuffix("\n")

    assert len(text()) == len("a rose") + 30
    assert text() == text() != text("--seed", 1)
    assert text("--temperature", 0) == text("--temperature", 0, "--seed", 1)
    assert text("--temperature", 0).startswith("a rose is a r"), "it has learnt that much"
    assert json.loads(text("--json"))["text"] == text()


def test_pictures(tmp_path: Path) -> None:
    sets = ['dataset={name="mnist", validation=59900}', "stop.rounds=1", "model.hidden=[4]"]
    run = train(tmp_path / "digits", *sets)
    pixels = np.random.default_rng(1).integers(0, 256, (2, 28, 28), np.uint8)
    (tmp_path / "pictures").mkdir()
    for name, one in zip("ab", pixels, strict=True):
        Image.fromarray(one).save(tmp_path / "pictures" / f"{name}.png")
    arrays = {f"{kind}.npy": pixels.astype(kind) for kind in ("uint8", "int64", "uint16", "int32")}
    for name, array in arrays.items():
        np.save(tmp_path / name, array)
    told = [
        json.loads(partrain("predict", run, "-i", tmp_path / name, "--json", "--probabilities").out)
        for name in ("pictures", *arrays)
    ]
    assert told[0]["item"] == ["a.png", "b.png"]
    assert all(one["probability"] == told[0]["probability"] for one in told)
    trained = partrain_package.load(run)
    assert np.array_equal(trained.predict_proba(pixels.astype(np.int64)), trained.predict_proba(pixels))
    for wrong, array in {
        "float32": pixels / np.float32(255), "float64": pixels.astype(float),
        "whole numbers from -1 to 254": pixels.astype(int) - 1, "whole numbers from 1 to 256": pixels.astype(int) + 1,
    }.items():  # fmt: skip
        np.save(tmp_path / "wrong.npy", array)
        said = partrain("predict", run, "-i", tmp_path / "wrong.npy")
        assert (said.code, said.errors) == (66, ["no-input"])
        assert f"holds {wrong}, and the network was trained on bytes: give whole numbers from 0 to 255, as uint8" in said.err
    Image.fromarray(pixels[0, :20]).save(tmp_path / "pictures" / "c.png")
    said = partrain("predict", run, "-i", tmp_path / "pictures")
    assert (said.code, said.errors) == (66, ["no-input"])
    assert "c.png: is 28 x 20 pixels" in said.err


def test_bytes_are_refused_where_other_numbers_were_trained_on(run_of: Runs, tmp_path: Path) -> None:
    np.save(tmp_path / "bytes.npy", np.zeros((3, 2), np.uint8))
    said = partrain("predict", run_of("clouds"), "-i", tmp_path / "bytes.npy")
    assert (said.code, said.errors) == (66, ["no-input"])
    assert (
        "holds bytes (uint8), and the network was not trained on bytes: give them as float32, in the scale of training"
        in said.err
    )


FAULTS = {
    "none.npy": None,
    "wide.npy": np.zeros((3, 5)),
    "words.npy": np.array(["a"]),
    "nan.npy": np.array([[0, 0], [0, np.nan]]),
    "empty.npy": np.zeros((0, 2)),
    "object.npy": np.array([{}], dtype=object),
    "cut.npy": b"\x93NUMPY\x01\0",
    "cut.npz": b"PK\x03\x04 and so on",
    "strange.bin": b"what is this?",
    "cut.png": b"\x89PNG",
    "wide.csv": b"a,b,c\n1,2,3\n",
    "bare.csv": b"1,2\n3,4\n",
    "bad.csv": b"a,b\n1,2\n3,four\n",
    "ragged.csv": b"a,b\n1,2\n3\n",
    "cut.idx": b"\0\0\x0d\x02\0\0\0\x09\0\0\0\x02",
}


@pytest.mark.parametrize("name", FAULTS)
def test_inputs_that_are_no_good(run_of: Runs, tmp_path: Path, name: str) -> None:
    path, content = tmp_path / name, FAULTS[name]
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content, allow_pickle=True)
    output = tmp_path / "answers.csv"
    said = partrain("predict", run_of("clouds"), "-i", path, "-o", output)
    assert (said.code, said.errors, said.out) == (66, ["no-input"], ""), said
    assert len(said.err.splitlines()) == 1
    assert str(path) in said.err
    assert not output.exists()


def test_a_word_that_was_not_trained_on_is_answered(run_of: Runs, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("size,colour\n1,red\n2,pink\n")
    said = partrain("predict", run_of("tabular"), "-i", tmp_path / "new.csv")
    assert (said.code, len(said.out.splitlines())) == (0, 3)


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("size,color\n1,red\n", ":1", "colour"),
        ("size,colour\n1,red\n?,red\n", ":3", "size"),
        ("size,colour\n1,red\nbig,red\n", ":3", "size"),
        ("size,colour\n1,red\n2,\n", ":3", "colour"),
    ],
)
def test_faults_of_a_table_have_a_place(run_of: Runs, tmp_path: Path, text: str, place: str, what: str) -> None:
    (tmp_path / "new.csv").write_text(text)
    said = partrain("predict", run_of("tabular"), "-i", tmp_path / "new.csv")
    assert (said.code, said.errors) == (66, ["no-input"]), said
    assert f"new.csv{place}: " in said.err
    assert what in said.err


def test_what_a_network_cannot_tell(run_of: Runs, tmp_path: Path) -> None:
    np.save(tmp_path / "items.npy", ITEMS)
    for name, words in {
        "clouds": ["--prompt", "a"],
        "codes": ["-i", tmp_path / "items.npy", "--probabilities"],
        "rose": ["--prompt", "a rose \N{SNOWMAN}"],
        "own": ["-i", tmp_path / "items.npy", "--encode", "--trust-code"],
    }.items():
        said = partrain("predict", run_of(name), *words)
        assert (said.code, said.errors) == (66, ["no-input"]), said


@pytest.mark.usefixtures("stranger")
def test_code_of_the_users_runs_only_by_their_word(run_of: Runs, network_of: Networks, tmp_path: Path) -> None:
    run = run_of("own")
    np.save(tmp_path / "items.npy", ITEMS)
    ask = ("predict", run, "-i", tmp_path / "items.npy")
    said = partrain(*ask)
    assert (said.code, said.errors, said.out) == (77, ["not-trusted"], "")
    by_word = partrain(*ask, "--trust-code")
    by_job = partrain(*ask, "--job", run.parent / "job.toml")
    assert by_word.code == by_job.code == 0
    assert by_word.out == by_job.out
    labels = [int(row["label"]) for row in rows(by_word.out)]
    assert labels == answers(network_of("own"), ITEMS).argmax(1).tolist()


def test_nothing_is_written_over(run_of: Runs, tmp_path: Path) -> None:
    np.save(tmp_path / "items.npy", ITEMS)
    output = tmp_path / "answers.csv"
    output.write_text("mine")
    ask = ("predict", run_of("clouds"), "-i", tmp_path / "items.npy", "-o")
    for path in output, tmp_path / "nowhere" / "answers.csv", Path("/proc/answers.csv"):
        said = partrain(*ask, path)
        assert (said.code, said.errors) == (73, ["cannot-create"]), said
    assert output.read_text() == "mine"
    assert partrain(*ask, tmp_path / "answers.doc").code == 2
    assert partrain(*ask, output, "--force").code == 0
    assert output.read_text().startswith("item,label")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.csv", "items.npy"]
    assert partrain("predict", run_of("clouds")).code == 2


def test_every_window_of_a_series_is_given_back(run_of: Runs, network_of: Networks) -> None:
    """The reconstruction error shows which window is unusual; the newest needs no successor."""
    run = run_of("windows")
    said = partrain("predict", run, "-i", run.parent / "series.csv")
    errors = [float(row["error"]) for row in rows(said.out)]
    assert len(errors) == 300 - 12 + 1
    told = json.loads(partrain("evaluate", run, "-i", run.parent / "series.csv", "--json").out)
    (found,) = (one for one in told.values() if isinstance(one, dict))
    assert (found["items"], found["error"]["mean"]) == (289, pytest.approx(sum(errors) / 289, rel=1e-4))


@pytest.mark.parametrize(("name", "options"), [
    ("clouds", {}), ("clouds", {"probabilities": True}), ("clouds", {"top": 1}), ("labels", {}), ("maps", {}), ("prices", {}),
    ("spots", {}), ("codes", {}), ("codes", {"encode": True}),
])  # fmt: skip
def test_answers_that_are_not_finite_are_an_error(network_of: Networks, name: str, options: dict[str, Any]) -> None:
    """A number that only the network cannot hold: it multiplies by more than 1."""
    network = network_of(name)
    module = deepcopy(network.module)
    for parameter in module.parameters():
        parameter.data.fill_(30.0)
    items = torch.zeros(3, *network.record.input)
    if name == "spots":  # the gates of an LSTM hold any number: its last layer does not
        next(reversed(list(module.parameters()))).data.fill_(torch.inf)
    else:
        items[1:] = 3e38
    names = ["a", "b", "c"]
    lacking = 3 if name == "spots" else 2
    what = f"the network's answers to {lacking} items are not finite; the first: item {names[-lacking]}: its numbers are too far"
    with pytest.raises(InputMissing, match=what):
        predict(replace(network, module=module), Sample(items, None, names), **options)
