"""Entry points of the processes that the forkserver forks. Nothing here imports torch until a process runs."""

from __future__ import annotations

import contextlib
import os
import threading
from multiprocessing.connection import Connection

from partrain.launch.worker.channel import Channel
from partrain.launch.worker.spec import ProcessSpec
from partrain.system.parent_death import close_forkserver_alive_fd, die_with_parent


def worker_main(order: ProcessSpec) -> None:
    """Entry point of a worker's process: only there is torch at hand."""
    from partrain.launch.worker import process

    process.main(order, enter(order))


def dry_run_main(order: ProcessSpec) -> None:
    """Entry point of the process that tries what is the user's own."""
    from partrain.launch.worker import dry_run

    dry_run.main(order, enter(order))


def enter(order: ProcessSpec) -> Channel:
    """The beginning of a process that the coordinator has ordered: it ends with the coordinator, to whom it talks."""
    from partrain.launch.worker import preload  # noqa: F401  a script may have had a forkserver of its own before
    from partrain.system import malloc

    die_with_parent(order.parent)
    close_forkserver_alive_fd()
    malloc.keep_freed_memory()
    with contextlib.suppress(OSError):  # a script may have closed them
        os.dup2(2, 1)  # stdout is the coordinator's: what the user's code prints must not get into its one JSON document
    watch = threading.Thread(target=_end_with, args=(order.pipe,), daemon=True)
    watch.start()
    return Channel(order.pipe)


def _end_with(pipe: Connection) -> None:
    """The coordinator says nothing on the pipe; its end means that it is gone."""
    with contextlib.suppress(OSError, EOFError):
        pipe.recv_bytes()
    os._exit(1)
