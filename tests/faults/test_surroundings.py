"""Commands in surroundings where no process can be started: one line, and never a traceback."""

from __future__ import annotations

import os
import resource
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
        timeout=240,
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
@pytest.mark.parametrize("limit", [8, 20, 24])
def test_few_open_files(job: Path, tmp_path: Path, limit: int) -> None:
    code, lines = shell(f"ulimit -n {limit}; {COMMAND} run {job} -q --out {tmp_path}/run --set workers.0.count=6")
    errors = [line for line in lines if line.startswith("partrain: error[")]
    assert (code, len(errors)) == (74, 1), lines
    assert not any("Traceback" in line for line in lines), lines
    assert "error[io]" in errors[0]
    assert "too many open files" in errors[0]
    assert "ulimit -n" in errors[0]
    assert "was killed" not in errors[0]


NO_FORKS = """
import os, subprocess, sys, _posixsubprocess

def refuse(*words, **options):
    raise BlockingIOError(11, os.strerror(11))

words = " ".join(sys.orig_argv)
kind = "forkserver" if "multiprocessing.forkserver" in words else "command" if " partrain run " in words else ""
if os.environ["REFUSED"] == kind + " forks":
    os.fork = refuse
if os.environ["REFUSED"] == kind + " programs":
    _posixsubprocess.fork_exec = refuse
if os.environ["REFUSED"] == kind + " Popen":
    subprocess._fork_exec = refuse
if os.environ["REFUSED"] == kind + " threads":
    import threading

    def refuse_thread(*words, **options):
        raise RuntimeError("can't start new thread")

    threading._start_new_thread = refuse_thread
"""


@pytest.mark.parametrize("refused", ["command programs", "command forks", "command threads", "forkserver forks"])
def test_a_limit_of_processes(tmp_path: Path, refused: str) -> None:
    """The forkserver, the checkpoint writer, a thread that watches the forkserver, and a worker. The limit does not count for root."""
    (tmp_path / "sitecustomize.py").write_text(NO_FORKS)
    paths = f"{tmp_path}{os.pathsep}{Path.cwd()}"
    script = f"{COMMAND} run {write_job(tmp_path)} -q --out {tmp_path}/run"
    code, lines = shell(script, PYTHONPATH=paths, REFUSED=refused)
    assert (code, len(lines)) == (74, 1), lines
    assert lines[0].startswith("partrain: error[io]: no more processes can be started: raise the limit of ")
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    assert ("pids.max" if most == resource.RLIM_INFINITY else f"{most:,} (ulimit -u)") in lines[0]


def test_a_limit_of_processes_and_a_data_set(tmp_path: Path) -> None:
    """The process of a user's data set cannot be started; the forkserver runs."""
    (tmp_path / "sitecustomize.py").write_text(NO_FORKS)
    (tmp_path / "own.py").write_text("def data():\n    return [([1.0, 2.0], 0), ([2.0, 1.0], 1)] * 50\n")
    job = write_job(tmp_path, 'dataset={name="own.py:data", validation=10}')
    paths = f"{tmp_path}{os.pathsep}{Path.cwd()}"
    code, lines = shell(f"{COMMAND} run {job} -q --out {tmp_path}/run", PYTHONPATH=paths, REFUSED="command Popen")
    assert (code, len(lines)) == (74, 1), lines
    assert "no more processes can be started" in lines[0]


@pytest.mark.slow
@pytest.mark.timeout(300)  # each replay imports torch until the limit stops it
@pytest.mark.parametrize("kilobytes", [300_000, 600_000])
def test_a_limit_of_memory(job: Path, tmp_path: Path, kilobytes: int) -> None:
    """It is named, whichever process lacks memory."""
    code, lines = shell(f"ulimit -v {kilobytes}; {COMMAND} run {job} -q --out {tmp_path}/run")
    assert code in (69, 74), lines
    assert lines[-1].startswith("partrain: error["), lines
    assert "out of memory" in lines[-1]
    assert f"{kilobytes * 1024:,} bytes (ulimit -v)" in lines[-1]


def test_proc_is_not_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    error = FileNotFoundError(2, "No such file or directory")
    assert surroundings_failure(error) is None
    monkeypatch.setattr(Path, "exists", lambda path: str(path) != "/proc/self/stat")
    assert isinstance(found := surroundings_failure(error), InputMissing)
    assert "/proc is not mounted" in found.message
    assert isinstance(surroundings_failure(OSError(24, "Too many open files")), InputOutputFailed)
