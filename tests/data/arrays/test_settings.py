"""Settings of arrays: split-off test items, standardization by training items, labels that are texts."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import datasets
import h5py
import numpy as np
import pytest
import torch
from pydantic import ValidationError
from support.array_files import KINDS, is_mapped, load_error, section_of, write_dataset
from support.runs import JOB, SIMULATED, newest, partrain, resume, round_file, summary, train, write_job

from partrain.checkpoint import read
from partrain.data import Dataset, load, read_spec
from partrain.data.arrays import mapped
from partrain.data.base import WrongSetting
from partrain.data.inspect import describe_dataset, describe_file
from partrain.data.partition import Partition, assign, hold_out, training_of
from partrain.errors import InputMissing
from partrain.inference.network import load_network
from partrain.inference.open import load_job, open_checkpoint
from partrain.seeds import derive

DRAW = np.random.default_rng(0)
N = 60
X = DRAW.standard_normal((N, 4)).astype(np.float32)
X[:, 1] = X[:, 1] * 30 + 500
X[:, 3] = 7.1
Y = np.arange(N) % 3
KIND = np.array(["owl", "cat", "bee"])[Y]
VALUES = np.stack([X[:, 0] * 1000 + 5000, X[:, 1]], axis=1)


def drawn(items: int, tests: int) -> np.ndarray:
    """Compute the test items by the documented rule: the beginning of a permutation that is the same for every job."""
    seed = derive(derive(0, "test items"), "order")
    return np.sort(np.random.Generator(np.random.PCG64(seed)).permutation(items)[:tests])


def trained_with(one: Any, seed: int = 3) -> Any:
    return training_of(one, Partition(), seed)


def kept(data: Dataset) -> np.ndarray:
    """Return the inputs that are no test items."""
    return data.inputs if data.rows is None else data.inputs[data.rows]


# Whole numbers as numbers


def test_whole_numbers_are_the_targets_of_a_regression_if_the_job_says_so(tmp_path: Path) -> None:
    whole = X[:, 1].astype(np.int32)
    data = load(
        write_dataset(tmp_path, "npz", {"target_kind": "number", "standardise_target": False}, inputs=X, targets=whole), tmp_path
    )
    assert (data.task, data.outputs, data.targets.tolist()) == ("regression", 1, whole[:, None].tolist())
    section = write_dataset(tmp_path, "npz", {"target_kind": "number"}, inputs=X, targets=KIND)
    with pytest.raises(WrongSetting, match="these targets are names of classes"):
        read_spec(section, tmp_path)
    with pytest.raises(ValidationError, match="`classes` is for other targets"):
        section_of({"kind": "npz", "path": "a.npz", "target_kind": "number", "classes": [0, 1]})
    write_dataset(tmp_path, "npz", inputs=X, targets=Y)
    job = write_job(tmp_path, 'dataset={kind="npz", path="a.npz", validation=10}', 'task={kind="regression"}')
    assert 'for whole numbers as numbers set target_kind = "number" in [dataset]' in partrain("validate", str(job)).out


# Test items


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("keys", "tests"), [({"test_items": 7}, 7), ({"test_share": 0.25}, 15)])
def test_test_items_are_drawn_and_mapped_arrays_stay_mapped(tmp_path: Path, kind: str, keys: dict[str, Any], tests: int) -> None:
    one = write_dataset(tmp_path, kind, keys, inputs=X, targets=Y)
    sizes: list[int] = []

    def allocate(size: int) -> memoryview:
        sizes.append(size)
        return memoryview(bytearray(size))

    data, known = load(one, tmp_path, allocate), read_spec(one, tmp_path)
    expected = drawn(N, tests)
    assert data.rows is not None
    assert data.rows.tolist() == [item for item in range(N) if item not in expected]
    assert np.array_equal(data.test_inputs, X[expected])  # type: ignore[arg-type]
    assert np.array_equal(data.test_targets, Y[expected])  # type: ignore[arg-type]
    assert np.array_equal(data.inputs, X)
    assert is_mapped(data.inputs)
    assert not is_mapped(data.test_inputs)
    assert known is not None
    assert (known.items, known.test_items) == (data.items, data.spec.test_items) == (N - tests, tests)
    assert sizes[0] < 8 * (N - tests) + tests * (X[0].nbytes + 8) + (0 if is_mapped(data.targets) else 8 * N) + 4 * 64


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_items_are_tested_where_they_lie(tmp_path: Path, kind: str) -> None:
    data = load(write_dataset(tmp_path, kind, {"test_items": 7, "test_from": "end"}, inputs=X, targets=Y), tmp_path)
    assert data.rows is None
    for array, expected in ((data.inputs, X[:-7]), (data.test_inputs, X[-7:])):
        assert np.array_equal(array, expected)  # type: ignore[arg-type]
        assert is_mapped(array)
    assert (data.targets.tolist(), data.test_targets.tolist()) == (Y[:-7].tolist(), Y[-7:].tolist())  # type: ignore[union-attr]


@pytest.mark.parametrize("stratify", [False, True])
def test_the_rule_is_that_of_tables(tmp_path: Path, stratify: bool) -> None:
    labels = np.array([0] * 40 + [1] * 14 + [2] * 6)
    rows = "".join(f"{item},{label}\n" for item, label in enumerate(labels))
    (tmp_path / "t.csv").write_text("x,y\n" + rows)
    keys = {"test_items": 15, "stratify": stratify}
    table = load(section_of({"kind": "csv", "path": "t.csv", "target": "y", "standardise": False, **keys}), tmp_path)
    array = load(write_dataset(tmp_path, "npy", keys, inputs=np.arange(N, dtype=np.float32), targets=labels), tmp_path)
    assert np.array_equal(kept(array), table.inputs)
    assert np.array_equal(array.test_inputs, table.test_inputs)  # type: ignore[arg-type]
    if stratify:
        assert np.bincount(array.test_targets).tolist() in ([10, 4, 1], [10, 3, 2])  # type: ignore[arg-type]


@pytest.mark.parametrize("order", ["shuffled", "given", "stratified", "by-label"])
@pytest.mark.parametrize("stratify", [False, True])
def test_partitions_are_those_of_the_items_that_stay(order: Any, stratify: bool) -> None:
    rows = np.setdiff1d(np.arange(N), drawn(N, 15))
    partition, sizes = Partition(order=order), [None, None]
    alone = assign(partition, 45, 9, sizes, 3, None, None, Y[rows], stratify=stratify)
    among = alone.in_rows(rows)
    assert among.held_out.tolist() == rows[alone.held_out].tolist()
    assert [part.tolist() for part in among.partitions] == [rows[part].tolist() for part in alone.partitions]
    split = hold_out(45, 9, order, 3, None, Y if stratify else None, rows)
    assert split[1].tolist() == among.held_out.tolist()
    assert sorted([*split[0], *split[1]]) == rows.tolist()


def test_a_split_is_part_of_the_content(tmp_path: Path) -> None:
    one = write_dataset(tmp_path, "npy", inputs=X, targets=Y)
    keys: list[dict[str, Any]] = [{}, {"test_items": 6}, {"test_items": 7}, {"test_items": 6, "test_from": "end"}]
    prints = [load(one.model_copy(update=more), tmp_path).fingerprint for more in keys]
    assert len(set(prints)) == 4
    assert load(one.model_copy(update=keys[1]), tmp_path).fingerprint == prints[1]


@pytest.mark.parametrize(("keys", "words"), [
    ({"test_items": N}, "holds 60 items: with 60 test items, training or test would be empty"),
    ({"test_share": 0.001}, "holds 60 items: with 0 test items, training or test would be empty"),
    ({"test_items": 2, "test_from": "end"},
     'the class `3` occurs among the test items only, 2 times; set test_from = "shuffled", or'),
])  # fmt: skip
def test_splits_that_leave_too_little(tmp_path: Path, keys: dict[str, Any], words: str) -> None:
    labels = np.where(np.arange(N) < N - 2, Y, 3)
    assert words in load_error(write_dataset(tmp_path, "npz", keys, inputs=X, targets=labels), tmp_path)


TRAINED = [
    ({"test_share": 0.2, "validation": 8}, []),
    ({"test_share": 0.2, "validation": 8, "stratify": True}, ['partition={order="stratified", redraw="round"}']),
    ({"test_items": 12, "validation": 8, "test_from": "end"}, ['partition={order="given"}']),
]


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "sets"), TRAINED)
def test_a_split_trains_to_the_bits_of_arrays_parted_beforehand(tmp_path: Path, keys: dict[str, Any], sets: list[str]) -> None:
    """The converted form and simulated workers give the same."""
    np.save(tmp_path / "inputs.npy", X)
    np.save(tmp_path / "targets.npy", Y)
    files = 'kind="npy", inputs="../inputs.npy", targets="../targets.npy"'
    more = ", ".join(f"{key}={json.dumps(value)}" for key, value in keys.items())
    tested = drawn(N, 12) if "test_from" not in keys else np.arange(N - 12, N)
    if "stratify" in keys:
        one = section_of({"kind": "npy", "inputs": "inputs.npy", "targets": "targets.npy", **keys})
        tested = np.setdiff1d(np.arange(N), load(one, tmp_path).rows)  # type: ignore[arg-type]
    stay = np.setdiff1d(np.arange(N), tested)
    np.savez(tmp_path / "parted.npz", inputs=X[stay], targets=Y[stay], test_inputs=X[tested], test_targets=Y[tested])
    job = write_job(tmp_path / "job", f"dataset={{{files}, {more}}}", *sets)
    assert partrain("data", "convert", job, "-o", tmp_path / "a.items").code == 0
    apart = ", ".join(part for part in more.split(", ") if not part.startswith("test_"))
    tables = {
        "split": f"{files}, {more}",
        "parted": f'kind="npz", path="../parted.npz", {apart}',
        "mapped": f'kind="mapped", path="../a.items", {apart}',
    }
    runs = {
        name: train(tmp_path / name, f"dataset={{{table}}}", *sets, *[SIMULATED] * (name == "parted"))
        for name, table in tables.items()
    }
    runs["one"] = train(tmp_path / "one", f"dataset={{{tables['split']}}}", *sets, SIMULATED)
    models = {
        name: {key: array.tobytes() for key, array in read(run / "checkpoint.h5").arrays.items() if key.startswith("model/")}
        for name, run in runs.items()
    }
    assert all(model == models["parted"] for model in models.values())
    told = {name: json.loads(partrain("evaluate", run, "--json").out) for name, run in runs.items()}
    scores = [[one[part] for part in ("validation", "test")] for one in told.values()]
    assert all(one == scores[0] for one in scores)
    assert [one["items"] for one in scores[0]] == [8, 12]


def test_what_is_converted_is_parted(tmp_path: Path) -> None:
    one = write_dataset(tmp_path, "hdf5", {"test_items": 7}, inputs=X, targets=Y)
    buffers: list[memoryview] = []

    def allocate(size: int) -> memoryview:
        buffers.append(memoryview(bytearray(size)))
        return buffers[0]

    data = load(one, tmp_path, allocate)
    mapped.write(tmp_path / "x.items", data.info, buffers[0])
    again = load(mapped.Mapped(kind="mapped", path="x.items", verify=True), tmp_path)
    assert again.rows is None
    assert np.array_equal(again.inputs, kept(data))
    assert np.array_equal(again.targets, data.item_targets)
    assert np.array_equal(again.test_inputs, data.test_inputs)  # type: ignore[arg-type]
    assert np.array_equal(again.test_targets, data.test_targets)  # type: ignore[arg-type]
    for array in (again.inputs, again.targets, again.test_inputs, again.test_targets):
        assert is_mapped(array)
        assert array.ctypes.data % 64 == 0  # type: ignore[union-attr]
    assert (tmp_path / "x.items").stat().st_size <= 4096 + X.nbytes + Y.nbytes + 4 * 64


# Standardising


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape", "axis"), [((), -1), ((4,), -1), ((5, 4), -1), ((3, 4, 5), 1), ((2, 3, 4, 5), 1)])
def test_means_are_of_the_items_trained_on(tmp_path: Path, kind: str, shape: tuple[int, ...], axis: int) -> None:
    numbers = np.random.default_rng(1).normal(3, 2, (N, *shape)).astype(np.float32)
    tested = drawn(N, 15)
    numbers[tested] += 100
    one = write_dataset(tmp_path, kind, {"test_items": 15, "validation": 9, "standardise": True}, inputs=numbers, targets=Y)
    data = load(one, tmp_path, training=trained_with(one))
    stay = np.setdiff1d(np.arange(N), tested)
    seen = stay[hold_out(45, 9, "shuffled", 3)[0]]
    exact = numbers.astype(float).reshape(N, *(shape or (1,)))
    rest = tuple(other for other in range(exact.ndim) if other != axis % exact.ndim)
    mean, std = exact[seen].mean(axis=rest, keepdims=True), exact[seen].std(axis=rest, keepdims=True)
    assert np.allclose(data.codec["mean"], mean.ravel(), rtol=1e-12)
    assert np.allclose(data.codec["std"], std.ravel(), rtol=1e-12)
    assert data.inputs.dtype == np.float32
    assert np.allclose(data.inputs, (exact - mean) / std, atol=1e-5)
    assert np.allclose(data.test_inputs, ((exact - mean) / std)[tested], rtol=1e-6)  # type: ignore[arg-type]


def test_test_items_of_their_own_are_scaled_by_what_was_trained_on(tmp_path: Path) -> None:
    one = write_dataset(tmp_path, "npz", {"standardise": True}, inputs=X, targets=Y, test_inputs=X[:5] + 9, test_targets=Y[:5])
    data = load(one, tmp_path)
    exact = X.astype(float)
    std = np.where(np.arange(4) == 3, 1, exact.std(axis=0))
    assert np.allclose(data.test_inputs, (exact[:5] + 9 - exact.mean(axis=0)) / std, atol=1e-4)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0.0, 0.1, 7.1, 1e-30, -3e8])
def test_a_feature_that_never_varies_becomes_nothing(tmp_path: Path, value: float) -> None:
    numbers = np.full((5000, 3, 4, 4), value, np.float32)
    numbers[:, 1] = np.random.default_rng(0).normal(size=(5000, 4, 4))
    data = load(write_dataset(tmp_path, "npy", {"standardise": True}, inputs=numbers, targets=np.arange(5000) % 2), tmp_path)
    assert data.codec["std"][0] == 1
    assert not data.inputs[:, 0].any()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "i8", ">f8"])
def test_differences_of_large_numbers_are_not_lost(tmp_path: Path, packed: bool, dtype: str) -> None:
    """Seconds since 1970: float32 has steps of 128 there."""
    seconds = (1.7e9 + np.arange(N)).reshape(N, 1).astype(dtype)
    (np.savez_compressed if packed else np.savez)(tmp_path / "a.npz", inputs=seconds, targets=seconds.astype("f8"))
    data = load(section_of({"kind": "npz", "path": "a.npz", "standardise": True}), tmp_path)
    expected = (np.arange(N) - (N - 1) / 2) / np.arange(N).std()
    assert np.allclose(data.inputs[:, 0], expected, rtol=1e-6)
    assert np.allclose(data.targets[:, 0], expected, rtol=1e-6)
    as_it_is = load(section_of({"kind": "npz", "path": "a.npz"}), tmp_path)
    assert (data.inputs.dtype, data.targets.dtype) == (as_it_is.inputs.dtype, np.float32)


def test_targets_are_standardised_by_each_number(tmp_path: Path) -> None:
    one = write_dataset(tmp_path, "hdf5", {"standardise_target": True, "validation": 10}, inputs=X, targets=VALUES)
    data = load(one, tmp_path, training=trained_with(one))
    seen = hold_out(N, 10, "shuffled", 3)[0]
    mean, std = VALUES[seen].astype(float).mean(axis=0), VALUES[seen].astype(float).std(axis=0)
    assert np.allclose(data.codec["target_mean"], mean, rtol=1e-12)
    assert np.allclose(data.targets, (VALUES - mean) / std, atol=1e-4)
    assert is_mapped(data.inputs), "the job does not standardise inputs"


@pytest.mark.parametrize(("arrays", "words"), [
    ({"inputs": np.where(X[7, 2] == X, np.nan, X), "targets": Y}, "item 7 holds a number that is not finite"),
    ({"inputs": X.astype("f8") * 1e200, "targets": Y}, "feature 0: its numbers are too large for a mean and a deviation"),
    ({"inputs": X * np.float32(1e-20), "targets": Y, "test_inputs": X * np.float32(1e30), "test_targets": Y},
     "item 0 is too far from the training items: float32 cannot hold it standardised"),
])  # fmt: skip
def test_numbers_that_cannot_be_standardised(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    assert words in load_error(write_dataset(tmp_path, "npy", {"standardise": True}, **arrays), tmp_path)


# Labels that are texts


def texts(folder: Path, form: str, names: Any, **more: Any) -> Any:
    """Write a data set whose targets are texts, in one of the file formats."""
    if form.startswith("hdf5"):
        with h5py.File(folder / "a.h5", "w") as file:
            file["inputs"] = X[: len(names)]
            kind = h5py.string_dtype() if form == "hdf5 any" else None
            file.create_dataset("targets", data=np.array([name.encode() for name in names], "S"), dtype=kind)
        return section_of({"kind": "hdf5", "path": "a.h5", **more})
    array = np.array(names) if form.endswith("U") else np.char.encode(np.array(names), "utf-8")
    return write_dataset(folder, form.split()[0], more, inputs=X[: len(names)], targets=array)


FORMS = ["npz U", "npz S", "npy U", "npy S", "hdf5 any", "hdf5 fixed"]


@pytest.mark.parametrize("form", FORMS)
def test_texts_are_classes_with_names(tmp_path: Path, form: str) -> None:
    names = ["Öl", " cat", "cat", "42", "bee"] * 12
    one = texts(tmp_path, form, names, test_items=12)
    data, known = load(one, tmp_path), read_spec(one, tmp_path)
    assert (data.task, data.outputs, data.codec) == ("classification", 4, {"classes": ["42", "bee", "cat", "Öl"]})
    assert data.targets.tolist() == [3, 2, 2, 0, 1] * 12
    assert data.test_targets.tolist() == np.array([3, 2, 2, 0, 1] * 12)[drawn(N, 12)].tolist()  # type: ignore[union-attr]
    assert known is not None
    assert (known.task, known.outputs) == ("classification", None)
    assert is_mapped(data.inputs)


@pytest.mark.parametrize("names", [["10", "9", "-2"], ["007", "7", "8"], ["b", "a", "1"]])
def test_their_order_is_that_of_tables(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{item},{names[item % 3]}\n" for item in range(N)))
    table = load(section_of({"kind": "csv", "path": "t.csv", "target": "y", "target_kind": "class"}), tmp_path)
    array = load(texts(tmp_path, "npy U", names * 20), tmp_path)
    assert array.codec["classes"] == table.codec["classes"]
    assert array.targets.tolist() == table.targets.tolist()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("names", "words"), [
    (["a", "b", " ", "a"], "item 2 has no label"),
    (["a", "b", "b", "NaN"], "item 3 has no label"),
    (["a", "a", "a"], "all 3 items have the class `a`: there is nothing to tell apart"),
    ([f"name {item}" for item in range(N)], "60 different texts in 60 items are hardly classes; if they are, number them"),
])  # fmt: skip
def test_texts_that_are_no_classes(tmp_path: Path, form: str, names: list[str], words: str) -> None:
    assert words in load_error(texts(tmp_path, form, names), tmp_path)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"targets": np.array([b"a", b"\xff"] * 30)}, "item 1 has a label that is not UTF-8"),
        ({"targets": np.stack([KIND, KIND], 1)}, "texts of shape (60, 2); names of classes have one axis"),
        ({"test_inputs": X[:2], "test_targets": np.array(["cat", "cow"])}, "item 1: the class `cow` is not in a.npz: array `targets`"),
        ({"test_inputs": X[:2], "test_targets": Y[:2]}, "only one of training and test labels are texts"),
        ({"inputs": KIND}, "array `inputs`: holds text; arrays of numbers can be used"),
        ({"targets": np.array(["a", {}] * 30, object)}, "holds objects, which are code to run; arrays of numbers can be used"),
    ],
)  # fmt: skip
def test_faults_of_texts(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    assert words in load_error(write_dataset(tmp_path, "npz", **({"inputs": X, "targets": KIND} | more)), tmp_path)


def test_texts_are_no_tokens(tmp_path: Path) -> None:
    one = write_dataset(tmp_path, "npz", {"tokens": True}, inputs=np.zeros((N, 3), int), targets=np.stack([KIND, KIND], 1))
    assert "texts of shape (60, 2); tokens are whole numbers (n, length)" in load_error(one, tmp_path)


def test_a_column_of_texts_of_hugging_face(tmp_path: Path) -> None:
    """The fingerprint covers the test items and means too."""
    data = datasets.Dataset.from_dict({"spot": X.astype("f8").tolist(), "kind": KIND.tolist()})
    data.save_to_disk(str(tmp_path / "pets"), num_shards=7)
    one = section_of(
        {"kind": "huggingface", "path": "pets", "inputs": "spot", "target": "kind", "test_items": 7, "standardise": True}
    )
    data = load(one, tmp_path)
    assert data.codec["classes"] == ["bee", "cat", "owl"]
    assert (data.targets == 2 - Y).all()
    seen = np.setdiff1d(np.arange(N), drawn(N, 7))
    assert np.allclose(data.codec["mean"], X[seen].astype(float).mean(axis=0), rtol=1e-12)
    assert np.array_equal(data.test_targets, 2 - Y[drawn(N, 7)])  # type: ignore[arg-type]


# Settings that do not go together


@pytest.mark.parametrize("keys", [
    {"test_items": 5, "test_share": 0.1}, {"test_items": 5, "test_inputs": "x", "test_targets": "y"}, {"test_from": "end"},
    {"test_share": 1.0}, {"tokens": True, "standardise": True},
])  # fmt: skip
def test_keys_that_exclude_one_another(keys: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        section_of({"kind": "npz", "path": "a.npz", **keys})


@pytest.mark.parametrize(("keys", "arrays", "key", "words"), [
    ("test_share = 0.1", {"test_inputs": X, "test_targets": Y}, "test_share", "there are some already"),
    ("standardise = true", {"inputs": np.zeros((N, 4), np.uint8)}, "standardise", "does not apply to bytes, which are scaled"),
    ("standardise_target = true", {}, "standardise_target", "is for numbers, but these targets are for classification"),
    ("standardise_target = true", {"targets": KIND}, "standardise_target", "these targets are for classification"),
])  # fmt: skip
def test_settings_that_the_files_contradict(tmp_path: Path, keys: str, arrays: dict[str, Any], key: str, words: str) -> None:
    """The message is one line at the key, exit 78, also where only loading finds the fault."""
    one = write_dataset(tmp_path, "npz", **({"inputs": X, "targets": Y} | arrays))
    start, end = JOB.index("[dataset]"), JOB.index("[optimizer]")
    job = write_job(tmp_path, text=f'{JOB[:start]}[dataset]\nkind = "npz"\npath = "a.npz"\n{keys}\n\n{JOB[end:]}')
    told = partrain("validate", job)
    assert told.code == 78
    line = job.read_text().splitlines().index(keys) + 1
    (fault,) = (text for text in told.out.splitlines() if words in text)
    assert f"job.toml:{line}:1: " in fault
    assert f"`{key}`" in fault
    ran = partrain("run", job, "--out", tmp_path / "run", "--quiet")
    assert (ran.code, ran.errors) == (78, ["bad-job"])
    name, value = keys.split(" = ")
    with pytest.raises(WrongSetting, match=rf"\[dataset\] `{key}`"):
        load(one.model_copy(update={name: json.loads(value)}), tmp_path)


def test_faults_of_the_files_end_a_run_before_it_starts(tmp_path: Path) -> None:
    write_dataset(tmp_path, "npz", inputs=X, targets=np.where(np.arange(N) == 4, "", KIND))
    ran = partrain("run", write_job(tmp_path, 'dataset={kind="npz", path="a.npz"}'), "--out", tmp_path / "run", "--quiet")
    assert (ran.code, ran.errors) == (66, ["no-input"])
    assert "a.npz: array `targets`: item 4 has no label" in ran.err


# All of it, from the command line


@pytest.mark.slow
def test_classes_from_training_to_prediction(tmp_path: Path) -> None:
    numbers = np.random.default_rng(2).normal(5, 3, (200, 3, 4)).astype(np.float32)
    numbers[:, 0, 2] += 1e4
    names = np.where(numbers[:, 1, 1] > 5, "high", "low")
    np.savez(tmp_path / "a.npz", inputs=numbers, targets=names)
    table = 'dataset={kind="npz", path="a.npz", validation=20, test_share=0.1, stratify=true, standardise=true}'
    run = train(tmp_path, SIMULATED, table)
    whole = newest(run)
    resume(round_file(run, 2), "--out", tmp_path / "again")
    assert newest(tmp_path / "again") == whole
    one = train(tmp_path / "one", table.replace("a.npz", "../a.npz"), 'transport.kind="simulated"')
    models = [read(folder / "checkpoint.h5").arrays for folder in (run, one)]
    assert all(array.tobytes() == models[1][key].tobytes() for key, array in models[0].items() if key.startswith("model/"))

    judged = json.loads(partrain("evaluate", run, "--json").out)
    assert (judged["validation"]["items"], judged["test"]["items"]) == (20, 20)
    assert judged["validation"]["loss"] == pytest.approx(summary(run)["loss"], rel=1e-5)
    assert [one["name"] for one in judged["test"]["classes"]] == ["high", "low"]
    answers = partrain("predict", run, "--input", tmp_path / "a.npz")
    told = [row["class"] for row in csv.DictReader(io.StringIO(answers.out))]
    right = float((np.array(told) == names).mean())
    alone = json.loads(partrain("evaluate", run, "--input", tmp_path / "a.npz", "--json").out)
    assert alone[str(tmp_path / "a.npz")]["accuracy"] == pytest.approx(right)
    judged |= json.loads(partrain("evaluate", run, "--split", "training", "--json").out)
    parts = [judged[name] for name in ("training", "validation", "test")]
    assert sum(part["items"] * part["accuracy"] for part in parts) == pytest.approx(200 * right)

    np.savez(tmp_path / "b.npz", inputs=numbers[:2], targets=np.array(["low", "lower"]))
    wrong = partrain("evaluate", run, "--input", tmp_path / "b.npz")
    assert (wrong.code, wrong.errors) == (66, ["no-input"])
    assert "b.npz: targets: item 1: the class `lower` is not one that was trained on" in wrong.err


def test_numbers_come_back_in_their_own_units(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", inputs=X, targets=VALUES)
    keys = "validation=9, test_items=15, standardise=true, standardise_target=true"
    run = train(tmp_path, SIMULATED, f'dataset={{kind="npz", path="a.npz", {keys}}}', "optimizer.batch_size=4")
    seen = np.setdiff1d(np.arange(N), drawn(N, 15))[hold_out(45, 9, "shuffled", 3)[0]]
    mean, std = VALUES[seen].astype(float).mean(axis=0), VALUES[seen].astype(float).std(axis=0)
    x_mean, x_std = X[seen].astype(float).mean(axis=0), X[seen].astype(float).std(axis=0)
    x_std[3] = 1
    path, content = open_checkpoint(run)
    network = load_network(load_job(content, path, trusted=True), content).module
    with torch.no_grad():
        expected = network(torch.from_numpy(((X - x_mean) / x_std).astype(np.float32))).numpy() * std + mean
    told = json.loads(partrain("predict", run, "--input", tmp_path / "a.npz", "--json").out)
    assert np.allclose(told["answer"], expected, rtol=1e-5)
    tested = drawn(N, 15)
    judged = json.loads(partrain("evaluate", run, "--json").out)["test"]
    assert judged["mae"] == pytest.approx(abs(expected[tested] - VALUES[tested]).mean(), rel=1e-4)
    (tmp_path / "new.csv").write_text("a,b,c,d\n" + "".join(",".join(map(repr, row)) + "\n" for row in X.tolist()))
    assert json.loads(partrain("predict", run, "--input", tmp_path / "new.csv", "--json").out)["answer"] == told["answer"]
    np.save(tmp_path / "one.npy", X[4])
    single = json.loads(partrain("predict", run, "--input", tmp_path / "one.npy", "--json").out)["answer"]
    assert np.allclose(single, told["answer"][4:5], rtol=1e-5)


def test_channels_are_standardised_in_new_items(tmp_path: Path) -> None:
    images = np.random.default_rng(3).normal(2, 5, (N, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "a.npz", inputs=images, targets=Y)
    run = train(
        tmp_path, SIMULATED, 'dataset={kind="npz", path="a.npz", standardise=true}', "optimizer.batch_size=4", "stop={rounds=1}"
    )
    judged = json.loads(partrain("evaluate", run, "--split", "training", "--json").out)["training"]
    alone = json.loads(partrain("evaluate", run, "--input", tmp_path / "a.npz", "--json").out)[str(tmp_path / "a.npz")]
    assert alone["confusion"] == judged["confusion"]
    assert alone["loss"] == pytest.approx(judged["loss"], rel=1e-6)


def test_what_was_learnt_from_other_items_is_not_used(tmp_path: Path) -> None:
    """The same holds where only targets are standardised."""
    np.savez(tmp_path / "a.npz", inputs=X, targets=VALUES)
    job = write_job(tmp_path, 'dataset={kind="npz", path="a.npz", validation=9, standardise_target=true}')
    assert partrain("data", "convert", job, "-o", tmp_path / "a.items").code == 0
    one = mapped.Mapped(kind="mapped", path="a.items", validation=9)
    assert load(one, tmp_path, training=trained_with(one)).codec.keys() == {"target_mean", "target_std"}
    other = one.model_copy(update={"validation": 10})
    with pytest.raises(InputMissing, match="was converted for other training items"):
        load(other, tmp_path, training=trained_with(other))


def test_inspection(tmp_path: Path) -> None:
    keys = {"test_items": 15, "standardise": True, "validation": 9}
    one = write_dataset(tmp_path, "hdf5", keys, inputs=X, targets=np.char.encode(KIND))
    data = load(one, tmp_path, training=trained_with(one))
    assert data.rows is not None
    trained, held = hold_out(45, 9, "shuffled", 3, None, None, data.rows)
    found = describe_dataset(data, trained, held)
    assert found["items"] == {"training": 36, "validation": 9, "test": 15}
    assert [row["name"] for row in found["classes"]] == ["bee", "cat", "owl"]
    assert sum(row[part] for row in found["classes"] for part in ("training", "validation", "test")) == N
    assert found["overlap"] == {"validation": 0, "test": 0}
    for column, numbers in zip(found["columns"], X[data.rows].T, strict=True):
        assert column["min"] == pytest.approx(numbers.min(), abs=1e-3)
        assert column["mean"] == pytest.approx(numbers.mean(), abs=1e-3)
    assert found["faults"] == ["`input 3` is the same for all items"]
    _, listed = describe_file(tmp_path / "a.h5")["arrays"]
    assert listed == {
        "name": "targets",
        "dtype": "text",
        "shape": [N],
        "mapped": False,
        "words": {"owl": 20, "cat": 20, "bee": 20},
    }


def test_files_with_texts_are_converted(tmp_path: Path) -> None:
    write_dataset(tmp_path, "npz", inputs=X, targets=KIND)
    assert partrain("data", "convert", tmp_path / "a.npz", "-o", tmp_path / "a.items").code == 0
    again = load(mapped.Mapped(kind="mapped", path="a.items"), tmp_path)
    assert again.codec["classes"] == ["bee", "cat", "owl"]
    assert np.array_equal(again.targets, 2 - Y)
