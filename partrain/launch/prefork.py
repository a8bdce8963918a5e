"""The forkserver, started before anything else: it imports torch on one core while the coordinator reads job and data."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, get_context, resource_tracker
from multiprocessing.context import ForkServerContext
from types import ModuleType
from typing import Any

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def start() -> ForkServerContext:
    """Start the forkserver if it does not run yet; returns the context whose processes it forks."""
    # One thread each, whatever the environment says: a job's `threads` is what counts, and is set in each worker.
    for library in ("OMP", "MKL", "OPENBLAS"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    context = get_context("forkserver")
    context.set_forkserver_preload(["partrain.launch.preload"])
    # It unblocks signals when it starts: were it left to the forkserver, that one would not be shielded.
    resource_tracker.ensure_running()
    # A signal that comes before the forkserver ignores it would end it with a traceback: it waits, blocked.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        with without_main():
            forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


def stop() -> None:
    """End the forkserver, also in the midst of importing torch for a command that has failed: nobody is to wait for that."""
    server: Any = forkserver._forkserver
    if server._forkserver_pid is not None:
        os.kill(server._forkserver_pid, signal.SIGKILL)
        server._stop()


@contextmanager
def without_main() -> Iterator[None]:
    """Hide the main module from multiprocessing, which would run it again in every child: workers need nothing of it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
