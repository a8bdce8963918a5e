"""`partrain doctor`, and the tests for devices as `make test-gpu` runs them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from runs import command

from benchmarks.gpu_day import ROOT
from benchmarks.gpu_day.day import Case, Setting, Wrong, error_line

FOLDER = Path("tests") / "device"
PROCESSES = 4


def doctor(setting: Setting) -> Iterator[Case]:
    def case() -> dict[str, Any]:
        lines = json.loads(setting.partrain("doctor", "--json").stdout)
        listed = [line for line in lines if line["name"] == setting.device]
        if not listed:
            raise Wrong(f"`partrain doctor` does not list {setting.device}")
        return {"lines": lines, "advice": [line["advice"] for line in lines if line["advice"]]}

    yield "partrain doctor", case


def tests(setting: Setting) -> Iterator[Case]:
    """A case for each file of tests, so that a part that is stopped has shown something. Small: the quickest tests."""
    files = [FOLDER / "test_networks.py"] if setting.small else sorted((ROOT / FOLDER).glob("test_*.py"))
    for file in files:
        yield file.name, partial(_tested, setting, file)


def _tested(setting: Setting, file: Path) -> dict[str, Any]:
    """Run the tests of a file, and count their outcomes."""
    result = setting.scratch / f"{file.stem}.xml"
    words = [sys.executable, "-m", "pytest", "-m", "device", ROOT / file, "--rootdir", ROOT, "--junit-xml", result]
    words += ["-k", "mlp"] if setting.small else ["-n", PROCESSES, "--dist", "worksteal"] if find_spec("xdist") else []
    done = command(words, seconds=setting.left(), environment={**os.environ, "TEST_DEVICE": setting.kind})
    if not result.exists():
        raise Wrong(f"pytest ended with code {done.returncode}: {error_line(done.stderr or done.stdout)}")
    outcomes: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}
    for test in ElementTree.parse(result).iter("testcase"):
        kinds = {child.tag for child in test}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        outcomes[outcome].append(test.get("name", "?"))
    if outcomes["failed"]:
        raise Wrong(
            f"{len(outcomes['failed'])} of {sum(map(len, outcomes.values()))} tests failed: {', '.join(outcomes['failed'])}"
        )
    if done.returncode:
        raise Wrong(f"pytest ended with code {done.returncode}: {error_line(done.stdout)}")
    return {"passed": len(outcomes["passed"]), "failed": 0, "skipped": outcomes["skipped"]}
