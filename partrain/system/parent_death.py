"""Processes that do not outlive the run: the kernel kills a child when its parent dies."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from partrain.system.surroundings import memory_limit

PARENT = "PARTRAIN_PARENT"
"""Environment variable with the process id of the forkserver's parent."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
ORPHAN_GRACE_S = 2.0
"""Seconds that processes left behind by user code have to end by themselves."""


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when `parent` dies. SIGKILL, because workers ignore the terminal's signals.

    If `parent` is already dead, this process exits at once.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def bind_forks() -> None:
    """Make processes that user code forks from this one's main thread die with it: they would keep training during the next run.

    The kernel mistakes the end of another thread that forked for the end of the parent, so forks of such threads are left alone;
    so are forks of forks, such as daemons: see `orphans_ended`.
    """
    parent, from_main = os.getpid(), False

    def before() -> None:
        nonlocal from_main
        from_main = threading.get_native_id() == parent

    def after() -> None:
        if from_main and os.getppid() == parent:
            die_with_parent(parent)

    os.register_at_fork(before=before, after_in_child=after)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent dies, instead of the init process: so they can be found."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextmanager
def orphans_ended(ancestor: int) -> Iterator[None]:
    """End the descendants of a process that adopts orphans, if they outlive its end, which the block causes.

    These are programs and daemons that user code has started and left behind. They would hold the command's output open, and
    its reader would wait for them.
    """
    with ExitStack() as opened:
        handles, left = [], select.poll()
        for pid in descendants(ancestor):
            with suppress(OSError):  # it has ended
                handles.append(os.pidfd_open(pid))
                opened.callback(os.close, handles[-1])
        yield
        until = time.monotonic() + ORPHAN_GRACE_S
        for descriptor in handles:  # readable once the process has ended
            left.register(descriptor, select.POLLIN)
            left.poll(max(0.0, until - time.monotonic()) * 1000)
            left.unregister(descriptor)
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """List the children of a process, their children, and so on; fewer if the kernel hides some."""
    with suppress(OSError):
        tasks = Path(f"/proc/{pid}/task").iterdir()
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
        return [descendant for child in children for descendant in (child, *descendants(child))]
    return []


def memory_hint() -> str:
    """Return the memory limit that may have ended a process, in parentheses; "" without one."""
    limited = memory_limit()
    return f" (possibly out of memory, by {limited})" if limited else ""


def describe_exit(exitcode: int | None) -> str:
    """Describe in words how a process ended."""
    memory = memory_hint()
    if exitcode is None or exitcode >= 0:
        return f"ended with exit status {exitcode} before its work was done{memory}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    return f"was killed by {name}" + (memory or (" (possibly out of memory)" if name == "SIGKILL" else ""))


def close_forkserver_alive_fd() -> None:
    """Close this child's copy of the pipe that keeps the forkserver alive.

    The forkserver exits when all copies are closed, and multiprocessing gives each child one. With this copy closed, the
    forkserver ends with the coordinator, and its children end with it.
    """
    server: Any = forkserver._forkserver
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None


if __name__ == "__main__":  # PARENT WORD...: become another program, which dies with the parent
    die_with_parent(int(sys.argv[1]))
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.exit(f"partrain: error[no-input]: {sys.argv[2]}: {error.strerror}")
