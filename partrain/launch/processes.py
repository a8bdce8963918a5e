"""The worker processes of this machine as the coordinator holds them: receive messages, reap, stop.

`worker/process.py` is the code that runs inside each.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.reduction import DupFd
from typing import Any

from partrain.launch import forkserver
from partrain.launch.worker.messages import Message, decode
from partrain.launch.worker.spec import CenterPart
from partrain.system.child_process import ChildProcess

GRACE_S = 5.0
"""A process whose work is done has this long to exit."""


class WorkerProcesses(dict[int | CenterPart, ChildProcess]):
    """The processes that have not been reaped, by the first rank in each, or by their part of the center."""

    @property
    def waitables(self) -> list[Any]:
        """Objects for `multiprocessing.connection.wait`."""
        return [waitable for child in self.values() for waitable in (child.sentinel, child.pipe)]

    def messages(self, ready: list[Any]) -> Iterator[Message]:
        """Yield the messages of processes with something ready, up to the last before their exit."""
        for child in list(self.values()):
            if child.pipe in ready or child.sentinel in ready:
                with suppress(EOFError, OSError):
                    while child.pipe.poll():
                        yield decode(child.pipe.recv_bytes())

    def exited(self, ready: list[Any]) -> Iterator[tuple[int | CenterPart, int | None]]:
        """Reap the processes that have exited: key and exit code, which is None if the forkserver died."""
        for first, child in list(self.items()):
            if child.sentinel in ready and first in self:
                yield self._reap(first)

    def other_exited(self, first: int | None) -> Iterator[tuple[int | CenterPart, int | None]]:
        """Reap other processes that exited with an error, or are about to: key and exit code."""
        deadline = time.monotonic() + forkserver.OTHER_EXIT_S
        for other, child in list(self.items()):
            if other != first and child.wait(max(0.0, deadline - time.monotonic())) and child.exit_code != 0:
                yield self._reap(other)

    def _reap(self, first: int | CenterPart) -> tuple[int | CenterPart, int | None]:
        child = self.pop(first)
        child.stop(None)
        return first, child.exit_code

    def stop(self, *, at_once: bool) -> None:
        """Stop all processes: kill them `at_once`, or give them GRACE_S to exit."""
        for child in self.values():
            if at_once:
                child.signal(signal.SIGKILL)
        for child in self.values():
            if not child.stop(GRACE_S):  # the forkserver tells who has exited, and it is frozen: all its children end with it
                forkserver.kill()
                child.wait(GRACE_S)
        self.clear()


class MemoryFile:
    """A memory file's descriptor, duplicated for the child when a process spec is pickled."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _received, (DupFd(self._descriptor),)


def _received(duplicate: Any) -> Any:
    return duplicate
