"""What a display writes to, so that a reader who pauses, as a pager or a connection that hangs, never holds up the training."""

from __future__ import annotations

import io
import os
import select
from contextlib import suppress
from typing import TextIO


class Terminal(io.TextIOBase):
    """A terminal that is written to without waiting for it: what it has no room for waits here.

    It is opened once more, for whether writes wait belongs to the open file, and that is shared with the shell. A terminal that has room
    for one character may have none for a frame.
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
        """Keep it for the next `flush`."""
        self._left += text.encode(self.encoding, "replace")
        return len(text)

    def flush(self) -> None:
        """Write as much as there is room for. Raises OSError where the terminal is gone."""
        with suppress(BlockingIOError):
            while self._left and select.select([], [self._descriptor], [], 0)[1]:
                self._write()

    def _write(self) -> None:
        self._left = self._left[os.write(self._descriptor, self._left) :]

    @property
    def has_room(self) -> bool:
        """Whether all has been written."""
        self.flush()
        return not self._left

    def close(self) -> None:
        """Wait until all is written."""
        if not self.closed and self._descriptor >= 0:  # none if the stream was no terminal after all
            try:
                os.set_blocking(self._descriptor, True)
                while self._left:
                    self._write()
            finally:
                os.close(self._descriptor)
                self._left = b""
                super().close()


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream says that it is one; what stands in for stdout in a script may say nothing."""
    return bool(getattr(stream, "isatty", bool)())


def open_output(stream: TextIO) -> TextIO | Terminal:
    """What to write to, so that a stream which is a terminal is not waited for."""
    if is_terminal(stream):
        with suppress(OSError, ValueError):  # it may only say that it is one
            return Terminal(stream)
    return stream


def has_room(stream: TextIO | Terminal) -> bool:
    """Whether a write would not block: a pager that waits, or Ctrl-S on the terminal, must not hold up the workers."""
    try:
        if isinstance(stream, Terminal):
            return stream.has_room
        return bool(select.select([], [stream.fileno()], [], 0)[1])
    except (OSError, ValueError, AttributeError):  # it has no descriptor
        return True


def finish(outlet: TextIO | Terminal) -> None:
    """A stream that is ours alone is closed once all is written."""
    if isinstance(outlet, Terminal):
        with suppress(OSError):
            outlet.close()


def discard(stream: TextIO) -> None:
    """Send the rest to /dev/null: a closed stdout would raise again when Python flushes it at exit."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):
        return
