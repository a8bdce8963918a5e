"""Number series: windows, targets, means of training rows, and faults by line and column."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs import partrain, summary, write_job

from partrain.data import DatasetSpec, load, read_spec
from partrain.data.partition import hold_out
from partrain.data.tables.series import Series
from partrain.errors import InputMissing


def series(**more: Any) -> Series:
    return Series.model_validate({"kind": "series", "path": "s.csv", "target": "y", "window": 5, **more})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """y counts the rows from 0, x is its square, day is no number."""
    rows = [f"2026-01-{row % 28 + 1:02},{row * row},{row}" for row in range(60)]
    (tmp_path / "s.csv").write_text("\n".join(["day,x,y", *rows, ""]))
    return tmp_path


def test_windows_and_what_follows_them(folder: Path) -> None:
    data = load(series(steps=2, standardise=False), folder)
    assert (data.task, data.outputs, data.inputs.shape, data.targets.shape) == ("forecast", 2, (54, 5, 1), (54, 2))
    for item in (0, 1, 53):
        assert data.inputs[item, :, 0].tolist() == list(range(item, item + 5))
        assert data.targets[item].tolist() == [item + 5, item + 6]


def test_several_columns_moment_by_moment(folder: Path) -> None:
    data = load(series(columns=["x", "y"], target=["y", "x"], steps=2, stride=3, standardise=False), folder)
    assert data.inputs[2].tolist() == [[row * row, row] for row in range(6, 11)]
    assert data.targets[2].tolist() == [11, 121, 12, 144]


def test_one_array_whatever_the_windows(folder: Path) -> None:
    asked = []

    def allocate(size: int) -> memoryview:
        asked.append(size)
        return memoryview(bytearray(size))

    data = load(series(window=30, test_items=4), folder, allocate)
    assert asked[0] < 60 * 4 * 2 + 64
    assert data.test_inputs is not None
    assert np.shares_memory(data.inputs, data.test_inputs)


def test_the_order_of_time_is_kept(folder: Path) -> None:
    data = load(series(steps=3, validation=6, test_items=4, standardise=False), folder)
    assert data.gap == 2
    trained, held_out = hold_out(data.items, 6, "shuffled", 0, data.gap)
    newest = max(data.targets[trained].max(), data.inputs[trained].max())
    assert newest < data.targets[held_out].min()
    assert data.test_targets is not None
    assert data.targets[held_out].max() < data.test_targets.min()
    assert data.test_targets.max() == 59
    assert len(trained) == len(data.inputs) - 2 - 6


def test_means_and_deviations_are_those_of_what_is_trained_on(folder: Path) -> None:
    section = series(columns=["x", "y"], validation=10, test_items=10)
    data = load(section, folder)
    trained, _ = hold_out(data.items, 10, "given", 0, data.gap)
    rows = np.arange(trained[-1] + 5 + 1)
    assert data.codec["mean"] == {"x": pytest.approx((rows**2).mean()), "y": pytest.approx(rows.mean())}
    assert data.codec["deviation"]["y"] == pytest.approx(rows.std())
    back = data.targets[:, 0] * data.codec["deviation"]["y"] + data.codec["mean"]["y"]
    assert np.allclose(back, np.arange(5, 5 + len(back)), atol=1e-4)
    assert np.array_equal(data.inputs[0, :, 1], load(series(validation=10, test_items=10), folder).inputs[0, :, 0])


def test_a_column_that_never_changes_stays_finite(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("y\n" + "7\n" * 20)
    assert not load(series(), tmp_path).inputs.any()


def test_facts_are_what_loading_gives(folder: Path) -> None:
    section = series(columns=["x", "y"], steps=4, stride=3, validation=3, test_items=2)
    data = load(section, folder)
    assert read_spec(section, folder) == DatasetSpec(data.items, 2, (5, 2), "forecast", 4)


def test_parquet(folder: Path) -> None:
    polars = pytest.importorskip("polars")
    polars.read_csv(folder / "s.csv").write_parquet(folder / "s.parquet")
    one, other = load(series(), folder), load(series(path="s.parquet"), folder)
    assert np.array_equal(one.inputs, other.inputs)


def test_an_empty_line_between_moments_is_a_hole(folder: Path) -> None:
    """In a table of one column an empty line is a missing value, except at the end of the file."""
    path = folder / "s.csv"
    whole = path.read_text().rstrip("\n") + "\n"
    before = load(series(), folder)
    path.write_text(whole + "\n\n")
    assert load(series(), folder).fingerprint == before.fingerprint
    lines = whole.splitlines()
    path.write_text("\n".join([*lines[:30], "", *lines[30:]]))
    with pytest.raises(InputMissing, match=r"s\.csv:31: an empty line, and rows after it: fill it in, or delete it$"):
        load(series(), folder)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("", "column `y`: no value; a series needs every value"),
        ("NA", "column `y`: no value"),
        ("nan", "column `y`: no value"),
        ("inf", "column `y`: `inf` is no finite number"),
        ("12,5", "4 cells where line 1 names 3 columns"),
        ("high", "column `y`: `high` is no finite number"),
        ("1_0", "column `y`: `1_0` is no finite number"),
    ],
)
def test_faults_by_line_and_column(folder: Path, cell: str, message: str) -> None:
    lines = (folder / "s.csv").read_text().splitlines()
    lines[30] = f"2026-01-01,4,{cell}"
    (folder / "s.csv").write_text("\n".join(lines))
    for ask in (read_spec, load):
        with pytest.raises(InputMissing, match=rf"s\.csv:31: {message}"):
            ask(series(), folder)


def test_a_missing_column_is_named(folder: Path) -> None:
    with pytest.raises(InputMissing, match=r"s\.csv:1: no column `dayz`, which `target` asks for: did you mean `day`\?"):
        read_spec(series(target="dayz"), folder)
    with pytest.raises(InputMissing, match=r"no column `z`, which `columns` asks for"):
        read_spec(series(columns=["y", "z"]), folder)


def test_too_short(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("y\n1\n2\n3\n")
    with pytest.raises(InputMissing, match=r"s\.csv: too short: it has 3 elements, one window takes 6$"):
        read_spec(series(), tmp_path)


def test_a_run_judges_what_evaluation_judges(folder: Path) -> None:
    """Worker and evaluation leave out the same gap between training and held-out items."""
    table = '{kind="series", path="s.csv", target="y", window=5, steps=3, validation=9, test_items=6}'
    job = write_job(folder, f"dataset={table}", 'model={name="linear"}')
    said = partrain("run", job, "--out", folder / "run", "--quiet")
    assert said.code == 0, said
    again = json.loads(partrain("evaluate", folder / "run", "--json").out)
    assert (again["validation"]["items"], again["test"]["items"]) == (9, 6)
    assert again["validation"]["loss"] == pytest.approx(summary(folder / "run")["loss"], rel=1e-5)


def test_a_series_has_no_encoding_to_set(folder: Path) -> None:
    (folder / "s.csv").write_bytes("jähr,y\n1,2\n".encode("latin-1"))
    with pytest.raises(InputMissing) as caught:
        read_spec(series(), folder)
    assert caught.value.message.endswith("s.csv:1: not utf-8 text (invalid continuation byte): save it so")
