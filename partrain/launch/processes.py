"""The worker processes of this machine as the coordinator holds them: start, receive messages, reap, stop.

`worker/process.py` is the code that runs inside each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from typing import Any

from partrain.errors import WorkersLost
from partrain.launch import forkserver
from partrain.launch.stall_timer import STARTUP_LIMIT_S
from partrain.launch.worker.messages import Message, decode
from partrain.launch.worker.spec import ProcessSpec
from partrain.system.surroundings import raise_open_files

GRACE_S = 5.0
"""A process whose work is done has this long to exit."""
OTHER_EXIT_S = 0.3
"""A killed process closes its connections before it exits: at most this much earlier."""
UNKNOWN_EXIT = 255
"""The exit code of a process that the forkserver could not wait for, among others."""


class WorkerProcesses:
    """Processes and their pipes, by the first rank in each."""

    def __init__(self) -> None:
        self._processes: dict[int, tuple[BaseProcess, Connection]] = {}

    def __iter__(self) -> Iterator[int]:
        """Iterate over the first ranks of the processes that have not been reaped."""
        return iter(self._processes)

    def start(
        self, first: int, name: str, main: Callable[[ProcessSpec], None], spec: Callable[[Connection], ProcessSpec]
    ) -> None:
        """Start one process that runs `main(spec(pipe))`. Raises WorkersLost if it cannot be started."""
        context = forkserver.start()
        ours, theirs = Pipe()
        process = context.Process(target=main, args=(spec(theirs),), name=name, daemon=False)
        frozen = threading.Timer(STARTUP_LIMIT_S, forkserver.kill)  # the start waits for its answer without a limit
        frozen.daemon = True
        try:
            with forkserver.without_main():
                frozen.start()
                process.start()
        except (EOFError, OSError, RuntimeError) as error:
            ours.close()
            theirs.close()
            if failure := forkserver._start_failure(error):
                raise failure from None
            if isinstance(error, RuntimeError):
                raise
            why = "the process that starts workers was killed"
            if not forkserver.died(OTHER_EXIT_S):
                why = f"the process that starts workers gave no answer; if it lacks open files, {raise_open_files()}"
            raise WorkersLost(f"{name} could not be started: {why} ({type(error).__name__})") from None
        finally:
            frozen.cancel()
        theirs.close()
        self._processes[first] = (process, ours)

    @property
    def waitables(self) -> list[Any]:
        """Objects for `multiprocessing.connection.wait`."""
        return [one for process, pipe in self._processes.values() for one in (process.sentinel, pipe)]

    def messages(self, ready: list[Any]) -> Iterator[Message]:
        """Yield the messages of processes with something ready, up to the last before their exit."""
        for process, pipe in list(self._processes.values()):
            if pipe in ready or process.sentinel in ready:
                with suppress(EOFError, OSError):
                    while pipe.poll():
                        yield decode(pipe.recv_bytes())

    def exited(self, ready: list[Any]) -> Iterator[tuple[int, int | None]]:
        """Reap the processes that have exited: first rank and exit code."""
        for first, (process, _) in list(self._processes.items()):
            if process.sentinel in ready and first in self._processes:
                yield first, self._reap(first)

    def other_exited(self, first: int) -> Iterator[tuple[int, int | None]]:
        """Reap other processes that exited with an error, or are about to: first rank and exit code."""
        deadline = time.monotonic() + OTHER_EXIT_S
        for other, (process, _) in list(self._processes.items()):
            if other != first:
                process.join(max(0.0, deadline - time.monotonic()))
                if process.exitcode:
                    yield other, self._reap(other)

    def forkserver_died(self, code: int | None) -> bool:
        """Tell if a process exited because the forkserver died, which ends all others too."""
        return code == UNKNOWN_EXIT and forkserver.died(OTHER_EXIT_S)

    def _reap(self, first: int) -> int | None:
        process, pipe = self._processes.pop(first)
        process.join()
        pipe.close()
        return process.exitcode

    def stop(self, at_once: bool) -> None:
        """Stop all processes: kill them `at_once`, or give them GRACE_S to exit."""
        for process, _ in self._processes.values():
            if at_once:
                process.kill()
        for process, pipe in self._processes.values():
            process.join(GRACE_S)
            if process.is_alive():
                process.kill()
                process.join(GRACE_S)
            if process.is_alive():  # the forkserver tells who has exited, and it is frozen: all its children end with it
                forkserver.kill()
                process.join(GRACE_S)
            pipe.close()
        self._processes = {}


class MemoryFile:
    """A memory file's descriptor, duplicated for the child when a process spec is pickled."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _received, (DupFd(self._descriptor),)


def _received(duplicate: Any) -> Any:
    return duplicate
