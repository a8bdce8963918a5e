"""Every test leaves the machine as it found it."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

import pytest
from hypothesis import settings
from support import warm
from support.runs import descendants, parent  # not torch, which reads the next line when it is imported

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait for work busily would take the cores from other tests

if "PARTRAIN_TEST_SETTINGS" not in os.environ:  # else this is a worker of pytest-xdist: all share one key
    os.environ["PARTRAIN_TEST_SETTINGS"] = tempfile.mkdtemp(prefix="partrain-settings-")
    atexit.register(shutil.rmtree, os.environ["PARTRAIN_TEST_SETTINGS"])
os.environ["XDG_CONFIG_HOME"] = os.environ["PARTRAIN_TEST_SETTINGS"]

settings.register_profile("gate", deadline=None, derandomize=True)  # no deadline: the machine may be busy with something else
settings.register_profile("fuzz", deadline=None, max_examples=2000, print_blob=True)  # new cases at each run (make fuzz)
settings.load_profile("gate")

# A shell starts what runs in its background with the interrupt ignored, and children inherit that: tests send interrupts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    """No process and no shared-memory file outlives a test; what does is named, and ended."""
    files, processes = shared_files(), descendants(os.getpid())
    yield
    for _ in range(200):  # a killed process takes a moment to be gone
        leaked = descendants(os.getpid()) - processes - helpers()
        if not leaked:
            break
        time.sleep(0.05)
    names = {pid: command(pid) for pid in leaked}
    for pid in leaked:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not names, f"processes outlived the test: {names}"
    for _ in range(40):  # another program's semaphore has a name for a moment
        left = shared_files() - files
        left -= held_elsewhere() if left else left
        if not left:
            break
        time.sleep(0.05)
    assert not left, "files were left in /dev/shm"


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be another user than the one who trained the tests' runs: no key signs a run, none knows a signature."""
    monkeypatch.setenv("XDG_CONFIG_HOME", os.devnull)


def helpers() -> set[int | None]:
    """multiprocessing's own processes, and the one that forks commands: they serve all tests."""
    return {forkserver._forkserver._forkserver_pid, resource_tracker._resource_tracker._pid} | warm.running()


def command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    return "?"


def held_elsewhere() -> set[str]:
    """Files in /dev/shm that other tests' or programs' processes have mapped. An orphan younger than this process may be ours."""
    ours, found = descendants(os.getpid()) | {os.getpid()}, set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) not in ours:
            with suppress(OSError):
                if parent(int(entry.name)) == 1 and started(int(entry.name)) > started(os.getpid()):
                    continue
                lines = Path(entry.path, "maps").read_text().splitlines()
                found |= {line.rpartition("/dev/shm/")[2] for line in lines if "/dev/shm/" in line}
    return found


def started(pid: int) -> int:
    """When a process was started, in clock ticks since boot."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def shared_files() -> set[str]:
    """This user's files in /dev/shm, but for joblib's folders, which another test's processes keep until they end."""
    found = set()
    for path in Path("/dev/shm").glob("*"):
        with suppress(OSError):  # another program's may go at any moment
            if path.lstat().st_uid == os.getuid() and not path.name.startswith("joblib_memmapping_folder"):
                found.add(path.name)
    return found
