"""The folder of a workflow's results, copied or moved without the workflow's file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.runs import JOB, partrain

STUDY = """name = "study"

[[steps]]
name = "first"
job = "job.toml"
set = {"stop.rounds" = 2}

[[steps]]
name = "second"
job = "job.toml"
set = {"model.from" = "{first.checkpoint}", "stop.rounds" = 2}

[[steps]]
name = "beside"
command = ["cp", "job.toml", "copy.txt"]
outputs = ["copy.txt"]
"""
NET = """from pathlib import Path
from torch import nn

def net():
    width = int(Path(__file__).with_name("width.txt").read_text())
    return nn.Sequential(nn.Flatten(), nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 3))
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose steps have run; the folder of the results lies two levels below."""
    folder = tmp_path / "project"
    folder.mkdir()
    own = JOB.replace('name = "mlp"\nhidden = [16]', 'name = "net.py:net"') + '\n[transport]\nkind = "simulated"\n'
    for name, text in {"job.toml": own, "study.toml": STUDY, "net.py": NET, "width.txt": "16"}.items():
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    assert set(states("run", "study.toml").values()) == {"done"}
    return folder


def states(*words: str, code: int = 0) -> dict[str, str]:
    said = partrain(*words, "--json")
    assert said.code == code, said
    return {step["step"]: step["status"] for step in json.loads(said.out)["steps"]}


@pytest.mark.parametrize("place", ["copy", "../elsewhere/at/another/depth"])
def test_a_copied_folder_goes_on_by_the_files_of_its_project(project: Path, place: str) -> None:
    copy = Path(place)
    shutil.copytree("runs/study", copy)
    assert set(states("resume", place).values()) == {"unchanged"}
    assert set(states("run", "study.toml", "--out", place).values()) == {"unchanged"}
    shutil.rmtree("runs")
    second = copy / "second"
    first_round, last_round = sorted(second.glob("checkpoints/*"))
    for file in (last_round, second / "summary.json", second / "checkpoint.h5"):
        file.unlink()
    shutil.copy(first_round, second / "checkpoint.h5")
    record = json.loads((copy / "second/step.json").read_text())
    (copy / "second/step.json").write_text(json.dumps(record | {"status": "stopped"}))
    assert states("resume", place) == {"first": "unchanged", "second": "done", "beside": "unchanged"}
    events = (second / "events.jsonl").read_text()
    assert '"resumed_from":1,' in events, "it went on, and did not begin again"
    Path("width.txt").write_text("8")
    assert states("resume", place) == {"first": "done", "second": "done", "beside": "unchanged"}


def test_without_the_project_the_error_says_what_to_name(project: Path) -> None:
    shutil.move("runs/study", "../moved")
    Path("study.toml").rename("renamed.toml")
    said = partrain("resume", "../moved")
    assert said.code == 66
    assert (
        f"the workflow's file {project / 'study.toml'} is gone: name its new place: partrain run FILE --out ../moved" in said.err
    )
    assert set(states("run", "renamed.toml", "--out", "../moved").values()) == {"unchanged"}


def test_a_cache_serves_a_folder_at_another_depth(project: Path) -> None:
    notes = []
    for out in ("one", "one/two/three"):
        said = partrain("run", "study.toml", "--out", out, "--cache", "../cache", "--json")
        assert said.code == 0, said
        notes.append([step["note"] for step in json.loads(said.out)["steps"]])
    assert notes == [["", "", ""], ["from the cache", "from the cache", ""]]
