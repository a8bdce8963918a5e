"""The processes of a run on this machine: how they are started, heard, buried and ended."""

from __future__ import annotations

import json
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
from partrain.launch.worker.spec import ProcessSpec

GRACE_S = 5.0
"""A process whose work is done has this long to end."""
NEXT_DOOR_S = 0.3
"""Connections of a killed process end before it does: at most so much earlier."""
UNKNOWN = 255
"""The exit code of a process of which the forkserver can't tell any more, among others."""


class WorkerProcesses:
    """Processes and their pipes, by the first worker that lives in each, or what takes its place."""

    def __init__(self) -> None:
        self._processes: dict[int, tuple[BaseProcess, Connection]] = {}

    def __iter__(self) -> Iterator[int]:
        """Who lives."""
        return iter(self._processes)

    def start(
        self, first: int, name: str, work: Callable[[ProcessSpec], None], order: Callable[[Connection], ProcessSpec]
    ) -> None:
        """Start one process, whose work is told by an order with its end of a pipe. Raises WorkersLost where it cannot be."""
        context = forkserver.start()
        ours, theirs = Pipe()
        process = context.Process(target=work, args=(order(theirs),), name=name)
        try:
            with forkserver.without_main():
                process.start()
        except (EOFError, OSError) as error:
            ours.close()
            theirs.close()
            raise WorkersLost(
                f"{name} could not be started: the process that starts workers was killed ({type(error).__name__})"
            ) from None
        theirs.close()
        self._processes[first] = (process, ours)

    @property
    def waited(self) -> list[Any]:
        """What `multiprocessing.connection.wait` is to look at."""
        return [one for process, pipe in self._processes.values() for one in (process.sentinel, pipe)]

    def said(self, ready: list[Any]) -> Iterator[dict[str, Any]]:
        """Messages of those of whom something is ready, up to their last."""
        for process, pipe in list(self._processes.values()):
            if pipe in ready or process.sentinel in ready:
                with suppress(EOFError, OSError):
                    while pipe.poll():
                        yield json.loads(pipe.recv_bytes())

    def ended(self, ready: list[Any]) -> Iterator[tuple[int, int | None]]:
        """Who of them has ended, and the exit code; they are no longer of the crew."""
        for first, (process, _) in list(self._processes.items()):
            if process.sentinel in ready and first in self._processes:
                yield first, self._bury(first)

    def dead_beside(self, first: int) -> Iterator[tuple[int, int | None]]:
        """Who else is dead, though it may not be known yet."""
        patience = time.monotonic() + NEXT_DOOR_S
        for other, (process, _) in list(self._processes.items()):
            if other != first:
                process.join(max(0.0, patience - time.monotonic()))
                if process.exitcode:
                    yield other, self._bury(other)

    def orphaned(self, code: int | None) -> bool:
        """Whether a process ended because the one that had started it did, and took all others along."""
        return code == UNKNOWN and forkserver.died(NEXT_DOOR_S)

    def _bury(self, first: int) -> int | None:
        process, pipe = self._processes.pop(first)
        process.join()
        pipe.close()
        return process.exitcode

    def end(self, at_once: bool) -> None:
        """End all: those that end by themselves must not keep us waiting."""
        for process, _ in self._processes.values():
            if at_once:
                process.kill()
        for process, pipe in self._processes.values():
            process.join(GRACE_S)
            if process.is_alive():
                process.kill()
                process.join()
            pipe.close()
        self._processes = {}


class Handed:
    """A memory file on its way to a child: duplicated when the order is pickled for it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _received, (DupFd(self._descriptor),)


def _received(duplicate: Any) -> Any:
    return duplicate
