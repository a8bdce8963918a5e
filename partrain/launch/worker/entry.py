"""Entry points of the processes that the forkserver forks. This module imports no torch until a process runs."""

from __future__ import annotations

import contextlib
import os
import threading
from multiprocessing.connection import Connection

from partrain.launch.worker.channel import Channel
from partrain.launch.worker.spec import ProcessSpec
from partrain.system.parent_death import bind_forks, close_forkserver_alive_fd


def worker_main(pipe: Connection, spec: ProcessSpec) -> None:
    """Run the workers of this process, or a part of the center."""
    from partrain.launch.worker import process

    process.main(spec, _enter(pipe))


def dry_run_main(pipe: Connection, spec: ProcessSpec) -> None:
    """Try user code in this process, before any worker starts."""
    from partrain.launch.worker import dry_run

    dry_run.main(spec, _enter(pipe))


def _enter(pipe: Connection) -> Channel:
    """Tie this process and its forks to its coordinator."""
    from partrain.launch.worker import preload  # noqa: F401  a script's own forkserver has not preloaded it
    from partrain.system import malloc

    bind_forks()
    close_forkserver_alive_fd()
    malloc.keep_freed_memory()
    with contextlib.suppress(OSError):  # a script may have closed stdout or stderr
        os.dup2(2, 1)  # stdout is the coordinator's: prints of user code must not enter its one JSON document
    threading.Thread(target=_exit_with_coordinator, args=(pipe,), daemon=True).start()
    return Channel(pipe)


def _exit_with_coordinator(pipe: Connection) -> None:
    """End this process when the coordinator closes its end of the pipe. The coordinator sends nothing on it."""
    with contextlib.suppress(OSError, EOFError):
        pipe.recv_bytes()
    os._exit(1)
