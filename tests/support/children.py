"""The processes of a test: how much they compute, and that none outlives it.

One look at the process tree after each test answers both. Commands are children of `support.warm`'s server, which adopts and reaps
their orphans, so the tree has all of them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import pytest
from support import warm

TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE_S = 60.0
"""Longest time that a killed process, or the name of a semaphore, may take to be gone: the machine may be busy."""
SHARED_MEMORY = Path("/dev/shm")
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000


class Children:
    """A plugin that looks at the process tree after each test."""

    def __init__(self) -> None:
        self.private = own_shared_memory()
        self._kept: set[int] = set()
        """Processes of fixtures that serve several tests."""
        self._seconds = 0.0
        self._fixtures: list[tuple[str, float]] = []
        """CPU seconds of such fixtures since the last test: no test pays for what others use."""

    def pytest_sessionstart(self) -> None:
        self._seconds = sum(process_tree(os.getpid()).values())

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        before = sum(process_tree(os.getpid()).values())
        result = yield
        tree = process_tree(os.getpid())
        self._kept |= tree.keys()
        spent = sum(tree.values()) - before
        self._seconds += spent
        case = f"[{request.param_index}]" if hasattr(request, "param") else ""
        self._fixtures.append((f"{fixturedef.baseid}::{fixturedef.argname}{case}", spent))
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        try:
            return (yield)
        finally:
            self._look(item)

    def _look(self, item: pytest.Item) -> None:
        leaked = wait_until_none(lambda: process_tree(os.getpid()).keys() - self._kept - helpers())
        names = {pid: command(pid) for pid in leaked}
        for pid in leaked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._kept |= leaked  # only one test is blamed, also if its process waits to be reaped
        tree = process_tree(os.getpid())
        spent, self._seconds = sum(tree.values()) - self._seconds, sum(tree.values())
        item.user_properties += [("cpu_seconds", max(spent, 0.0)), ("fixtures", self._fixtures)]
        self._fixtures = []
        left = wait_until_none(shared_files) if self.private else set()
        for path in left:
            path.unlink()
        assert not names, f"processes outlived the test: {names}"
        assert not left, f"files were left in shared memory: {sorted(map(str, left))}"


def process_tree(pid: int) -> dict[int, float]:
    """Give the CPU seconds of a process and of each descendant: its own, and those of dead children that it waited for."""
    found, waiting = {}, [pid]
    while waiting:
        pid = waiting.pop()
        with suppress(OSError):  # it has ended
            found[pid] = sum(map(int, _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[11:15])) / TICKS
            for thread in Path(f"/proc/{pid}/task").iterdir():
                waiting += map(int, _read(f"{thread}/children").split())
    return found


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def helpers() -> set[int | None]:
    """Give the processes that serve all tests: this one, multiprocessing's own, and the one that forks commands."""
    return {os.getpid(), forkserver._forkserver._forkserver_pid, resource_tracker._resource_tracker._pid} | warm.running()


def command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    return "?"


def own_shared_memory() -> bool:
    """Mount a /dev/shm for this process and its children, where this user may: files of other programs come and go."""
    libc = ctypes.CDLL(None)
    return not (
        libc.unshare(CLONE_NEWNS)
        or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
        or libc.mount(b"none", bytes(SHARED_MEMORY), b"tmpfs", 0, b"mode=1777")
    )


def shared_files() -> set[Path]:
    """Give the files in shared memory, but for joblib's folders: its processes keep them until they end."""
    return {path for path in SHARED_MEMORY.iterdir() if not path.name.startswith("joblib_memmapping_folder")}


def wait_until_none(found: Callable[[], set[Any]]) -> set[Any]:
    """Give what is still found after a minute."""
    until = time.monotonic() + PATIENCE_S
    while (left := found()) and time.monotonic() < until:
        time.sleep(0.05)
    return left
