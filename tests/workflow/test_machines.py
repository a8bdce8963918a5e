"""A step whose job runs on several machines: its launcher gives them, else the step is refused or fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.machines import MANY
from support.runs import partrain

LAUNCHER = '''"""Start a command of partrain on two machines, as torchrun does, here on one."""

import os
import subprocess
import sys
import tempfile

from torch.distributed import TCPStore

store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
given = {"TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "1", "WORLD_SIZE": "2",
         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "GLOO_SOCKET_IFNAME": "lo"}
words = [sys.executable, "-m", "partrain", *sys.argv[1:]]
machines = []
for rank in "01":
    logs = tempfile.mkdtemp(dir=".")
    own = {"RANK": rank, "TORCHELASTIC_ERROR_FILE": logs + "/attempt_0/0/error.json"}
    machines.append(subprocess.Popen(words, env=os.environ | given | own))
sys.exit(max(machine.wait() for machine in machines))
'''


def study(place: Path, launcher: list[str], machines: int = 2) -> str:
    (place / "launcher.py").write_text(LAUNCHER)
    (place / "job.toml").write_text(MANY)
    step = f'name = "study"\n[[steps]]\nname = "train"\njob = "job.toml"\nmachines = {machines}\n'
    (place / "study.toml").write_text(step + (f"launcher = {json.dumps(launcher)}\n" if launcher else ""))
    return str(place / "study.toml")


@pytest.mark.slow
def test_a_launcher_runs_the_job_on_two_machines(tmp_path: Path) -> None:
    said = partrain("run", study(tmp_path, [sys.executable, "launcher.py"]), "--out", tmp_path / "out", "-q")
    assert said.code == 0, (tmp_path / "out/train/log.txt").read_text()
    (start,) = [json.loads(line) for line in (tmp_path / "out/train/events.jsonl").read_text().splitlines() if '"start"' in line]
    assert len(start["workers"]) == 4


@pytest.mark.slow
def test_a_launcher_that_starts_one_machine_is_found_out(tmp_path: Path) -> None:
    said = partrain("run", study(tmp_path, [sys.executable, "-m", "partrain"]), "--out", tmp_path / "out", "-q")
    assert said.code == 1, said
    assert "train: it ran on 1 machine, not on 2" in said.err


@pytest.mark.parametrize("machines", [1, 2])
def test_without_a_launcher_there_is_one_machine(machines: int, tmp_path: Path) -> None:
    said = partrain("run", study(tmp_path, [], machines), "--out", tmp_path / "out", "--dry-run")
    assert said.code == (78 if machines > 1 else 0), said
    assert ("study.toml:5:1: one job on 2 machines is started by a launcher on each of them" in said.err) == (machines > 1)
