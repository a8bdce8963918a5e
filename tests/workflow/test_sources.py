"""Code that a job does not name by file: a step runs again after a change of a module, a file that the network reads, or a package."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from support.runs import JOB, SIMULATED, Command, events, partrain, write_job

STUDY = 'name = "study"\n[[steps]]\nname = "train"\njob = "job.toml"\n'
NET = """
import json, sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import layers


class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(2, json.loads((HERE / "net.json").read_text())), layers.act(), torch.nn.Linear(8, 3))
"""
FILES = {"net.py": NET, "layers.py": "from torch.nn import ReLU as act\n", "net.json": "8"}


def project(folder: Path) -> Path:
    write_job(folder, 'model={name="net.py:Net"}', "stop.rounds=1", SIMULATED, text=JOB)
    (folder / "study.toml").write_text(STUDY)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(folder)
    (row,) = json.loads(partrain("run", "study.toml", "-n", "--json").out)["steps"]
    return str(row["reason"])


def note(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(folder)
    said = partrain("run", "study.toml", "--json", "--cache", cache)
    assert said.code == 0, said
    return str(json.loads(said.out)["steps"][0]["note"])


def test_a_step_runs_again_after_a_change_of_what_its_network_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, cache = project(tmp_path / "mine"), tmp_path / "cache"
    assert note(folder, cache, monkeypatch) == ""
    assert events(folder / "runs/study/train", "start")[0]["code"].keys() == FILES.keys()
    assert reason(folder, monkeypatch) == "unchanged"
    for name in FILES:
        before = (folder / name).read_text()
        (folder / name).write_text(f"{before}\n")
        assert reason(folder, monkeypatch) == f"{name} changed; the finished run stays as train.1"
        (folder / name).write_text(before)
        os.utime(folder / name, (time.time() - 9, time.time() - 9))
        assert reason(folder, monkeypatch) == "unchanged", "the same bytes at another time"
    (folder / "net.json").unlink()
    assert reason(folder, monkeypatch) == "net.json changed; the finished run stays as train.1"


def test_a_colleague_with_other_modules_gets_nothing_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs, cache = project(tmp_path / "mine"), project(tmp_path / "theirs"), tmp_path / "cache"
    (theirs / "layers.py").write_text("from torch.nn import Tanh as act\n")
    assert note(mine, cache, monkeypatch) == ""
    assert note(theirs, cache, monkeypatch) == ""
    shutil.rmtree(mine / "runs")
    assert note(mine, cache, monkeypatch) == "", "theirs is the newest result of these settings"
    shutil.rmtree(mine / "runs")
    assert note(mine, cache, monkeypatch) == "from the cache"
    networks = [(folder / "runs/study/train/checkpoint.h5").read_bytes() for folder in (mine, theirs)]
    assert networks[0] != networks[1]


def test_a_package_counts_as_a_whole(tmp_path: Path) -> None:
    """Also the modules of it that were not imported: they may be, later."""
    package = tmp_path / "site" / "nets"
    (package / "deep").mkdir(parents=True)
    names = {
        "nets/__init__.py": "",
        "nets/net.py": NET.replace("import layers", "import nets.layers as layers"),
        "nets/layers.py": FILES["layers.py"],
        "nets/deep/other.py": "",
    }
    for name, text in names.items():
        (tmp_path / "site" / name).write_text(text)
    (package / "net.json").write_text("8")
    job = write_job(tmp_path / "job", 'model={name="nets.net:Net"}', "stop.rounds=1", SIMULATED)
    where = {"PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    with Command(("run", job, "--out", tmp_path / "run", "-q"), tmp_path / "said", where) as command:
        assert command.wait().code == 0
    assert events(tmp_path / "run", "start")[0]["code"].keys() == {*names, "nets/net.json"}
