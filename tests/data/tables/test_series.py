"""Number series: windows, targets, means of training rows, and faults by line and column."""

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.runs import SIMULATED, partrain, summary, write_job

from partrain.data import DatasetSpec, load, read_spec
from partrain.data.arrays.mapped import Mapped
from partrain.data.codec import Codec
from partrain.data.partition import hold_out
from partrain.data.tables.series import Series
from partrain.data.tables.time_stamps import are_month_ends, check_stamps, continue_stamps, parse_stamp
from partrain.errors import InputMissing
from partrain.job.load import load as load_job
from partrain.training.batches import Samples
from partrain.training.trivial import naive


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
    job = write_job(folder, f"dataset={table}", 'model={name="linear"}', SIMULATED)
    said = partrain("run", job, "--out", folder / "run", "--quiet")
    assert said.code == 0, said
    again = json.loads(partrain("evaluate", folder / "run", "--json").out)
    assert (again["validation"]["items"], again["test"]["items"]) == (9, 6)
    assert again["validation"]["loss"] == pytest.approx(summary(folder / "run")["loss"], rel=1e-5)


def test_a_series_in_another_encoding_with_other_numbers_and_texts_of_holes(folder: Path) -> None:
    rows = "".join(f"{n};{'k.A.' if n == 20 else f'{n},5'}\n" for n in range(40))
    (folder / "s.csv").write_bytes(f"jähr;y\n{rows}".encode("latin-1"))
    with pytest.raises(InputMissing, match=r'not utf-8 text .* or set encoding = "latin-1"'):
        read_spec(series(separator=";"), folder)
    written = {"separator": ";", "encoding": "latin-1", "decimal": ",", "null_values": ["k.A."], "missing": "interpolate"}
    assert read_spec(series(**written), folder).items > 0


def monthly(path: Path, months: int = 60, without: tuple[int, ...] = (), first: int = 1990) -> None:
    """Write y = the square of the month's number, and x = twice the number."""
    rows = [f"{first + one // 12}-{one % 12 + 1:02},{one * one},{2 * one}" for one in range(months) if one not in without]
    path.write_text("\n".join(["month,y,x", *rows, ""]))


@pytest.mark.parametrize("lags", [[1], [12], [1, 12], [1, 1]])
@pytest.mark.parametrize("season", [None, 12, 24])
def test_differences_are_restored_from_the_newest_values(tmp_path: Path, lags: list[int], season: int | None) -> None:
    """Windows, targets and newest values come from the file; targets restored are the file's own numbers."""
    monthly(tmp_path / "s.csv")
    section = series(target=["y", "x"], difference=lags, season=season, steps=3, stride=2, validation=4, test_items=3)
    data = load(section, tmp_path)
    y = np.arange(60.0)[:, None] ** [2, 1] * [1, 2]
    changed = y
    for lag in lags:
        changed = changed[lag:] - changed[:-lag]
    lead = max(sum(lags), (max(sum(lags), season or 0)) - 5)
    mean, deviation = (np.array([data.codec[key][name] for name in "yx"]) for key in ("mean", "deviation"))
    codec = Codec(data.codec)
    assert data.newest is not None
    assert data.test_newest is not None
    assert read_spec(section, tmp_path) == data.spec
    for item in (0, 1, len(data.inputs) - 1):
        start = lead + 2 * item
        window = changed[start - sum(lags) :][:5]
        assert np.allclose(data.inputs[item] * deviation + mean, window, atol=1e-3)
        assert data.newest[item, -1].tolist() == y[start + 4].tolist()
        restored = codec.restore_units(
            torch.from_numpy(data.targets[item : item + 1]), torch.from_numpy(data.newest[item : item + 1])
        )
        assert np.allclose(restored.numpy().reshape(3, 2), y[start + 5 : start + 8], rtol=1e-5)
    last = codec.restore_units(torch.from_numpy(data.test_targets), torch.from_numpy(data.test_newest))
    assert last[-1, -2:].tolist() == pytest.approx(y[start_of_last(data, lead) + 7].tolist(), rel=1e-5)


def start_of_last(data: Any, lead: int) -> int:
    """Row of the first moment in the last test window, by stride 2."""
    return lead + 2 * ((60 - lead - 8) // 2)


def test_a_series_without_the_new_keys_has_none_of_them_in_its_codec(folder: Path) -> None:
    data = load(series(steps=2, validation=3, test_items=2), folder)
    assert data.newest is None
    assert set(data.codec) == {"form", "columns", "target", "window", "steps", "mean", "deviation"}


def test_holes_are_filled_or_named(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("t,y\n1,2\n2,\n3,NA\n4,8\n5,9\n6,10\n7,11\n8,12\n9,\n")
    asked = {"time": "t", "window": 2, "standardise": False}
    with pytest.raises(InputMissing, match=r's\.csv:3: column `y`: no value; .*: fill it in, or set missing = "interpolate"'):
        read_spec(series(**asked), tmp_path)
    with pytest.raises(InputMissing, match=r"s\.csv:10: column `y`: no value, and none after it to interpolate to"):
        read_spec(series(**asked, missing="interpolate"), tmp_path)
    forward = load(series(**asked, missing="forward"), tmp_path)
    assert forward.inputs[:, 0, 0].tolist() == [2, 2, 2, 8, 9, 10, 11]
    path.write_text(path.read_text().replace("9,\n", "").replace("6,10\n", ""))
    between = load(series(**asked, missing="interpolate"), tmp_path)
    assert between.inputs[:, 0, 0].tolist() == [2, 4, 6, 8, 9, 10], "also the moment 6, which has no row"


@pytest.mark.parametrize("missing", ["forward", "interpolate"])
def test_moments_before_the_first_value_are_left_out_and_told(tmp_path: Path, missing: str) -> None:
    (tmp_path / "s.csv").write_text("t,y,z\n1,,\n2,3,\n3,4,1\n4,,2\n5,4,3\n6,5,4\n7,6,\n8,7,6\n")
    asked = {"time": "t", "window": 2, "standardise": False, "missing": missing}
    begun = load(series(**asked), tmp_path)
    assert begun.inputs[:, 0, 0].tolist() == [3, 4, 4, 4, 5]
    both = load(series(**asked, columns=["y", "z"]), tmp_path)
    assert both.inputs[:, 0].tolist() == [[4, 1], [4, 2], [4, 3], [5, 4]]
    (remark,) = read_spec(series(**asked, columns=["y", "z"]), tmp_path).remarks
    assert remark.message.endswith("s.csv:2: column `z`: no value in the first 2 moments, which are left out")
    with pytest.raises(InputMissing, match=r"s\.csv:2: column `y`: no value;"):
        load(series(**asked | {"missing": "error"}), tmp_path)
    (tmp_path / "s.csv").write_text("t,y\n1,\n2,\n3,\n")
    with pytest.raises(InputMissing, match=r"s\.csv:2: column `y`: no value in any row"):
        load(series(**asked), tmp_path)


def test_the_newest_row_may_be_the_first(tmp_path: Path) -> None:
    rows = [f"{moment},{moment * moment}" for moment in range(1, 20)]
    asked = {"time": "t", "window": 2, "standardise": False, "missing": "interpolate"}
    inputs = []
    for order in 1, -1:
        (tmp_path / "s.csv").write_text("\n".join(["t,y", *[row for row in rows if not row.startswith("5,")][::order], ""]))
        inputs.append(load(series(**asked), tmp_path).inputs.tolist())
    assert inputs[0] == inputs[1]
    (tmp_path / "s.csv").write_text("\n".join(["t,y", *rows[::-1], "1,3", ""]))
    with pytest.raises(InputMissing, match=r"s\.csv:20: column `t`: `1` stands in two rows"):
        load(series(**asked | {"missing": "error"}), tmp_path)


@pytest.mark.parametrize(
    ("stamps", "line", "fault"),
    [
        ("2020-01 2020-02 2020-03 2020-05", 5, "between `2020-03` and `2020-05` 1 moment is missing (rows are 1 month apart)"),
        ("2020-01-01 2020-01-02 2020-01-03 2020-01-06", 5, "2 moments are missing (rows are 1 day apart)"),
        ("1 2 3 2", 5, "`2` comes after `3`: sort the rows by time"),
        ("1 2 2 3", 4, "`2` stands in two rows"),
        ("0 2 4 6 7", 6, "`6` and `7` are not whole steps apart (most rows are 2 apart)"),
        ("2020-01 2020-02 soon", 4, "`soon` is neither a number nor a date"),
        ("2020-01 7 8", 3, "`7` is another kind of time stamp than `2020-01`"),
        ("2020-01  2020-03", 3, "column `t`: no value"),
    ],
)
def test_time_stamps_are_checked(tmp_path: Path, stamps: str, line: int, fault: str) -> None:
    cells = stamps.split(" ")
    (tmp_path / "s.csv").write_text("\n".join(["t,y", *(f"{cell},{row}" for row, cell in enumerate(cells)), ""]))
    with pytest.raises(InputMissing) as caught:
        read_spec(series(time="t", window=1), tmp_path)
    assert f"s.csv:{line}: column `t`: " in caught.value.message
    assert fault in caught.value.message


@pytest.mark.parametrize(
    ("stamps", "following"),
    [
        ("2019-11 2019-12", "2020-01 2020-02"),
        ("2019-11-30 2019-12-31", "2020-01-31 2020-02-29"),
        ("2020-02-27 2020-02-28", "2020-02-29 2020-03-01"),
        ("2020-01-01T00:00 2020-01-01T12:00", "2020-01-02T00:00:00 2020-01-02T12:00:00"),
        ("2020/01/05 2020/01/12", "2020/01/19 2020/01/26"),
        ("20200105 20200112", "20200119 20200126"),
        ("2020-01-01 2020-04-01", "2020-07-01 2020-10-01"),
        ("1960 1961", "1962 1963"),
        ("0.25 0.5", "0.75 1"),
        ("1958.2027 1958.2877 1958.3699", "1958.4521 1958.5343"),
    ],
)
def test_time_stamps_are_continued_in_their_spelling(stamps: str, following: str) -> None:
    cells = stamps.split()
    parsed = list(map(parse_stamp, cells))
    step, missing = check_stamps(parsed, cells)
    assert step is not None
    assert not any(missing)
    assert continue_stamps(cells[-1], step, 2, ends=are_month_ends(parsed)) == following.split()


SEASONS = (
    '{kind="series", path="s.csv", target="y", time="month", window=24, steps=12, season=12, validation=12, test_items=12%s}'
)


def seasonal(path: Path, months: int = 168) -> list[float]:
    """Write a growing series with a season and noise, as of airline passengers."""
    draw = random.Random(7)
    swing = [math.sin(2 * math.pi * month / 12) + 0.4 * math.cos(4 * math.pi * month / 12) for month in range(12)]
    values = [round((100 + 2 * month) * (1 + 0.2 * swing[month % 12]) + draw.gauss(0, 4), 1) for month in range(months)]
    rows = [f"{1949 + month // 12}-{month % 12 + 1:02},{value}" for month, value in enumerate(values)]
    path.write_text("\n".join(["month,y", *rows, ""]))
    return values


def test_a_forecast_of_differences_in_the_units_of_the_file(tmp_path: Path) -> None:
    """Evaluation, of the data set and of its file, and the forecast behind the file's end are in these units, with time stamps."""
    values = seasonal(tmp_path / "s.csv")
    keys = (SIMULATED, "stop.rounds=60", 'optimizer={name="adam", lr=0.003, batch_size=8}', 'model={name="mlp", hidden=[16]}')
    job = write_job(tmp_path, f"dataset={SEASONS % ', difference=[1, 12]'}", *keys)
    assert partrain("run", job, "--out", tmp_path / "run", "--quiet").code == 0
    told = json.loads(partrain("evaluate", tmp_path / "run", "--json").out)["test"]
    assert told["rmse"] < 0.7 * told["seasonal_naive"]["rmse"] < told["naive"]["rmse"]
    (whole,) = (one for one in json.loads(partrain("evaluate", tmp_path / "run", "-i", tmp_path / "s.csv", "--json").out).values()
                if isinstance(one, dict))  # fmt: skip
    assert whole["items"] == 168 - 13 - 24 - 12 + 1
    assert whole["rmse"] < told["seasonal_naive"]["rmse"]
    said = partrain("predict", tmp_path / "run", "-i", tmp_path / "s.csv").out.splitlines()
    assert said[0] == "month,y"
    assert [line.partition(",")[0] for line in said[1:]] == [f"1963-{month:02}" for month in range(1, 13)]
    expected = [(100 + 2 * month) * (values[month - 12] / (100 + 2 * (month - 12))) for month in range(168, 180)]
    assert [float(line.partition(",")[2]) for line in said[1:]] == pytest.approx(expected, rel=0.12)


def test_naive_forecasts_by_hand() -> None:
    """Newest values 1 2 3 of a season of 2, four steps: naive 3 3 3 3, seasonal 2 3 2 3."""
    codec = Codec({"form": "series", "columns": ["y"], "target": ["y"], "mean": {"y": 0.0}, "deviation": {"y": 1.0}, "season": 2})
    newest = torch.tensor([[[1.0], [2.0], [3.0]]], dtype=torch.float64)
    targets = torch.tensor([[2.0, 3.0, 2.0, 5.0]])
    told = naive(codec, Samples(torch.empty(1, 1, 1), targets, 1.0, newest=newest))
    assert (told["naive"]["mae"], told["seasonal_naive"]["mae"]) == (1, 0.5)


def test_a_forecast_needs_the_step_that_was_trained(tmp_path: Path) -> None:
    seasonal(tmp_path / "s.csv")
    job = write_job(tmp_path, f"dataset={SEASONS % ''}", 'model={name="linear"}', "stop.rounds=1")
    assert partrain("run", job, "--out", tmp_path / "run", "--quiet").code == 0
    (tmp_path / "daily.csv").write_text("month,y\n" + "".join(f"2020-01-{day:02},{day}\n" for day in range(1, 31)))
    said = partrain("predict", tmp_path / "run", "-i", tmp_path / "daily.csv")
    assert (said.code, said.errors) == (66, ["no-input"])
    assert "column `month`: its rows are 1 day apart, those trained on 1 month" in said.err
    (tmp_path / "short.csv").write_text("month,y\n2020-01,1\n2020-02,2\n")
    assert "short.csv: 2 rows, but a window takes 24" in partrain("predict", tmp_path / "run", "-i", tmp_path / "short.csv").err


def test_a_converted_series_keeps_its_newest_values(tmp_path: Path) -> None:
    """The file of `data convert` has what differences are restored from, in windows over one array, too."""
    monthly(tmp_path / "s.csv")
    keys = 'kind="series", path="s.csv", target="y", difference=[1, 12], season=24, window=5, validation=4, test_items=3'
    job = write_job(tmp_path, f"dataset={{{keys}}}", 'model={name="linear"}', "optimizer.batch_size=2")
    said = partrain("data", "convert", job, "-o", tmp_path / "s.items")
    assert said.code == 0, said
    training = load_job(job).job.training
    one = load(series(difference=[1, 12], season=24, validation=4, test_items=3), tmp_path, training=training)
    other = load(Mapped.model_validate({"kind": "mapped", "path": "s.items", "validation": 4}), tmp_path, training=training)
    for name in "inputs", "targets", "newest", "test_newest":
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
