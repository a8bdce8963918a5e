"""The suites of tests: by measured cost, within a budget; a test that hangs is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


CONFTEST = """
from support import children, costs

costs.BUDGET_S, children.PATIENCE_S = 0.05, 0.2


def pytest_configure(config):
    config.pluginmanager.register(children.Children(), "children")
"""
LEAKS = """
import subprocess
import time


def test_that_leaks():
    test_that_leaks.child = subprocess.Popen(["sleep", "1000"])


def test_that_leaves_a_file():
    open("/dev/shm/left", "w").close()


def test_that_computes():
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
"""


CASES = """
import pytest


@pytest.mark.parametrize("case", ["first", "middling", "cheap"])
def test_cases(case):
    pass


@pytest.mark.representative
@pytest.mark.parametrize("case", ["first", "second"])
def test_of_which_one_is_enough(case):
    pass


@pytest.mark.parametrize("case", ["first", pytest.param("marked", marks=pytest.mark.representative)])
def test_with_a_marked_case(case):
    pass


def test_dear():
    pass


def test_new():
    pass
"""


def session(folder: Path, text: str, processes: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a file of tests by a pytest of its own, with the plugins of these suites."""
    (folder / "test_it.py").write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(Path(__file__).parent), "PARTRAIN_TEST_SETTINGS": str(folder), "COLUMNS": "200"}
    argv = [sys.executable, "-m", "pytest", "test_it.py", "-n", str(processes), "-q", "-p", "no:cacheprovider", "-rfE", *words]
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("processes", "ci"), [(0, ""), (1, ""), (1, "1")])
def test_a_test_that_hangs_is_named_at_the_end(tmp_path: Path, processes: int, ci: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the summary of pytest a failure has one line, but all its lines where the environment says that this is CI."""
    monkeypatch.delenv("BUILD_NUMBER", raising=False)
    monkeypatch.setenv("CI", ci)
    done = session(tmp_path, HANGS, processes, "--timeout", "0.5", "-p", "support.time_limit")
    assert done.returncode == 1
    assert "so far" in done.stdout
    assert "time.sleep(60)" in done.stdout, "its stack"
    last = done.stdout.splitlines()[-2:]
    assert any("test_it.py::test_that_hangs was ended by its time limit of 0.5 s" in line for line in last), done.stdout


@pytest.mark.parametrize("processes", [0, 1])
def test_a_suite_over_its_budget_fails_and_a_leak_is_of_one_test(tmp_path: Path, processes: int, request: Any) -> None:
    """Where this user may not mount a /dev/shm, nothing is found in it."""
    private = request.config.pluginmanager.get_plugin("children").private
    (tmp_path / "conftest.py").write_text(CONFTEST)
    done = session(tmp_path, LEAKS, processes, "-p", "support.costs", "--hold-budget")
    if not private:
        Path("/dev/shm/left").unlink()
    assert done.returncode == 1
    assert f"3 passed, {'2 errors' if private else '1 error'}" in done.stdout, done.stdout
    assert "processes outlived the test: {" in done.stdout
    assert ("files were left in shared memory: ['/dev/shm/left']" in done.stdout) == private
    new = done.stdout.split("The dearest that are new:\n")[1]
    assert new.splitlines()[0].endswith("test_it.py::test_that_computes")


def test_dear_tests_are_slow_but_for_representatives(tmp_path: Path) -> None:
    middling, dear = (costs.DEAR_CASE_S + costs.DEAR_S) / 2, costs.DEAR_S
    records = {
        "test_cases[first]": middling, "test_cases[middling]": middling, "test_cases[cheap]": 0.0, "test_dear": dear,
        "test_of_which_one_is_enough[first]": dear, "test_of_which_one_is_enough[second]": dear,
        "test_with_a_marked_case[first]": dear, "test_with_a_marked_case[marked]": dear,
    }  # fmt: skip
    (tmp_path / "costs.json").write_text(json.dumps({"test_it.py": records}))
    (tmp_path / "conftest.py").write_text(
        f"from pathlib import Path\nfrom support import costs\ncosts.FILE = Path({str(tmp_path)!r}, 'costs.json')\n"
    )
    done = session(tmp_path, CASES, 0, "-p", "support.costs", "--collect-only", "-m", "not slow")
    assert [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line] == [
        "test_cases[first]", "test_cases[cheap]", "test_of_which_one_is_enough[first]", "test_with_a_marked_case[marked]", "test_new"
    ]  # fmt: skip


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
    assert sum(process_tree(os.getpid()).values()) - before > 0.189
