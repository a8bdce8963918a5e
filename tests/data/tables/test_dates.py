"""Forms of dates other than ISO 8601, and tables whose rows are held out by time."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from support.runs import partrain, summary

from partrain.data.tables.date_formats import USUAL_FORMATS, date_writer, pattern_of
from partrain.inference.network import load_dataset, load_network, split_items
from partrain.inference.open import load_job, open_checkpoint


@pytest.mark.parametrize(
    ("form", "text", "iso"),
    [
        ("%d.%m.%Y", "31.12.2019", "2019-12-31"),
        ("%d.%m.%Y", " 1.2.2019", "2019-02-01"),
        ("%d.%m.%Y", "31.2.2019", "31.2.2019"),
        ("%d.%m.%Y", "12.31.2019", "12.31.2019"),
        ("%m/%d/%Y %H:%M:%S", "9/30/1990 0:00:00", "1990-09-30T00:00:00"),
        ("%m/%d/%y", "9/30/68", "2068-09-30"),
        ("%m/%d/%y", "9/30/69", "1969-09-30"),
        ("%m/%d/%Y %I:%M %p", "1/2/2020 12:05 am", "2020-01-02T00:05:00"),
        ("%m/%d/%Y %I:%M %p", "1/2/2020 1:05 P.M.", "2020-01-02T13:05:00"),
        ("%m/%d/%Y %I:%M %p", "1/2/2020 13:05 PM", "1/2/2020 13:05 PM"),
        ("%b %d %Y", "Jan 1 2000", "2000-01-01"),
        ("%b %d, %Y", "September 1, 2000", "2000-09-01"),
        ("%d %b %Y", "1 Sept. 2000", "2000-09-01"),
        ("%d %b %Y", "1 Foo 2000", "1 Foo 2000"),
        ("%Y %b", "1960 Jan", "1960-01-01"),
        ("%Y Q%q", "1960 Q3", "1960-07-01"),
        ("%Y W%V", "1991 W06", "1991-02-04"),
        ("%Y W%V", "1991 W60", "1991 W60"),
        ("%d.%m.%Y", "2019-12-31", "2019-12-31"),
        ("%H:%M", "9:47", "1970-01-01T09:47:00"),
        ("%H:%M", "25:47", "25:47"),
        ("%I:%M:%S %p", "9:47:05 pm", "1970-01-01T21:47:05"),
    ],
)
def test_a_date_is_written_in_iso_8601(form: str, text: str, iso: str) -> None:
    assert date_writer([form])(text) == iso


def test_several_forms_are_tried_in_turn() -> None:
    write = date_writer(["%d.%m.%Y", "%Y/%m/%d"])
    assert [write(text) for text in ("1.2.2003", "2003/02/01", "x")] == ["2003-02-01", "2003-02-01", "x"]


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ("%d.%m.%Q", "%Q is unknown"),
        ("%d.%m", "needs a year"),
        ("%H", "needs a year"),
        ("%d %H:%M", "needs a year"),
        ("%Y", "needs a year"),
        ("%Y.%m.%m", "is there twice"),
    ],
)
def test_a_form_that_tells_no_date_is_refused(form: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        pattern_of(form)


def test_all_usual_forms_are_forms() -> None:
    assert len({pattern_of(form).pattern for form in USUAL_FORMATS}) == len(USUAL_FORMATS)


JOB = """
name = "t"
model = {name = "mlp", hidden = [4]}
dataset = {kind = "csv", path = "t.csv", target = "y", time = "when", dates = ["when"], date_format = "%d.%m.%Y", test_items = 10, validation = 20}
optimizer = {name = "sgd", lr = 0.01, batch_size = 5}
sync = {rule = "average", passes = 1}
workers = [{count = 2}]
stop = {rounds = 2}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table of 90 rows in any order, whose target is the day."""
    monkeypatch.chdir(tmp_path)
    days = list(range(90))
    random.Random(0).shuffle(days)
    dates = np.datetime64("1999-12-01") + np.array(days)
    rows = [f"{'.'.join(reversed(str(date).split('-')))},{day}" for date, day in zip(dates, days, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["when,y", *rows, ""]))
    (tmp_path / "job.toml").write_text(JOB)
    parts = [f"{str(date).replace('-', ',')},{day}" for date, day in zip(dates, days, strict=True)]
    (tmp_path / "parts.csv").write_text("\n".join(["year,month,day,y", *parts, ""]))
    return tmp_path


@pytest.mark.parametrize("parts", [False, True])
def test_the_newest_rows_are_tested_on_and_those_before_them_held_out(place: Path, parts: bool) -> None:
    if parts:
        dataset = JOB.replace('dates = ["when"], date_format = "%d.%m.%Y", ', "").replace('"when"', '["year", "month", "day"]')
        (place / "job.toml").write_text(dataset.replace("t.csv", "parts.csv"))
    said = partrain("run", "job.toml", "--out", "run", "-q")
    assert said.code == 0, said
    scores = json.loads(partrain("evaluate", "run", "--json").out)
    assert (scores["validation"]["items"], scores["test"]["items"]) == (20, 10)
    path, content = open_checkpoint(place / "run")
    network = load_network(load_job(content, path, trusted=True), content)
    data = load_dataset(network.loaded, content)
    mean, std = data.codec["target_mean"][0], data.codec["target_std"][0]
    trained, held_out = split_items(network.loaded, data)
    assert data.test_targets is not None
    days = [
        np.rint(part[:, 0] * std + mean).astype(int).tolist()
        for part in (data.targets[trained], data.targets[held_out], data.test_targets)
    ]
    assert days[0] != sorted(days[0]), "what is trained on is shuffled"
    assert [sorted(part) for part in days] == [list(range(60)), list(range(60, 80)), list(range(80, 90))]
    assert mean == pytest.approx(29.5), "means are those of the rows trained on"
    assert summary(place / "run")["trivial"]["constant"]["loss"] > 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('time = "when"', 'time = "whem"', "no column `whem`, which `time` asks for: did you mean `when`?"),
        ('time = "when"', 'time = "when", stratify = true', "`time` holds the newest rows out, and `stratify` others"),
        ('time = "when"', 'time = "when", test_from = "end"', "`time` holds the newest rows out, and `test_from` others"),
        ('date_format = "%d.%m.%Y"', 'date_format = "%d.%m"', "needs a year"),
        (', date_format = "%d.%m.%Y"', "", "is neither a number nor a date such as 1949-01-31"),
    ],
)
def test_mistakes(place: Path, old: str, new: str, message: str) -> None:
    (place / "job.toml").write_text(JOB.replace(old, new))
    said = partrain("validate", "job.toml")
    assert said.code in (65, 66, 78), said
    assert message in " ".join((said.out + said.err).split()), said


def test_a_row_without_a_time_is_named(place: Path) -> None:
    (place / "t.csv").write_text((place / "t.csv").read_text() + ",4\n")
    (place / "job.toml").write_text(
        JOB.replace('dates = ["when"]', "drop = []").replace('target = "y"', 'target = "y", inputs = ["when"], missing = "mean"')
    )
    said = partrain("validate", "job.toml")
    assert said.code in (65, 66), said
    assert "t.csv:92: column `when`: no value" in said.err + said.out
