"""The coordinator's side of this machine's worker processes: receive messages, reap, stop.

`worker/process.py` is the code inside each process.
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
"""Seconds to exit for a process whose work is done."""


class WorkerProcesses(dict[int | CenterPart, ChildProcess]):
    """The unreaped processes, by the first rank in each or by their part of the center."""

    @property
    def waitables(self) -> list[Any]:
        """Objects for `multiprocessing.connection.wait`."""
        return [waitable for child in self.values() for waitable in (child.sentinel, child.pipe)]

    def messages(self, ready: list[Any]) -> Iterator[Message]:
        """Yield the messages of `ready` processes, up to the last before their exit."""
        for child in list(self.values()):
            if child.pipe in ready or child.sentinel in ready:
                with suppress(EOFError, OSError):
                    while child.pipe.poll():
                        yield decode(child.pipe.recv_bytes())

    def exited(self, ready: list[Any]) -> Iterator[tuple[int | CenterPart, int | None]]:
        """Reap exited processes. Yield key and exit code; the code is None if the forkserver died."""
        for first, child in list(self.items()):
            if child.sentinel in ready and first in self:
                yield self._reap(first)

    def other_exited(self, first: int | None) -> Iterator[tuple[int | CenterPart, int | None]]:
        """Reap other processes that exited with an error, or are about to. Yield key and exit code."""
        deadline = time.monotonic() + forkserver.OTHER_EXIT_S
        for other, child in list(self.items()):
            if other != first and child.wait(max(0.0, deadline - time.monotonic())) and child.exit_code != 0:
                yield self._reap(other)

    def _reap(self, first: int | CenterPart) -> tuple[int | CenterPart, int | None]:
        child = self.pop(first)
        child.stop(None)
        return first, child.exit_code

    def stop(self, *, at_once: bool) -> None:
        """Stop all processes: kill them if `at_once`, else give them GRACE_S to exit."""
        for child in self.values():
            if at_once:
                child.signal(signal.SIGKILL)
        for child in self.values():
            if not child.stop(GRACE_S):  # the forkserver reports exits, and it is frozen: all its children end with it
                forkserver.kill()
                child.wait(GRACE_S)
        self.clear()


class MemoryFile:
    """A memory file's descriptor, duplicated for the child at the pickling of a process spec."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _received, (DupFd(self._descriptor),)


def _received(duplicate: Any) -> Any:
    return duplicate
