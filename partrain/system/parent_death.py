"""No process outlives the run: the kernel kills a child whose parent died, however it died."""

from __future__ import annotations

import ctypes
import os
import signal
from multiprocessing import forkserver
from typing import Any

PARENT = "PARTRAIN_PARENT"
"""Tells the forkserver whose it is."""
_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have this process killed when `parent` dies. SIGKILL, because workers ignore the terminal's signals.

    If it died before the kernel knew, this process ends at once.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def describe_exit(exitcode: int | None) -> str:
    """How a process ended, in words."""
    if exitcode is None or exitcode >= 0:
        return f"ended with exit status {exitcode} before its work was done"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    return f"was killed by {name}" + (" (possibly out of memory)" if name == "SIGKILL" else "")


def close_forkserver_alive_fd() -> None:
    """Close what keeps the forkserver alive in its own children, so that it ends with the coordinator, and they with it.

    multiprocessing hands every child the pipe whose end tells the forkserver that nobody needs it any more.
    """
    server: Any = forkserver._forkserver
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None
