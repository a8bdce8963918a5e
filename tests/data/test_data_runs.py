"""Whole runs on tables and mapped files, and the `partrain data` commands."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from support.runs import SIMULATED, events, newest, partrain, resume, round_file, summary, train, write_job

BIRDS = "wing,leg,kind\n" + "".join(f"{wing},{wing % 7},{'abc'[wing % 3]}\n" for wing in range(120))


def on(folder: Path, table: str, *sets: str) -> list[str]:
    """Return overrides that replace the job's `[dataset]` table."""
    folder.mkdir(parents=True, exist_ok=True)
    return [f"dataset={table}", *sets]


@pytest.fixture
def birds(tmp_path: Path) -> list[str]:
    (tmp_path / "birds.csv").write_text(BIRDS)
    return on(tmp_path, '{kind="csv", path="birds.csv", target="kind", validation=12, test_items=18, stratify=true}')


@pytest.mark.representative
def test_a_table_trains_resumes_to_the_bit_and_is_evaluated(tmp_path: Path, birds: list[str]) -> None:
    run = train(tmp_path, *birds)
    whole = newest(run)
    resume(round_file(run, 2), "--out", tmp_path / "again")
    assert newest(tmp_path / "again") == whole
    said = partrain("evaluate", run, "--json")
    assert said.code == 0, said
    judged = json.loads(said.out)
    assert (judged["validation"]["items"], judged["test"]["items"]) == (12, 18)
    assert judged["validation"]["loss"] == pytest.approx(summary(run)["best"]["loss"], rel=1e-5)


@pytest.mark.parametrize("order", ['order="stratified"', 'order="by-label"', 'order="dirichlet", alpha=0.3'])
@pytest.mark.parametrize("redraw", ["never", "round"])
def test_orders_train_resume_to_the_bit_and_report_their_unevenness(tmp_path: Path, order: str, redraw: str) -> None:
    run = train(tmp_path, f'partition={{{order}, redraw="{redraw}"}}', SIMULATED, "stop.rounds=3")
    resume(round_file(run, 1), "--out", tmp_path / "again")
    assert newest(tmp_path / "again") == newest(run)
    started = [worker["unevenness"] for worker in events(run, "start")[0]["workers"]]
    assert [worker["unevenness"] for worker in summary(run)["workers"]] == started
    assert (max(started) < 0.05) == ("stratified" in order)


def test_unevenness_is_said_and_a_shuffle_has_none(tmp_path: Path) -> None:
    job = write_job(tmp_path, 'partition={order="by-label"}', "stop.rounds=1")
    said = partrain("run", job, "--out", tmp_path / "run", "--quiet")
    assert "label skew of partitions: mean " in said.out
    assert "unevenness" not in events(train(tmp_path / "other", SIMULATED, "stop.rounds=1"), "start")[0]["workers"][0]


@pytest.mark.parametrize(("old", "new", "words"), [
    ("5,5,c", "5,five,c", "birds.csv:7: column `leg`: `five` is no number"),
    ("5,5,c", "5,5", "birds.csv:7: 2 cells where line 1 names 3 columns"),
    ("5,5,c", "5,5,", "birds.csv:7: column `kind`: no value"),
    ("kind", "sort", "birds.csv:1: no column `kind`, which `target` asks for"),
])  # fmt: skip
def test_faults_of_a_table_end_a_run_before_it_starts(tmp_path: Path, birds: list[str], old: str, new: str, words: str) -> None:
    (tmp_path / "birds.csv").write_text(BIRDS.replace(old, new, 1))
    said = partrain("run", write_job(tmp_path, *birds), "--out", tmp_path / "run", "--quiet")
    assert (said.code, said.errors) == (66, ["no-input"])
    assert any(words in line for line in said.err.splitlines() if line.startswith("partrain: error[no-input]: "))
    assert events(tmp_path / "run", "start") == []


def test_a_job_with_faults_of_its_own_is_a_bad_job(tmp_path: Path, birds: list[str]) -> None:
    (tmp_path / "birds.csv").unlink()
    assert partrain("run", write_job(tmp_path, *birds), "--quiet").code == 66
    assert partrain("run", write_job(tmp_path, *birds, "optimizer.nesterov=true", "optimizer.momentum=0.0"), "--quiet").code == 78


@pytest.mark.parametrize(("sets", "words"), [
    (['dataset.function="sine"', "dataset.stratify=true", "dataset.noise=0.1"], "`stratify` goes by classes"),
    (["dataset.stratify=true", 'partition={order="given"}'], "`stratify` draws the held-out"),
])  # fmt: skip
def test_classes_are_asked_of_who_has_some(tmp_path: Path, sets: list[str], words: str) -> None:
    said = partrain("validate", write_job(tmp_path, *sets))
    assert said.code == 78
    assert words in said.out


def test_mapped_files_train_to_the_same_bits(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    arrays: dict[str, Any] = {"inputs": draws.standard_normal((150, 4), np.float32), "targets": draws.integers(0, 3, 150)}
    np.savez(tmp_path / "a.npz", **arrays)
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    said = partrain("data", "convert", tmp_path / "a.npz", "-o", tmp_path / "a.items")
    assert said.code == 0, said
    tables = [
        'kind="npz", path="../a.npz"',
        'kind="npy", inputs="../inputs.npy", targets="../targets.npy"',
        'kind="mapped", path="../a.items"',
    ]
    from partrain.checkpoint import read

    models = []
    for number, table in enumerate(tables):
        run = train(tmp_path / str(number), *on(tmp_path / str(number), f"{{{table}, validation=30}}", SIMULATED))
        resume(round_file(run, 2), "--out", tmp_path / str(number) / "again")
        assert newest(tmp_path / str(number) / "again") == newest(run)
        content = read(run / "checkpoint.h5").arrays
        models.append({name: array for name, array in content.items() if name.startswith("model/")})
    assert all(np.array_equal(models[0][name], other[name]) for other in models[1:] for name in models[0])


# The commands


def test_inspect_a_job(tmp_path: Path, birds: list[str]) -> None:
    (tmp_path / "birds.csv").write_text(BIRDS.replace("\n1,1,b\n", "\n0,0,c\n") + "0,0,a\n")
    found = json.loads(partrain("data", "inspect", write_job(tmp_path, *birds), "--json").out)
    assert found["items"] == {"training": 91, "validation": 12, "test": 18}
    assert [one["name"] for one in found["classes"]] == ["a", "b", "c"]
    assert sum(one[part] for one in found["classes"] for part in ("training", "validation", "test")) == 121
    wing, leg = found["columns"]
    assert (wing["name"], leg["min"], leg["max"]) == ("wing", 0, pytest.approx(6))
    assert found["repeated"] + sum(found["overlap"].values()) in (1, 2)
    text = partrain("data", "inspect", write_job(tmp_path, *birds)).out
    assert "items: 91 training, 12 validation, 18 test" in text


def test_inspect_finds_test_items_that_are_trained_on_and_columns_that_say_nothing(tmp_path: Path) -> None:
    inputs = np.arange(20, dtype=np.float32).reshape(10, 2)
    inputs[:, 1] = 5
    np.savez(tmp_path / "a.npz", inputs=inputs, targets=np.arange(10) % 2, test_inputs=inputs[:3], test_targets=np.arange(3) % 2)
    job = write_job(tmp_path, *on(tmp_path, '{kind="npz", path="a.npz"}'), "optimizer.batch_size=2", "stop={rounds=1}")
    said = partrain("data", "inspect", job)
    assert "fault: 3 of the test items are also trained on" in said.out
    assert "fault: `input 1` is the same for all items" in said.out


def test_inputs_that_are_all_equal_are_told_once(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", inputs=np.zeros((20, 3), np.float32), targets=np.arange(20) % 2)
    job = write_job(tmp_path, *on(tmp_path, '{kind="npz", path="a.npz"}'), "optimizer.batch_size=2", "stop={rounds=1}")
    remark = "the inputs of all 20 items are equal: a network cannot learn from them"
    assert partrain("run", job, "--out", tmp_path / "run", "-q").err.count(f"partrain: warning: {remark}") == 1
    text = partrain("data", "inspect", job).out
    assert f"fault: {remark}" in text
    assert "is the same for all items" not in text


def test_classes_without_an_item_are_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", inputs=np.random.default_rng(0).random((20, 3)), targets=np.array([3, 7])[np.arange(20) % 2])
    job = write_job(tmp_path, *on(tmp_path, '{kind="npz", path="a.npz"}'), "optimizer.batch_size=2", "stop={rounds=1}")
    remark = "6 of 8 classes have no item: the labels are 3, 7; renumber them from 0: `np.unique("
    assert partrain("run", job, "--out", tmp_path / "run", "-q").err.count(f"partrain: warning: {remark}") == 1
    assert f"fault: {remark}" in partrain("data", "inspect", job).out


def test_inspect_files(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,w\n1,a\n,b\n3.5,a\n")
    found = json.loads(partrain("data", "inspect", tmp_path / "t.csv", "--json").out)
    assert found["rows"] == 3
    assert found["columns"] == [
        {"name": "x", "missing": 1, "different": 2, "min": 1.0, "max": 3.5, "mean": 2.25},
        {"name": "w", "missing": 0, "different": 2, "words": {"a": 2, "b": 1}},
    ]
    np.savez(tmp_path / "a.npz", x=np.array([[1.5, np.nan]]), y=np.array([3]))
    arrays = json.loads(partrain("data", "inspect", tmp_path / "a.npz", "--json").out)["arrays"]
    assert [(one["name"], one["shape"], one["min"], one["max"]) for one in arrays] == [("x", [1, 2], 1.5, 1.5), ("y", [1], 3, 3)]
    assert (arrays[0]["not finite"], arrays[0]["first"]) == (1, 0)
    for name in ("t.csv", "a.npz"):
        assert partrain("data", "inspect", tmp_path / name).code == 0


def test_inspect_finds_the_bad_cell_of_a_table(tmp_path: Path) -> None:
    """A column of numbers stays one, whatever one cell holds."""
    (tmp_path / "t.csv").write_text("x,w\n" + "".join(f"{x},{x % 2}\n" for x in range(9)) + "1O,1\ninf,0\n")
    found = json.loads(partrain("data", "inspect", tmp_path / "t.csv", "--json").out)
    assert [(one["min"], one["max"]) for one in found["columns"]] == [(0, 8), (0, 1)]
    assert found["faults"] == [f"`x`: 2 of 11 cells are no finite number: {tmp_path / 't.csv'}:11: '1O'"]
    assert f"fault: {found['faults'][0]}" in partrain("data", "inspect", tmp_path / "t.csv").out


@pytest.mark.parametrize("mark", [";", "|", "\t"])
def test_inspect_says_that_something_else_parts_the_cells(tmp_path: Path, mark: str) -> None:
    (tmp_path / "t.csv").write_text("a,b,c\n1,2,3\n".replace(",", mark))
    found = json.loads(partrain("data", "inspect", tmp_path / "t.csv", "--json").out)
    told = "line 1 is a single name: its cells seem to be separated by"
    assert found["faults"] == [f"{tmp_path / 't.csv'}:1: {told} {mark!r}, so inspect a job that sets `separator`"]
    (tmp_path / "t.csv").write_text("a;b\n1,5;2\n")
    assert "quotes, or inspect a job that sets `separator`" in partrain("data", "inspect", tmp_path / "t.csv").err


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_inspect_says_how_to_read_another_encoding(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,Köln\n", encoding=encoding)
    said = partrain("data", "inspect", tmp_path / "t.csv")
    assert (said.code, said.errors) == (66, ["no-input"]), said
    assert f'save it so, or inspect a job that sets encoding = "{encoding}"' in said.err


@pytest.mark.parametrize("name", ["notes.txt", "folder", "picture.png"])
def test_inspect_of_what_a_job_must_explain(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    if name != "folder":
        (tmp_path / name).write_text("It was, as it is, a text.\n")
    said = partrain("data", "inspect", tmp_path / name)
    assert (said.code, said.errors) == (66, ["no-input"]), said
    assert "pass a job file instead" in said.err


def test_a_number_that_is_none_is_named_by_its_item(tmp_path: Path) -> None:
    inputs = np.zeros((60, 2), "f4")
    inputs[41, 1] = np.nan
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["inputs"], file["targets"] = inputs, np.arange(60) % 3
    header = bytes([0, 0, 0x0D, 2]) + (60).to_bytes(4, "big") + (2).to_bytes(4, "big")
    (tmp_path / "x.idx").write_bytes(header + inputs.astype(">f4").tobytes())
    (tmp_path / "y.idx").write_bytes(bytes([0, 0, 8, 1]) + (60).to_bytes(4, "big") + bytes(range(60)))
    bad = "item 41 holds a number that is not finite"
    mapped, read = '{kind="hdf5", path="a.h5"}', '{kind="idx", inputs="x.idx", targets="y.idx"}'
    said = partrain("data", "inspect", write_job(tmp_path, *on(tmp_path, mapped)))
    assert "fault: 1 numbers of inputs are not finite, the first in item 41" in said.out
    for words in (
        ("data", "convert", write_job(tmp_path, *on(tmp_path, mapped)), "-o", tmp_path / "a.items"),
        ("run", write_job(tmp_path, *on(tmp_path, read)), "--out", tmp_path / "run"),
        ("data", "convert", tmp_path / "a.h5", "-o", tmp_path / "a.items"),
    ):
        said = partrain(*words)
        assert (said.code, said.errors, bad in said.err) == (66, ["no-input"], True), said
    assert not (tmp_path / "a.items").exists()


def test_inspect_shows_series_by_column_and_in_their_units(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("day,v\n" + "".join(f"{day},{day % 5}.5\n" for day in range(90)))
    table = '{kind="series", path="s.csv", target="v", window=4, validation=10, test_items=10}'
    job = write_job(tmp_path, *on(tmp_path, table))
    (column,) = json.loads(partrain("data", "inspect", job, "--json").out)["columns"]
    assert (column["name"], column["min"], column["max"]) == ("v", pytest.approx(0.5, rel=1e-4), pytest.approx(4.5, rel=1e-4))


def test_inspect_idx_files(tmp_path: Path) -> None:
    (tmp_path / "x.idx").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 9, 8]))
    (array,) = json.loads(partrain("data", "inspect", tmp_path / "x.idx", "--json").out)["arrays"]
    assert (array["shape"], array["min"], array["max"]) == ([3], 7, 9)


def test_convert_a_job_and_inspect_what_came_of_it(tmp_path: Path, birds: list[str]) -> None:
    job, made = write_job(tmp_path, *birds), tmp_path / "birds.items"
    said = partrain("data", "convert", job, "--output", made)
    assert said.code == 0, said
    assert 'kind = "mapped", path = "birds.items"' in said.out
    found = json.loads(partrain("data", "inspect", made, "--json").out)
    assert (found["items"], [one["name"] for one in found["classes"]]) == ({"training": 102, "test": 18}, ["a", "b", "c"])
    assert partrain("data", "convert", job, "--output", made).code == 73
    assert partrain("data", "convert", job, "--output", made, "--force").code == 0
    content = bytearray(made.read_bytes())
    content[4096] ^= 1
    made.write_bytes(content)
    assert partrain("data", "inspect", made).code == 66


@pytest.mark.parametrize(("words", "said"), [
    (["inspect", "nothing.csv"], "nothing.csv: No such file or directory"),
    (["convert", "birds.csv", "-o", "x.items"], "birds.csv: cannot tell inputs from targets; pass a job file"),
])  # fmt: skip
def test_what_the_commands_cannot_do(
    tmp_path: Path, birds: list[str], monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = partrain("data", *words)
    assert (result.code, result.errors) == (66, ["no-input"])
    assert said in result.err


def test_fetch_has_nothing_to_do_for_files_that_are_here(tmp_path: Path, birds: list[str]) -> None:
    assert partrain("data", "fetch", write_job(tmp_path, *birds)).out == "nothing to fetch\n"
