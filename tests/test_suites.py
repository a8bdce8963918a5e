"""The suites of tests: by measured cost, within a budget; a test that hangs is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import costs
from support.children import process_tree

HANGS = """
import time


def test_before():
    pass


def test_that_hangs():
    print("so far")
    time.sleep(60)
"""


@pytest.mark.parametrize("processes", [0, 1])
def test_a_test_that_hangs_is_named_at_the_end(tmp_path: Path, processes: int) -> None:
    (tmp_path / "test_it.py").write_text(HANGS)
    words = ["--timeout", "0.5", "-n", str(processes), "-q", "-p", "no:cacheprovider", "-p", "support.time_limit", "-rfE"]
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parent),
        "PARTRAIN_TEST_SETTINGS": str(tmp_path),
        "COLUMNS": "200",
    }
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "test_it.py", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "so far" in done.stdout + done.stderr
    assert "time.sleep(60)" in done.stdout + done.stderr, "its stack"
    last = done.stdout.splitlines()[-2:]
    assert any("test_it.py::test_that_hangs was ended by its time limit of 0.5 s" in line for line in last), done.stdout


def test_recorded_costs_count_before_measured_ones() -> None:
    total, dearest = costs.over_budget({"a": 9.0, "b": 1.0, "c": 2.0}, {"a": 0.5, "z": 99.0})
    assert total == 3.5
    assert [line.split()[-1] for line in dearest] == ["c", "b"], "a has a record"
    assert [line.split()[-1] for line in costs.over_budget({"a": 9.0}, {"a": 0.5})[1]] == ["a"]


def test_costs_are_read_as_they_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = {"tests/b.py::test_x[a::b]": 1.25, "tests/a.py::test_y": 0.0, "tests/a.py::run": 3.5}
    monkeypatch.setattr(costs, "FILE", tmp_path / "costs.json")
    costs.write(written)
    assert costs.recorded.__wrapped__() == written


def test_a_process_pays_for_its_dead_children() -> None:
    before = sum(process_tree(os.getpid()).values())
    code = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert sum(process_tree(os.getpid()).values()) - before >= 0.19
