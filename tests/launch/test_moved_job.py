"""`partrain resume CKPT --job FILE`: the same job, whose data have moved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.runs import SIMULATED, partrain, resume, round_file, train

from partrain import checkpoint
from partrain.checkpoint.manifest import manifest_of

CSV = "dataset={kind='csv', path='table.csv', target='kind', validation=30}"


def table(path: Path, first: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = (f"{(number + first) % 7},{number % 5},{number % 3}\n" for number in range(230))
    path.write_text("a,b,kind\n" + "".join(rows))
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two rounds whose data have moved to `elsewhere`, where a job names them."""
    table(tmp_path / "table.csv")
    run = train(tmp_path, SIMULATED, CSV, "stop.rounds=2", "optimizer.lr=0.1")
    place = tmp_path / "elsewhere"
    (place / "data").mkdir(parents=True)
    (tmp_path / "table.csv").rename(place / "data" / "items.csv")
    (place / "job.toml").write_text((run / "job.toml").read_text().replace("table.csv", "data/items.csv"))
    return run


def test_it_goes_on_to_the_bit(run: Path, tmp_path: Path) -> None:
    table(tmp_path / "other" / "table.csv")
    whole = train(tmp_path / "other", SIMULATED, CSV, "stop.rounds=4", "optimizer.lr=0.1")
    assert "partrain resume --job FILE" in resume(run, "--until", "rounds=4", code=66).err
    resume(run, "--job", tmp_path / "elsewhere" / "job.toml", "--until", "rounds=4")
    found, wanted = (checkpoint.read(round_file(each, 4)) for each in (run, whole))
    assert found.arrays.keys() == wanted.arrays.keys()
    assert all(np.array_equal(found.arrays[name], wanted.arrays[name], equal_nan=True) for name in found.arrays)
    assert manifest_of(found).folder == str(tmp_path / "elsewhere"), "the next resume finds the data by itself"
    assert manifest_of(found).run == manifest_of(checkpoint.read(round_file(run, 2))).run
    resume(run, "--until", "rounds=5")
    assert partrain("evaluate", run).code == 0


def test_a_limit_that_until_moved_before(run: Path, tmp_path: Path) -> None:
    """The file has the limit of the beginning."""
    job = tmp_path / "elsewhere" / "job.toml"
    resume(run, "--job", job, "--until", "rounds=3")
    (tmp_path / "elsewhere" / "data").rename(tmp_path / "data")
    job.write_text(job.read_text().replace("data/items.csv", "../data/items.csv"))
    said = resume(run, "--job", job, "--until", "rounds=4")
    assert f"[stop] of {job} has no effect: the checkpoint's holds, and --until changes it" in said.err
    assert checkpoint.read(run / "checkpoint.h5").round == 4
    assert "nothing to do" in partrain("resume", run, "--job", job).out


@pytest.mark.parametrize(("before", "now", "says"), [
    ("lr = 0.1", "lr = 0.2", "`optimizer.lr` is 0.2, in the checkpoint 0.1: only paths may differ"),
    ("momentum = 0.9\n", "", "`optimizer.momentum` is missing, in the checkpoint 0.9"),
    ('target = "kind"', 'target = "a"', '`dataset.target` is "a", in the checkpoint "kind"'),
    ("count = 2", "count = 3", "`workers.0.count` is 3"),
])  # fmt: skip
def test_nothing_else_may_differ(run: Path, tmp_path: Path, before: str, now: str, says: str) -> None:
    job = tmp_path / "elsewhere" / "job.toml"
    text = job.read_text()
    assert before in text
    job.write_text(text.replace(before, now))
    kept = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    said = resume(run, "--job", job, "--until", "rounds=4", code=78)
    assert says in said.err
    assert said.err.count("\n") == 1
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == kept


def test_other_data_are_refused(run: Path, tmp_path: Path) -> None:
    table(tmp_path / "elsewhere" / "data" / "items.csv", first=1)
    said = resume(run, "--job", tmp_path / "elsewhere" / "job.toml", "--until", "rounds=4", code=78)
    assert "not the data set that the checkpoint was trained on" in said.err
    assert said.err.count("\n") == 1


def test_evaluate_says_how_to_name_moved_data(run: Path, tmp_path: Path) -> None:
    said = partrain("evaluate", run)
    assert said.code == 66
    assert "--job FILE" in said.err
    assert partrain("evaluate", run, "--job", tmp_path / "elsewhere" / "job.toml").code == 0
