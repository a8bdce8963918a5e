"""The pipe to the process that runs a user's data set, on the side of the process that started it."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from partrain.data.user.section import UserData
from partrain.data.user.work import Lengths, Work
from partrain.errors import InputMissing, Stalled, UserCodeFailed
from partrain.system.child_process import ChildProcess
from partrain.system.startup import STARTUP_LIMIT_S
from partrain.system.surroundings import starting_process

EXIT_S = 5.0
"""Seconds that a process has to exit after closing its stream."""
_limit: ContextVar[float] = ContextVar("limit", default=STARTUP_LIMIT_S)
"""Seconds that a data set may take for one item."""
_BEAT_S = 1.0
"""Seconds between two signs of life of the waiting process."""


@contextmanager
def waiting_at_most(seconds: float) -> Iterator[None]:
    """Raise Stalled if the process of a data set gives no sign of life for this long. It gives one with each item."""
    token = _limit.set(seconds)
    try:
        yield
    finally:
        _limit.reset(token)


class UnequalLengths(Exception):
    """Items differ in length from the first, or their number is unknown."""


class DataProcess:
    """The process of a data set."""

    def __init__(self, section: UserData, folder: Path, work: Work, on_wait: Callable[[], None] = lambda: None) -> None:
        """Start the process. `on_wait` is called repeatedly while waiting for messages."""
        self._what, self._on_wait, self._limit_s = f"[dataset] name: `{section.name}`", on_wait, _limit.get()
        with starting_process():
            self._child = ChildProcess.python("partrain.data.user.process", section, folder, work)
        with socket.socket(fileno=os.dup(self._child.pipe.fileno())) as ours:  # it may freeze in the middle of a message
            ours.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(self._limit_s), int(self._limit_s % 1 * 1e6))
            )

    def request(self, **content: Any) -> None:
        """Send a request. If the process has ended, `receive` reports why."""
        with suppress(ConnectionError):
            self._child.pipe.send(content)

    def receive(self) -> dict[str, Any]:
        """Receive the next message, skipping signs of life; raises the error that it reports."""
        message: dict[str, Any] = {"alive": True}
        while "alive" in message:
            message = json.loads(self._read(self._child.pipe.recv_bytes))
        if "unequal" in message:
            raise UnequalLengths
        if "failed" in message:
            kind = InputMissing if message["missing"] else UserCodeFailed
            raise kind(message["failed"], message["detail"])
        return message

    def fill(self, part: memoryview) -> None:
        """Fill `part` with the bytes that follow a message."""
        while len(part):
            part = part[self._read(self._child.pipe.recv_bytes_into, part) :]

    def close(self) -> None:
        """End the process."""
        self._child.stop()

    def _read(self, read: Callable[..., Any], *arguments: Any) -> Any:
        """Read from the pipe. Raises Stalled if nothing arrives within the limit, UserCodeFailed if the process has ended."""
        waited, step = 0.0, min(_BEAT_S, self._limit_s / 4)
        try:
            while not self._child.pipe.poll(step):
                waited += step
                self._on_wait()
                if waited >= self._limit_s:
                    raise BlockingIOError
            return read(*arguments)
        except BlockingIOError:
            advice = "raise [transport] stall_seconds if one item may take that long"
            raise Stalled(f"{self._what} gave no item for {self._limit_s:g} s; {advice}") from None
        except (EOFError, OSError):
            if not self._child.wait(EXIT_S):  # it is still running
                raise UserCodeFailed(f"{self._what} closed the stream of its items before all items were read") from None
            raise UserCodeFailed(f"{self._what}: its process {self._child.end_in_words()}") from None


def shard_lengths(section: UserData, folder: Path, size: int) -> list[int | None]:
    """Ask user code for the number of items in each worker's shard in each pass."""
    with closing(DataProcess(section, folder, Lengths(size))) as process:
        lengths: list[int | None] = process.receive()["lengths"]
    return lengths
