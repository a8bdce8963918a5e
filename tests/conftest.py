"""Every test leaves the machine as it found it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

import pytest
from hypothesis import settings
from runs import descendants

settings.register_profile("patient", deadline=None)  # a machine may be busy with something else
settings.load_profile("patient")


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
    assert not shared_files() - files, "files were left in /dev/shm"


def helpers() -> set[int | None]:
    """multiprocessing's own processes, which serve all tests."""
    return {forkserver._forkserver._forkserver_pid, resource_tracker._resource_tracker._pid}


def command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    return "?"


def shared_files() -> set[str]:
    """Our files in /dev/shm."""
    with suppress(OSError):
        return {entry.name for entry in os.scandir("/dev/shm") if entry.stat(follow_symlinks=False).st_uid == os.getuid()}
    return set()
