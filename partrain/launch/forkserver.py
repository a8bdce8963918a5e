"""The forkserver, started before anything else: it imports torch on one core while the coordinator reads job and data."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, get_context, process, resource_tracker
from multiprocessing.context import ForkServerContext
from pathlib import Path
from types import ModuleType
from typing import Any

from partrain.launch.signals import STOPPING
from partrain.system.parent_death import PARENT

_server: Any = forkserver._forkserver
_ours = 0
"""Process of the forkserver that was started here; a script may have had one before."""


def start() -> ForkServerContext:
    """Start the forkserver if it does not run yet; returns the context whose processes it forks."""
    # One thread each, whatever the environment says: a job's `threads` is what counts, and is set in each worker.
    for library in ("OMP", "MKL", "OPENBLAS"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    context = get_context("forkserver")
    context.set_forkserver_preload(["partrain.launch.worker.preload"])
    # It unblocks signals when it starts: were it left to the forkserver, that one would not be shielded.
    resource_tracker.ensure_running()
    global _ours
    before = pid()
    # A signal that comes before the forkserver ignores it would end it with a traceback: it waits, blocked.
    with _undisturbed(), without_main():
        os.environ[PARENT] = str(os.getpid())  # who may be dead by the time that the forkserver can ask
        forkserver.ensure_running()
        del os.environ[PARENT]
        _ours = _ours if pid() == before else pid()
    return context


def pid() -> int:
    """Process of the forkserver: the parent of every worker. 0 while there is none."""
    return _server._forkserver_pid or 0


def died(patience_s: float) -> bool:
    """Whether the forkserver is dead: what hung on it may have told so earlier, by so many seconds at most."""
    until = time.monotonic() + patience_s
    while pid():
        try:
            if os.waitid(os.P_PID, pid(), os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
        except ChildProcessError:  # somebody has seen to it already
            break
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def stop() -> None:
    """End the forkserver, also in the midst of importing torch for a command that has failed: nobody is to wait for that."""
    with _undisturbed():
        if pid() and pid() == _ours:
            os.kill(_ours, signal.SIGKILL)
            _server._stop()


def kill_now() -> None:
    """As `stop`, for a process that ends at once: multiprocessing's folder, otherwise removed at its end, goes now."""
    folder = vars(process.current_process())["_config"].get("tempdir")
    stop()
    if folder:
        with suppress(OSError):
            Path(folder).rmdir()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Signals that ask a command to end wait: multiprocessing holds a lock, and a handler may want to `stop`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def without_main() -> Iterator[None]:
    """Hide the main module from multiprocessing, which would run it again in every child: workers need nothing of it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
