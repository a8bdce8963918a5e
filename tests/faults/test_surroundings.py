"""Commands in surroundings where no process can be started: one line, and never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.runs import write_job

from partrain.errors import InputMissing, InputOutputFailed
from partrain.system.surroundings import surroundings_failure

COMMAND = f"exec {sys.executable} -m partrain"


def shell(script: str, **environment: str) -> tuple[int, list[str]]:
    """Exit code and lines on stderr of a script."""
    done = subprocess.run(
        ["sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path.cwd()), **environment},
    )
    return done.returncode, done.stderr.splitlines()


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return write_job(tmp_path)


def test_the_working_directory_is_gone(job: Path, tmp_path: Path) -> None:
    code, lines = shell(
        f"mkdir {tmp_path}/gone && cd {tmp_path}/gone && rmdir {tmp_path}/gone && {COMMAND} run {job} -q --out {tmp_path}/run"
    )
    assert (code, len(lines)) == (66, 1), lines
    assert lines[0].startswith("partrain: error[no-input]: the working directory is gone")


def test_a_long_path_for_temporary_files(job: Path, tmp_path: Path) -> None:
    long = tmp_path / ("a" * 130)
    long.mkdir()
    code, lines = shell(f"{COMMAND} run {job} -q --out {tmp_path}/run", TMPDIR=str(long))
    assert (code, len(lines)) == (74, 1), lines
    assert "its path is too long for the sockets of processes" in lines[0]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [8, 16, 20, 22, 24])
def test_few_open_files(job: Path, tmp_path: Path, limit: int) -> None:
    code, lines = shell(f"ulimit -n {limit}; {COMMAND} run {job} -q --out {tmp_path}/run --set workers.0.count=6")
    errors = [line for line in lines if line.startswith("partrain: error[")]
    assert (code, len(errors)) == (74, 1), lines
    assert not any("Traceback" in line for line in lines), lines
    assert "error[io]" in errors[0]
    assert "too many open files" in errors[0]
    assert "ulimit -n" in errors[0]
    assert "was killed" not in errors[0]


def test_proc_is_not_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    error = FileNotFoundError(2, "No such file or directory")
    assert surroundings_failure(error) is None
    monkeypatch.setattr(Path, "exists", lambda path: str(path) != "/proc/self/stat")
    assert isinstance(found := surroundings_failure(error), InputMissing)
    assert "/proc is not mounted" in found.message
    assert isinstance(surroundings_failure(OSError(24, "Too many open files")), InputOutputFailed)
