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

from partrain.api.trained import load as trained
from partrain.data import DatasetSpec, load, read_spec
from partrain.data.arrays.mapped import Mapped
from partrain.data.base import WrongSetting
from partrain.data.codec import Codec
from partrain.data.partition import hold_out
from partrain.data.tables.series import Series
from partrain.data.tables.time_stamps import are_month_ends, continue_stamps, missing_before, parse_stamp, step_of
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
    with pytest.raises(InputMissing, match=r"s\.csv:20: column `t`: `1` is in two rows"):
        load(series(**asked | {"missing": "error"}), tmp_path)


@pytest.mark.parametrize(
    ("stamps", "line", "fault"),
    [
        ("2020-01 2020-02 2020-03 2020-05", 5, "between `2020-03` and `2020-05` 1 moment is missing (rows are 1 month apart)"),
        ("2020-01-01 2020-01-02 2020-01-03 2020-01-06", 5, "2 moments are missing (rows are 1 day apart)"),
        ("1 2 3 2", 5, "`2` comes after `3`: sort the rows by time"),
        ("1 2 2 3", 4, "`2` is in two rows"),
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
    step = step_of([parsed])
    assert step is not None
    assert not any(missing_before(parsed, cells, step))
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
    (tmp_path / "twice.csv").write_text("month,y\n2020-01,1\n2020-01,2\n")
    said = partrain("predict", tmp_path / "run", "-i", tmp_path / "twice.csv")
    assert "if the file is of several stations or persons, keep the rows of one" in " ".join(said.err.split())
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


def stations(path: Path, spans: dict[str, range], order: str = "station") -> None:
    """Write the rows of stations, whose values tell station and moment: 1000 for each station's place, and the moment."""
    rows = [(name, moment, 1000 * at + moment) for at, (name, span) in enumerate(spans.items()) for moment in span]
    if order == "time":
        rows.sort(key=lambda row: row[1])
    elif order == "mixed":
        random.Random(3).shuffle(rows)
        rows.sort(key=lambda row: row[1] // 100)  # no row is older than one before it, of the same station
        rows = sorted(rows, key=lambda row: row[1] + 7 * (row[0] == "b"))
    elif order == "newest first":
        rows.sort(key=lambda row: -row[1])
    path.write_text("\n".join(["station,t,y", *(f"{name},{moment},{value}" for name, moment, value in rows), ""]))


SPANS = {"a": range(40), "b": range(10, 40), "c": range(25)}
GROUPED: dict[str, Any] = {"group": "station", "time": "t", "standardise": False, "steps": 3}


def parts_of(data: Any) -> dict[str, tuple[Any, Any]]:
    """Return inputs and targets (n, ...) of the parts: training, held out, test."""
    trained = np.setdiff1d(np.arange(data.items), data.held_out)
    parts = {"training": trained, "held_out": data.held_out}
    found = {name: (data.inputs[part, :, 0], data.targets[part]) for name, part in parts.items()}
    return found | {"test": (data.test_inputs[:, :, 0], data.test_targets)}


def test_no_window_crosses_two_groups_and_borders_are_moments(tmp_path: Path) -> None:
    stations(tmp_path / "s.csv", SPANS)
    section = series(**GROUPED, validation=5, test_items=7)
    data = load(section, tmp_path)
    parts = parts_of(data)
    rows = {name: np.concatenate([inputs, targets], axis=1) for name, (inputs, targets) in parts.items()}
    assert all((np.diff(some, axis=1) == 1).all() for some in rows.values()), "each row follows the one before, of its station"
    moments = {name: targets % 1000 for name, (_, targets) in parts.items()}
    assert sorted(parts["test"][1][:, 0].tolist()) == [34, 35, 36, 37, 1034, 1035, 1036, 1037], "whole moments, at least 7 items"
    assert moments["held_out"].max() < moments["test"].min()
    assert rows["training"].max(axis=1).astype(int).__mod__(1000).max() < moments["held_out"].min()
    assert sorted(parts["held_out"][1][:, 0].tolist()) == [29, 30, 31, 1029, 1030, 1031]
    trained = sum(len(range(start, 29 - 3 + 1)) for start in (5, 15)) + len(range(5, 25 - 3 + 1))
    assert len(rows["training"]) == trained, "all windows before the border, whatever the end of their station"
    assert data.inputs.flags.c_contiguous
    spec = read_spec(section, tmp_path)
    assert (spec.items, spec.test_items, spec.held_out) == (data.items, 8, 6)
    assert spec.remarks == ()
    assert data.gap is None


@pytest.mark.parametrize("order", ["time", "mixed", "newest first"])
def test_the_order_of_rows_in_the_file_does_not_matter(tmp_path: Path, order: str) -> None:
    keys = {**GROUPED, "standardise": True, "validation": 5, "test_items": 7, "difference": [1], "season": 4}
    stations(tmp_path / "s.csv", SPANS)
    before = load(series(**keys), tmp_path)
    stations(tmp_path / "s.csv", SPANS, order)
    assert load(series(**keys), tmp_path).fingerprint == before.fingerprint


@pytest.mark.parametrize("keys", [{}, {"difference": [1, 4], "season": 12, "stride": 2}, {"time": None, "stride": 4}])
def test_a_single_group_has_the_items_of_a_series(tmp_path: Path, keys: dict[str, Any]) -> None:
    draw = random.Random(0)
    rows = [f"x,{moment},{draw.gauss(0, 1):.4f}" for moment in range(90)]
    (tmp_path / "s.csv").write_text("\n".join(["station,t,y", *rows, ""]))
    asked = {"time": "t", "steps": 3, "validation": 6, "test_items": 5, **keys}
    alone, grouped = load(series(**asked), tmp_path), load(series(group="station", **asked), tmp_path)
    assert {**grouped.codec, "group": None} == {**alone.codec, "group": None}
    trained, held_out = hold_out(alone.items, 6, "given", 0, alone.gap)
    apart = hold_out(grouped.items, grouped.held_out, "given", 0)
    for name in ("inputs", "targets", "newest"):
        whole, other = getattr(alone, name), getattr(grouped, name)
        assert (whole is None) == (other is None)
        if whole is not None:
            assert np.array_equal(whole[trained], other[apart[0]])
            assert np.array_equal(whole[held_out], other[apart[1]])
            assert np.array_equal(getattr(alone, f"test_{name}"), getattr(grouped, f"test_{name}"))


def test_means_are_those_of_all_training_rows(tmp_path: Path) -> None:
    stations(tmp_path / "s.csv", SPANS)
    keys = {**GROUPED, "validation": 5, "test_items": 7}
    data = load(series(**keys | {"standardise": True}), tmp_path)
    rows = [1000 * at + moment for at, span in enumerate(SPANS.values()) for moment in span if moment < 29]
    assert data.codec["mean"]["y"] == pytest.approx(np.mean(rows))
    assert data.codec["deviation"]["y"] == pytest.approx(np.std(rows))


def test_without_time_all_groups_end_together(tmp_path: Path) -> None:
    stations(tmp_path / "s.csv", SPANS)
    data = load(series(**GROUPED | {"time": None}, validation=3, test_items=3), tmp_path)
    parts = parts_of(data)
    assert parts["test"][1][:, 0].tolist() == [37, 1037, 2022]
    assert parts["held_out"][1][:, 0].tolist() == [34, 1034, 2019]


def test_windows_begin_at_the_same_moments_whatever_the_beginning_of_a_group(tmp_path: Path) -> None:
    stations(tmp_path / "s.csv", {"a": range(60), "b": range(7, 60)})
    data = load(series(**GROUPED, stride=6, test_items=2), tmp_path)
    assert {int(start) % 1000 % 6 for start in data.inputs[:, 0, 0]} == {0}
    assert data.test_targets is not None
    assert data.test_targets[:, 0].tolist() == [53, 1053]


def test_groups_too_short_for_a_window_are_left_out_and_told(tmp_path: Path) -> None:
    stations(tmp_path / "s.csv", {"a": range(40), "b": range(7), "c": range(2)})
    section = series(**GROUPED, test_items=2)
    (remark,) = read_spec(section, tmp_path).remarks
    assert remark.message == (
        f"{tmp_path / 's.csv'}: 2 of 3 groups of `station` are too short for a window of 8 rows, and left out; "
        f"the first: b ({tmp_path / 's.csv'}:42)"
    )
    assert len(load(section, tmp_path).inputs) == read_spec(section, tmp_path).items
    stations(tmp_path / "s.csv", {"b": range(7), "c": range(2)})
    with pytest.raises(InputMissing, match=r"too short: the longest of 2 groups has 7 rows, one window takes 8"):
        load(section, tmp_path)
    stations(tmp_path / "s.csv", {"a": range(12), "b": range(100, 112)})
    with pytest.raises(
        InputMissing, match=r"too short: 10 windows .* none lies before the newest 5 to hold out and 3 to test on"
    ):
        load(series(**GROUPED, validation=5, test_items=3), tmp_path)
    with pytest.raises(InputMissing, match=r"too short: 5 windows for 20 held-out items"):
        load(series(**GROUPED, validation=20, test_items=3), tmp_path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            "a,1,1 b,1,1 a,2,2 b,2,3 b,2,4",
            "6: column `t`, `station` b: `2` is in two rows: a series has one row for each moment",
        ),
        ("a,1,1 b,1,1 a,3,2 a,2,2", "5: column `t`, `station` a: `2` comes after `3`: sort the rows by time"),
        (
            "a,1,1 a,2,1 a,3,1 b,1,2 b,3,1",
            "6: column `t`, `station` b: between `1` and `3` 1 moment is missing (rows are 1 apart): add",
        ),
        ("a,1,1 a,2,1 a,3,1 b,1,2 b,2.5,1", "6: column `t`, `station` b: `1` and `2.5` are not whole steps apart"),
        ("a,1,1 b,1990-01,1", "3: column `t`, `station` b: `1990-01` is another kind of time stamp than `1`"),
        ("a,1,1 b,1,high a,2,x", "3: column `y`, `station` b: `high` is no finite number"),
        ("a,1,1 ,1,2", "3: column `station`: no value; fill it in, or delete the row"),
    ],
)
def test_faults_name_line_and_group(tmp_path: Path, rows: str, message: str) -> None:
    (tmp_path / "s.csv").write_text("\n".join(["station,t,y", *rows.split(), ""]))
    for ask in (read_spec, load):
        with pytest.raises(InputMissing) as caught:
            ask(series(**GROUPED | {"window": 1, "steps": 1}), tmp_path)
        assert caught.value.message.startswith(f"{tmp_path / 's.csv'}:{message}")
        assert "several stations" not in caught.value.message


def test_holes_are_filled_within_a_group(tmp_path: Path) -> None:
    rows = ["a,1,1", "a,2,2", "a,3,3", "b,1,", "b,2,10", "a,4,4", "b,4,30", "b,5,", "b,6,50", "a,5,5", "a,6,6"]
    (tmp_path / "s.csv").write_text("\n".join(["station,t,y", *rows, ""]))
    keys = {**GROUPED, "window": 2, "steps": 1, "missing": "interpolate"}
    data = load(series(**keys), tmp_path)
    assert data.inputs[:, :, 0].tolist() == [[1, 2], [2, 3], [3, 4], [4, 5], [10, 20], [20, 30], [30, 40]]
    (remark,) = read_spec(series(**keys), tmp_path).remarks
    assert remark.message.endswith("s.csv:5: column `y`, `station` b: no value in the first 1 moment, which are left out")
    (tmp_path / "s.csv").write_text("\n".join(["station,t,y", *rows[:-2], "b,7,", ""]))
    with pytest.raises(InputMissing, match=r"s\.csv:11: column `y`, `station` b: no value, and none after it to interpolate to"):
        load(series(**keys), tmp_path)


def test_a_group_has_no_other_role() -> None:
    for key in ("target", "columns", "time"):
        with pytest.raises(ValueError, match="`group`: `station` has another role: a name of groups is no input, and no target"):
            series(group="station", **{key: "station"})


def test_a_repeated_moment_of_an_ungrouped_file_names_the_key(tmp_path: Path) -> None:
    stations(tmp_path / "s.csv", SPANS, "time")
    with pytest.raises(InputMissing, match=r"is in two rows: .*; if the file is of several stations or persons, `group` names"):
        load(series(time="t"), tmp_path)


def test_a_run_on_groups_forecasts_each(tmp_path: Path) -> None:
    """Answers equal the network applied by hand; evaluation of run and file and the naive forecasts go by group."""
    stations(tmp_path / "s.csv", SPANS | {"short": range(4)}, "time")
    keys = 'kind="series", path="s.csv", target="y", group="station", time="t", window=5, steps=2, season=4, difference=1'
    job = write_job(tmp_path, f"dataset={{{keys}, validation=6, test_items=6}}", 'model={name="linear"}', SIMULATED)
    said = partrain("run", job, "--out", tmp_path / "run", "--quiet")
    assert said.code == 0, said
    told = json.loads(partrain("evaluate", tmp_path / "run", "--json").out)
    assert told["validation"]["loss"] == pytest.approx(summary(tmp_path / "run")["best"]["loss"], rel=1e-5)
    assert told["test"]["naive"]["mae"] == pytest.approx(1.5), "values rise by 1 a moment"
    assert told["test"]["seasonal_naive"]["mae"] == pytest.approx(4)
    whole = json.loads(partrain("evaluate", tmp_path / "run", "-i", tmp_path / "s.csv", "--json").out)
    (judged,) = (part for part in whole.values() if isinstance(part, dict))
    assert judged["items"] == sum(len(span) - 1 - 5 - 2 + 1 for span in SPANS.values())
    said = partrain("predict", tmp_path / "run", "-i", tmp_path / "s.csv")
    assert "1 of 4 groups of `station` have fewer than 6 rows and are left out; the first: short" in " ".join(said.err.split())
    rows = [line.split(",") for line in said.out.splitlines()]
    assert rows[0] == ["station", "t", "y"]
    assert [row[:2] for row in rows[1:]] == [[name, str(span.stop + step)] for name, span in SPANS.items() for step in (0, 1)]
    network = trained(tmp_path / "run").network
    codec = network.codec.stored
    for at, (name, span) in enumerate(SPANS.items()):
        values = 1000.0 * at + np.array(span)
        window = (np.diff(values)[-5:, None] - codec["mean"]["y"]) / codec["deviation"]["y"]
        with torch.no_grad():
            answer = network.module(torch.tensor(window[None], dtype=torch.float32))[0].double().numpy()
        expected = values[-1] + np.cumsum(answer * codec["deviation"]["y"] + codec["mean"]["y"])
        assert [float(row[2]) for row in rows[1:] if row[0] == name] == pytest.approx(expected.tolist(), rel=1e-6)


@pytest.mark.slow
def test_an_exported_graph_with_preprocessing_answers_windows_of_groups(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    stations(tmp_path / "s.csv", SPANS)
    keys = 'kind="series", path="s.csv", target="y", group="station", time="t", window=5, steps=2, difference=1'
    job = write_job(tmp_path, f"dataset={{{keys}}}", 'model={name="linear"}', "stop.rounds=1", SIMULATED)
    assert partrain("run", job, "--out", tmp_path / "run", "--quiet").code == 0
    said = partrain("export", tmp_path / "run", "--format", "onnx", "--with-preprocessing", "--output", tmp_path / "y.onnx")
    assert said.code == 0, said
    graph = onnxruntime.InferenceSession(tmp_path / "y.onnx")
    windows = np.array([[[1000.0 * at + moment] for moment in span[-6:]] for at, span in enumerate(SPANS.values())])
    (answers,) = graph.run(["answers"], {"inputs": windows})
    rows = [line.split(",") for line in partrain("predict", tmp_path / "run", "-i", tmp_path / "s.csv").out.splitlines()[1:]]
    assert answers.flatten().tolist() == pytest.approx([float(row[2]) for row in rows], rel=1e-6)


def test_answers_without_time_name_the_group(tmp_path: Path) -> None:
    """A DataFrame is read as its file is; a group that training did not have is answered; the step must be that of training."""
    stations(tmp_path / "s.csv", SPANS)
    keys = 'kind="series", path="s.csv", target="y", group="station", window=5, steps=2, validation=4'
    job = write_job(tmp_path, f"dataset={{{keys}}}", 'model={name="linear"}', "stop.rounds=1", SIMULATED)
    assert partrain("run", job, "--out", tmp_path / "run", "--quiet").code == 0
    stations(tmp_path / "new.csv", {"z": range(5), "a": range(9)}, "time")
    rows = [line.split(",") for line in partrain("predict", tmp_path / "run", "-i", tmp_path / "new.csv").out.splitlines()]
    assert [row[0] for row in rows] == ["station", "a", "z"]
    assert rows[0][1:] == ["y+1", "y+2"]
    polars = pytest.importorskip("polars")
    answers = trained(tmp_path / "run").predict(polars.read_csv(tmp_path / "new.csv"))
    assert answers.tolist() == [pytest.approx([float(cell) for cell in row[1:]]) for row in rows[1:]]
    (tmp_path / "new.csv").write_text("t,y\n" + "".join(f"{moment},1\n" for moment in range(9)))
    assert "no column `station`, which `group` asks for" in partrain("predict", tmp_path / "run", "-i", tmp_path / "new.csv").err
    said = partrain("data", "convert", job, "-o", tmp_path / "s.items")
    assert (said.code, "`group` and `validation_path` choose its held-out items" in " ".join(said.err.split())) == (78, True)


def test_groups_without_held_out_items(tmp_path: Path) -> None:
    stations(tmp_path / "s.csv", SPANS)
    section = series(**GROUPED)
    data = load(section, tmp_path)
    assert data.test_inputs is None
    assert data.held_out is not None, "a converted file would draw held-out windows at random"
    assert read_spec(section, tmp_path) == data.spec
    assert len(data.inputs) == sum(len(span) - 8 + 1 for span in SPANS.values())
    with pytest.raises(WrongSetting, match="`fold`"):
        read_spec(series(**GROUPED, fold="1/3"), tmp_path)
