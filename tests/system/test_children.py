"""Child processes import nothing from the current folder, whatever lies there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.runs import write_job

NAMES = (
    *("torch", "numpy", "signal", "multiprocessing", "h5py", "json", "typing", "partrain", "pickle", "struct", "selectors"),
    *("warnings", "runpy", "subprocess", "pydantic", "polars", "socket", "tomllib", "ctypes", "os", "__future__"),
)
LOADED = "typing", "partrain", "warnings", "__future__", "runpy", "os"
"""Modules that `python -m partrain` itself looks for in the current folder, before it runs partrain."""
SETS = """
import os

def data():
    with open(os.environ["SEEN"], "a") as file:
        print(*{chr(number) for number in range(97, 123)}, "PYTHONSAFEPATH" in os.environ, file=file)
    return [([float(number), 1.0], number % 2) for number in range(200)]
"""
NET = """
import os
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(2, 3))
        with open(os.environ["SEEN"], "a") as file:
            print(*{chr(number) for number in range(97, 123)}, "PYTHONSAFEPATH" in os.environ, file=file)
"""
USER_DATA = 'dataset={name="sets.py:data", validation=50}'
WORKFLOW = """
name = "two-steps"

[[steps]]
name = "train"
job = "job.toml"

[[steps]]
name = "judge"
evaluate = { checkpoint = "{train.checkpoint}" }
"""
FAST = "stop.rounds=2"


class Trap:
    """A folder of hostile modules beside a folder with jobs."""

    def __init__(self, folder: Path) -> None:
        self.jobs, self.here, self.seen = folder / "jobs", folder / "here", folder / "seen"
        self.program = folder / "bin" / "partrain"
        self.program.parent.mkdir()
        self.program.write_text("from partrain.__main__ import main\nmain()\n")
        write_job(self.jobs, FAST)
        self.here.mkdir()
        for name in NAMES:
            (self.here / f"{name}.py").write_text(f"open({str(folder / 'executed')!r}, 'a').write('{name} ')\nraise ImportError")
        self.executed = folder / "executed"

    def run(self, *words: object, code: int = 0) -> None:
        """Run a command in the hostile folder as the installed program does."""
        self._run([sys.executable, str(self.program), *map(str, words)], code)

    def run_module(self, *words: object) -> None:
        for name in LOADED:
            (self.here / f"{name}.py").unlink()
        self._run([sys.executable, "-m", "partrain", *map(str, words)], 0)

    def _run(self, words: list[str], code: int) -> None:
        environment = os.environ | {"SEEN": str(self.seen), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(words, cwd=self.here, capture_output=True, text=True, check=False, env=environment)
        assert not self.executed.exists(), (self.executed.read_text(), done.stderr)
        assert done.returncode == code, done


def write_code(folder: Path) -> None:
    """The data are in a file of their own, which imports no torch: their process starts sooner."""
    (folder / "sets.py").write_text(SETS)
    (folder / "own.py").write_text(NET)


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


def test_a_run_and_its_resume(trap: Trap, tmp_path: Path) -> None:
    trap.run("run", trap.jobs / "job.toml", "--out", tmp_path / "run", "-q")
    trap.run("resume", tmp_path / "run", "--until", "rounds=3", "-q")


def test_python_m_partrain(trap: Trap, tmp_path: Path) -> None:
    trap.run_module("run", trap.jobs / "job.toml", "--out", tmp_path / "run", "-q")


NO_CODE, CODE = "names no code", "user code"
PARTS = {NO_CODE: {"workflow", "plan"}, CODE: {"run", "evaluate"}}
"""Commands by jobs: of those that start processes alike, the cheapest. With user code a command starts the processes that it starts
without, and more. A workflow runs a job without code and judges it; `make soak` runs each command with both."""
EVERY = {"plan", "export", "bench", "workflow", "doctor", "validate", "run", "evaluate", "predict"}


@pytest.mark.slow
@pytest.mark.timeout(600)  # half a dozen commands, each of which imports torch
@pytest.mark.parametrize(
    ("code", "chosen"),
    [
        pytest.param(code, PARTS[code] if part else EVERY, id=code if part else f"{code}, all", marks=marks)
        for part, marks in [(True, ()), (False, pytest.mark.soak)]
        for code in PARTS
    ],
)
def test_every_other_command_that_starts_processes(trap: Trap, tmp_path: Path, code: str, chosen: set[str]) -> None:
    sets = (USER_DATA, 'model={name="own.py:Net"}') if code == CODE else ()
    job, run = write_job(trap.jobs, FAST, *sets), tmp_path / "run"
    write_code(trap.jobs)
    (trap.jobs / "workflow.toml").write_text(WORKFLOW)
    trust = ["--trust-code"] * bool(sets)
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b\n0.5,1.0\n")
    if "validate" in chosen:
        trap.run("validate", "--build", job)
    if "plan" in chosen:
        trap.run("plan", "--probe", job, "--seconds", "0.5")
    if "run" in chosen:
        trap.run("run", job, "--out", run, "-q", "--metrics-port", "0")
    if "workflow" in chosen and not sets:
        trap.run("run", trap.jobs / "workflow.toml", "--out", tmp_path / "flow", "-q")
    if not run.exists():
        (run,) = (path.parent for path in tmp_path.glob("flow/**/summary.json") if (path.parent / "checkpoint.h5").exists())
    if "evaluate" in chosen:
        trap.run("evaluate", run, *trust)
    if "export" in chosen:
        trap.run("export", run, "--format", "torch-export", "-o", tmp_path / "net.pt2", *trust)
    if "predict" in chosen:
        trap.run("predict", run, "--input", rows, *trust)
    if "bench" in chosen:
        trap.run("bench", job, "--workers", "1,2")
    if "doctor" in chosen and not sets:
        trap.run("doctor", "--test")


@pytest.mark.slow
def test_sets_of_user_code_have_one_order_in_all_processes_and_sessions(trap: Trap, tmp_path: Path) -> None:
    job = write_job(trap.jobs, FAST, USER_DATA, 'model={name="own.py:Net"}')
    write_code(trap.jobs)
    for number in range(2):
        trap.run("run", job, "--out", tmp_path / f"run{number}", "-q")
    orders = trap.seen.read_text().splitlines()
    assert len(orders) >= 8  # data, dry run and two workers, twice
    assert len(set(orders)) == 1
    assert orders[0].endswith("False"), "programs that user code starts have Python's usual path"
