"""Non-blocking terminal output.

A reader who pauses or goes away (a closed window, a lost connection) does not delay or end training.
"""

from __future__ import annotations

import io
import os
import select
from contextlib import suppress
from typing import TextIO


class NonBlockingTerminal(io.TextIOBase):
    """A terminal written to without waiting: text beyond its free space is buffered here.

    The terminal is opened once more, because O_NONBLOCK belongs to the open file, which the shell shares. A terminal with space for
    one character may have none for a frame.
    """

    encoding = "utf-8"

    _descriptor = -1

    def __init__(self, stream: TextIO) -> None:
        stream.flush()
        self.encoding = stream.encoding or self.encoding
        flags = os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            self._descriptor = os.open(os.ttyname(stream.fileno()), flags)
        except OSError:  # another container's, or another user's
            self._descriptor = os.dup(stream.fileno())
        self._left = b""

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        """Keep text for the next `flush`."""
        self._left += text.encode(self.encoding, "replace")
        return len(text)

    def flush(self) -> None:
        """Write as much as the terminal accepts."""
        with suppress(BlockingIOError):
            while self._left and select.select([], [self._descriptor], [], 0)[1]:
                self._write()

    def _write(self) -> None:
        try:
            self._left = self._left[os.write(self._descriptor, self._left) :]
        except BlockingIOError:
            raise
        except OSError:  # the terminal is gone, and so is the text
            self._left = b""

    @property
    def drained(self) -> bool:
        """Return whether all text is written."""
        self.flush()
        return not self._left

    def close(self) -> None:
        """Wait until all text is written."""
        if not self.closed and self._descriptor >= 0:  # none if the stream was not a terminal after all
            os.set_blocking(self._descriptor, True)
            while self._left:
                self._write()
            os.close(self._descriptor)
            super().close()


def is_terminal(stream: TextIO) -> bool:
    """Return whether a stream is a terminal; substitutes for stdout in a script may lack `isatty`."""
    return bool(getattr(stream, "isatty", bool)())


def open_output(stream: TextIO) -> TextIO | NonBlockingTerminal:
    """Open the output for a stream: writes to a terminal do not block."""
    if is_terminal(stream):
        with suppress(OSError, ValueError):  # it may only claim to be one
            return NonBlockingTerminal(stream)
    return stream


def writable(stream: TextIO | NonBlockingTerminal) -> bool:
    """Return whether a write would not block: a waiting pager, or Ctrl-S on the terminal, must not hold up the workers."""
    try:
        if isinstance(stream, NonBlockingTerminal):
            return stream.drained
        return bool(select.select([], [stream.fileno()], [], 0)[1])
    except (OSError, ValueError, AttributeError):  # it has no descriptor
        return True


def finish(output: TextIO | NonBlockingTerminal) -> None:
    """Close a stream that only we use, once everything is written."""
    if isinstance(output, NonBlockingTerminal):
        output.close()


def discard(stream: TextIO) -> None:
    """Redirect a stream to /dev/null: a closed stdout would raise again when Python flushes it at exit."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):
        return
