"""The pipes to the process that runs a user's data set: this is the side of the process that started it."""

from __future__ import annotations

import io
import json
import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

from partrain.data.user.section import UserData
from partrain.data.user.work import Work
from partrain.errors import Stalled, UserCodeFailed
from partrain.system.children import FIXED_HASHES, SAFE_PATH
from partrain.system.startup import STARTUP_LIMIT_S
from partrain.system.surroundings import starting_process

EXIT_S = 5.0
"""A process that has closed its stream has this long to exit."""
_limit: ContextVar[float] = ContextVar("limit", default=STARTUP_LIMIT_S)
"""Seconds that a data set may take for one item."""
_BEAT_S = 1.0
"""Seconds between two signs of life of the process that waits."""


@contextmanager
def waiting_at_most(seconds: float) -> Iterator[None]:
    """Raise Stalled if the process of a data set gives no sign of life for so long. It gives one with each item."""
    token = _limit.set(seconds)
    try:
        yield
    finally:
        _limit.reset(token)


_CHILD = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from partrain.data.user.process import main; main()"


class UnequalLengths(Exception):
    """Items turned out to have other lengths than the first, or no known number."""


class DataProcess:
    """The process of a data set."""

    def __init__(self, section: UserData, folder: Path, work: Work, on_wait: Callable[[], None] = lambda: None) -> None:
        """Start it. `on_wait` is called now and then while its messages are awaited."""
        self._name = section.name
        words = [sys.executable, *SAFE_PATH, "-c", _CHILD, json.dumps(sys.path)]
        with starting_process():
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | FIXED_HASHES)
        assert self._process.stdin
        assert self._process.stdout
        self._requests = self._process.stdin
        patient = _Patient(self._process.stdout.fileno(), f"[dataset] name: `{section.name}`", on_wait)
        self._messages: IO[bytes] = io.BufferedReader(patient)
        with suppress(BrokenPipeError):
            self._requests.write(pickle.dumps((section, folder, os.getpid(), work)))
            self._requests.flush()

    def request(self, **content: Any) -> None:
        """Send a request. If the process has ended, `receive` tells why."""
        with suppress(BrokenPipeError):
            self._requests.write(json.dumps(content).encode() + b"\n")
            self._requests.flush()

    def receive(self) -> dict[str, Any]:
        """Receive the next message that is more than a sign of life; raises the error that it reports."""
        said: dict[str, Any] = {"alive": True}
        while "alive" in said:
            line = self._messages.readline()
            if not line.endswith(b"\n"):
                raise self._ended()
            said = json.loads(line)
        if "unequal" in said:
            raise UnequalLengths
        if "failed" in said:
            raise UserCodeFailed(said["failed"], said["detail"])
        return said

    def fill(self, part: memoryview) -> None:
        """Fill `part` with the bytes behind a message."""
        position = 0
        while position < len(part):
            count = self._messages.readinto(part[position:])  # type: ignore[attr-defined]
            if not count:
                raise self._ended()
            position += count

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        with suppress(BrokenPipeError):
            self._requests.close()
        assert self._process.stdout
        self._process.stdout.close()

    def _ended(self) -> UserCodeFailed:
        """Describe how a process ended that gives no more items. It may have closed its stream, and run on."""
        try:
            status = self._process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            how = "closed the stream of its items"
        else:
            how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"left its process (status {status})"
        return UserCodeFailed(f"[dataset] name: `{self._name}` {how} before all items were read")


@contextmanager
def running(section: UserData, folder: Path, work: Work) -> Iterator[DataProcess]:
    """Start the process of a data set, and end it afterwards."""
    process = DataProcess(section, folder, work)
    try:
        yield process
    finally:
        process.close()


class _Patient(io.RawIOBase):
    """The reading end of a pipe. Raises Stalled, which names `what`, if nothing comes for the limit."""

    def __init__(self, descriptor: int, what: str, on_wait: Callable[[], None]) -> None:
        self._descriptor, self._what, self._on_wait = descriptor, what, on_wait

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        limit, waited = _limit.get(), 0.0
        step = min(_BEAT_S, limit / 4)
        while not select.select([self._descriptor], [], [], step)[0]:
            waited += step
            self._on_wait()
            if waited >= limit:
                advice = "raise [transport] stall_seconds if one item may take that long"
                raise Stalled(f"{self._what} gave no item for {limit:g} s; {advice}")
        return os.readv(self._descriptor, [buffer])
