"""Ctrl-C, similar signals, and SIGUSR1: handlers only count and wake the coordinator."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType, TracebackType

from partrain.errors import INTERRUPTED, TERMINATED
from partrain.system.children import COMMAND_SIGNALS

COMMITTING = signal.SIGUSR1
"""The signal that asks a run to commit a checkpoint now."""

STOPPING = tuple(number for number in COMMAND_SIGNALS if number != COMMITTING)
"""Signals that ask a command to end."""

ONE_WISH_S = 0.2
"""Signals closer than this count as one: a closing terminal sends its signal twice, and so does timeout(1)."""


UNHEARD_S = 10.0
"""Seconds after which a command that did not notice a second request ends at once: it waits for something frozen."""


class StoppedNow(Exception):
    """The user asked twice."""


@contextmanager
def handled(handler: Callable[[int, FrameType | None], None], numbers: Sequence[int] = STOPPING) -> Iterator[None]:
    """Handle signals, by default those that ask a command to end, with `handler`; restore their former handlers afterwards."""
    ours = threading.current_thread() is threading.main_thread()  # other threads may not set handlers, and get no signals
    heard = [number for number in numbers if ours and signal.getsignal(number) is not signal.SIG_IGN]  # as under nohup
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


class Signals:
    """Counts, while open, the signals that ask a run to end: once = after this round, twice = now. Also counts requests for a checkpoint."""

    def __init__(self) -> None:
        self.count = 0
        self.commits = 0
        self.first: int | None = None
        self._cause = ""
        self._noted_at = -ONE_WISH_S
        self._heeded = 0
        """Requests that the coordinator has noticed."""
        self.pipe, self._write = -1, -1
        self._open = ExitStack()

    def __enter__(self) -> Signals:
        self.pipe, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._open.enter_context(handled(self.note))
        self._open.enter_context(handled(self._note_commit, [COMMITTING]))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._heeded = self.count
        self._open.close()
        os.close(self.pipe)
        os.close(self._write)
        self.pipe, self._write = -1, -1

    @property
    def name(self) -> str:
        """Name of the first signal, or of what asked like one."""
        return self._cause or (signal.Signals(self.first).name if self.first else "")

    def heed(self) -> None:
        """Mark the signals as handled."""
        os.read(self.pipe, 64)
        self._heeded = self.count

    def note(self, number: int, frame: FrameType | None = None) -> None:
        """Count a signal, even before opening."""
        now = time.monotonic()
        if now - self._noted_at < ONE_WISH_S:
            return
        self._noted_at = now
        self.count += 1
        self.first = self.first or number
        self._wake()
        if self.count > 1 and self._write >= 0:
            unheard = threading.Timer(UNHEARD_S, self._end_unheard, [self.count])
            unheard.daemon = True
            unheard.start()

    def ask(self, cause: str) -> None:
        """Ask the run to end, like SIGTERM, unless a signal has asked already: twice would end it at once."""
        if not self.count:
            self._cause = cause
            self.note(signal.SIGTERM)

    def _end_unheard(self, count: int) -> None:
        """End the process if its main thread is stuck. The forkserver, and with it every other process, ends with it."""
        if self._heeded >= count or self.first is None:
            return
        code = INTERRUPTED if self.first == signal.SIGINT else TERMINATED
        with suppress(OSError):
            os.write(2, f"partrain: {self.name} twice: a process that this one waits for is frozen; ended at once\n".encode())
        os._exit(code)

    def _note_commit(self, number: int, frame: FrameType | None = None) -> None:
        self.commits += 1
        self._wake()

    def _wake(self) -> None:
        if self._write >= 0:
            os.write(self._write, b"!")
