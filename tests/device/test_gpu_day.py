"""`make gpu-day` in its small form on the emulated device: every part runs, and says what holds there. No time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_day.day import Case, Setting, Skipped, Wrong, perform, write

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("emulated")]
ROOT = Path(__file__).parents[2]
TABLE = "the table network of `partrain init`"
PERCEPTRON = "MLP 784-128-10, batch 64"
MNIST = ["1 device alone", "1 device and 1 CPU workers"]
PARTS: dict[str, tuple[list[str], list[str]]] = {
    "doctor": (["partrain doctor"], []),
    "tests": (["test_networks.py"], []),
    "mnist-mixed": (MNIST, ["CUDA graphs"]),
    "mnist-cnn": (MNIST, ["CUDA graphs"]),
    "rules": (["average", "topk", "async", "hogwild"], []),
    "bits": (["mlp with dropout, alone", "mlp with dropout, beside a CPU worker"], []),
    "faults": (
        [
            "kill -9 of the device's worker, replayed",
            "kill -9 of the device's worker, stopped and resumed",
            "out of memory on the device",
            "begun on the device and resumed on a CPU, beside the reverse",
        ],
        [],
    ),
    "precision": ([PERCEPTRON], ["torch.compile"]),
    "copies": ([PERCEPTRON], []),
    "speeds": ([TABLE, "ResNet-20 at 32 x 32"], []),
    "one-more": ([f"{TABLE}, 1 and 2 CPU workers"], []),
    "one-more-of-eight": ([], [f"{TABLE}, 7 and 8 CPU workers"]),
    "several": (["gloo, CPU and device on two machines"], ["nccl, a GPU for each of two machines"]),
}
"""Names of the cases that run, and of those that are skipped on two cores."""
OFTEN = ("doctor", "precision")
"""Parts of the slow suite. Each of the others takes a minute: `make soak`. What they show on the emulated device, other tests here hold."""


def gpu_day(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.gpu_day", "--device", "emulated", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.timeout(400)  # up to ten runs, each with torch's import
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in OFTEN else pytest.mark.soak) for name in PARTS])
def test_every_part(tmp_path: Path, name: str) -> None:
    done = gpu_day("--small", "--out", tmp_path, "--only", name)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / f"{name}.json").read_text())
    ran, skipped = PARTS[name]
    assert (result["failed"], result["not run"], result["small"], result["device"]) == ({}, [], True, "emulated:0")
    if name != "one-more-of-eight":  # it needs nine cores
        assert (list(result["cases"]), list(result["skipped"])) == (ran, skipped)
    check = CHECKS.get(name)
    for case in result["cases"].values():
        assert check is None or check(case), case


CHECKS = {
    "doctor": lambda case: any(line["name"] == "emulated:0" for line in case["lines"]),
    "tests": lambda case: case["passed"] > 0,
    "mnist-mixed": lambda case: all(worker["items/s of computing"] > 0 for worker in case["workers"]),
    "mnist-cnn": lambda case: all(worker["items/s of computing"] > 0 for worker in case["workers"]),
    "rules": lambda case: "hogwild" in case.get("refused", "") or (case["same bits twice"] and case["largest difference"] == 0),
    "bits": lambda case: case["same bits"] and case["arrays"] > 0,
    "faults": lambda case: case.get("same bits") or case.get("resumed to the same bits") or case["largest difference"] == 0,
    "copies": lambda case: case["items on"] == ["emulated:0", "cpu"] and case["is pinned"],
    "several": lambda case: case["same bits as one machine"],
}
"""Facts that hold for each case of a part on the emulated device."""


@pytest.mark.slow
def test_the_parts_are_those_of_the_test_and_a_result_stays(tmp_path: Path) -> None:
    """A part whose file is there does not run again, and its failure still counts. With no time every case is named."""
    assert gpu_day("--list").stdout.split() == list(PARTS)
    kept = {"cases": {}, "failed": {"a case": "ValueError: no"}, "skipped": {}, "not run": [], "seconds": 1.0}
    write(tmp_path / "doctor.json", kept)
    done = gpu_day("--small", "--minutes", 0, "--out", tmp_path, "--only", "doctor", "faults")
    assert done.returncode == 1, done.stderr
    assert json.loads((tmp_path / "doctor.json").read_text()) == kept
    assert json.loads((tmp_path / "faults.json").read_text())["not run"] == PARTS["faults"][0]
    assert gpu_day("--again", "--minutes", 0, "--out", tmp_path, "--only", "doctor").returncode == 0
    assert gpu_day("--device", "emulated:99").returncode == 2


def test_a_failed_case_is_recorded_and_the_part_goes_on(tmp_path: Path) -> None:
    ended: list[bool] = []

    def fail(error: Exception) -> dict[str, Any]:
        raise error

    def part(setting: Setting) -> Iterator[Case]:
        yield "fails", lambda: fail(Wrong("\nbits differ\nhere"))
        yield "cannot be", lambda: fail(Skipped("no cores"))
        yield "takes long", lambda: fail(subprocess.TimeoutExpired("partrain", 1))
        yield "fine", lambda: {"number": 3}
        ended.append(True)

    result = perform(part, Setting("emulated:0", True, tmp_path, time.monotonic() + 600), lambda line: None)
    assert list(result["failed"]) == ["fails"]
    assert result["failed"]["fails"].startswith("Wrong: bits differ (tests/device/test_gpu_day.py:")
    assert result["skipped"] == {"cannot be": "no cores"}
    assert result["not run"] == ["takes long"]
    assert result["cases"]["fine"]["number"] == 3
    assert ended
    write(tmp_path / "folder" / "part.json", result)
    assert [file.name for file in (tmp_path / "folder").iterdir()] == ["part.json"]
    assert json.loads((tmp_path / "folder" / "part.json").read_text()) == result
