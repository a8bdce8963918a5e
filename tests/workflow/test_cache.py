"""Results that people share: a step whose settings and inputs were trained before, elsewhere, is copied."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.runs import JOB, partrain

STUDY = """
name = "study"

[[steps]]
name = "train"
job = "job.toml"
set = {stop.rounds = 2}

[[steps]]
name = "weights"
export = {checkpoint = "{train.checkpoint}", format = "safetensors", output = "net.safetensors"}

[[steps]]
name = "search"
job = "job.toml"
set = {stop.rounds = 2}
sweep = {"optimizer.lr" = [0.07, 0.1]}

[[steps]]
name = "beside"
command = ["sh", "-c", "echo x > beside.txt"]
outputs = ["beside.txt"]
"""


def project(folder: Path) -> Path:
    folder.mkdir()
    (folder / "job.toml").write_text(JOB)
    (folder / "study.toml").write_text(STUDY)
    return folder


def notes(folder: Path, cache: object, monkeypatch: pytest.MonkeyPatch, code: int = 0) -> dict[str, str]:
    monkeypatch.chdir(folder)
    said = partrain("run", "study.toml", "--json", "--cache", cache)
    assert said.code == code, said
    return {step["step"]: step["note"] for step in json.loads(said.out)["steps"]}


def test_a_colleague_trains_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another folder; a step that writes beside the workflow file runs."""
    mine, theirs, cache = project(tmp_path / "mine"), project(tmp_path / "theirs"), tmp_path / "cache"
    assert set(notes(mine, cache, monkeypatch).values()) == {""}
    fetched = notes(theirs, cache, monkeypatch)
    assert [name for name, note in fetched.items() if note == "from the cache"] == [
        "train",
        "weights",
        "search/lr=0.07",
        "search/lr=0.1",
    ]
    for name in ("train/checkpoint.h5", "weights/net.safetensors", "search/lr=0.1/best.h5"):
        assert (mine / "runs/study" / name).read_bytes() == (theirs / "runs/study" / name).read_bytes()
    assert notes(theirs, cache, monkeypatch) == dict.fromkeys(fetched, "")
    (theirs / "study.toml").write_text(STUDY.replace("set = {stop.rounds = 2}\n\n", "set = {stop.rounds = 3}\n\n"))
    assert "from the cache" not in (notes(theirs, cache, monkeypatch)["train"], notes(theirs, cache, monkeypatch)["weights"])


def test_a_damaged_result_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, cache = project(tmp_path / "mine"), tmp_path / "cache"
    notes(mine, cache, monkeypatch)
    for path in cache.glob("*/net.safetensors"):
        path.write_bytes(b"other")
    shutil.rmtree(mine / "runs")
    fetched = notes(mine, cache, monkeypatch)
    assert (fetched["train"], fetched["weights"]) == ("from the cache", "")


@pytest.mark.parametrize(("address", "message"), [("nothing://x", "nothing"), ("file/in/the/way", "way")])
def test_a_store_that_cannot_be_used(address: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown address ends the command; a store that fails later costs its copies alone."""
    folder = project(tmp_path / "mine")
    (folder / "file").write_text("")
    if "://" in address:
        monkeypatch.chdir(folder)
        said = partrain("run", "study.toml", "--cache", address)
        assert (said.code, message in said.err) == (66, True), said
    else:
        assert message in notes(folder, address, monkeypatch)["train"]


def write(folder: Path, steps: str) -> None:
    (folder / "study.toml").write_text(f'name = "study"\n{steps}')


TARGET = """
[[steps]]
name = "alone"
job = "job.toml"
set = {stop.rounds = 2, stop.accuracy = 0.999}
"""
TRIALS = """
[[steps]]
name = "search"
job = "job.toml"
set = {stop.rounds = 2, stop.accuracy = 0.999}
sweep = {"optimizer.lr" = [0.05]}
"""


def test_a_result_of_a_step_of_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are the step's own: one that is deleted is made again."""
    mine, cache = project(tmp_path / "mine"), tmp_path / "cache"
    write(mine, TARGET.replace("0.999", "0.001"))
    notes(mine, cache, monkeypatch)
    write(mine, TARGET.replace("0.999", "0.001").replace("alone", "other"))
    shutil.rmtree(mine / "runs")
    assert notes(mine, cache, monkeypatch) == {"other": "from the cache"}
    assert notes(mine, cache, monkeypatch) == {"other": ""}
    (mine / "runs/study/other/checkpoint.h5").unlink()
    said = partrain("run", "study.toml", "--dry-run")
    assert "runs/study/other/checkpoint.h5 is missing" in said.out


def test_a_trial_may_miss_its_target_and_a_step_may_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, cache = project(tmp_path / "mine"), tmp_path / "cache"
    write(mine, TRIALS)
    notes(mine, cache, monkeypatch)
    write(mine, TRIALS + TARGET)
    shutil.rmtree(mine / "runs")
    said = notes(mine, cache, monkeypatch, code=1)
    assert said["search/lr=0.05"] == "from the cache"
    assert "did not reach its target" in said["alone"]
