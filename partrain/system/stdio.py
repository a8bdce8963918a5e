"""Stdout and stderr of a command.

They survive a full device or a closed pipe: output is lost, the command still runs to its end. Control characters become visible: texts
in checkpoints and data files may come from strangers, and a terminal would obey them. The live displays draw on separate streams.
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Callable
from typing import TextIO

from partrain.errors import NOT_REACHED, OK, InputOutputFailed

_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")
"""Control characters except tab and line ends, and characters that change the direction of text."""


def visible(text: str) -> str:
    """Return a text with control characters as escapes, such as `\\x1b`."""
    return _CONTROLS.sub(lambda match: repr(match[0])[1:-1], text)


class VisibleText(io.TextIOWrapper):
    """A text stream that makes control characters visible."""

    def write(self, text: str) -> int:
        super().write(visible(text))
        return len(text)

    def write_controls(self, text: str) -> None:
        """Write a text that partrain made, control characters included."""
        super().write(text)


class _TolerantFile(io.FileIO):
    """The file behind a stream. After a failed write it points to /dev/null."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._terminal = self.isatty()
        self.failure: InputOutputFailed | None = None
        """The reason why output is lost. None if the reader closed the pipe or terminal: then the loss is no failure."""

    def write(self, data: object) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            gone = error.errno == errno.EPIPE or (self._terminal and error.errno == errno.EIO)
            self.failure = None if gone else InputOutputFailed(f"cannot write to stdout: {error.strerror}")
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            return super().write(data)  # type: ignore[arg-type]


def tolerate_closed_stdout(command: Callable[[], None]) -> None:
    """Run a command to its end even if writing to stdout or stderr fails. Exits with 74 if only stdout failed."""
    out, err = _TolerantFile(1), _TolerantFile(2)
    sys.stdout, sys.stderr = _text(out, sys.stdout), _text(err, sys.stderr)
    code: object = OK
    try:
        command()
    except SystemExit as end:
        code = end.code or OK
    sys.stdout.flush()
    if out.failure:
        print(out.failure.render(), file=sys.stderr)
        code = out.failure.code if code in (OK, NOT_REACHED) else code
    sys.exit(code)  # type: ignore[arg-type]


def _text(file: io.FileIO, stream: TextIO | None) -> TextIO:
    """Open a text stream over a file, set up like Python's own `stream`, which is None if the descriptor was closed."""
    buffer = io.BufferedWriter(file)
    if not isinstance(stream, io.TextIOWrapper):
        return VisibleText(buffer, "utf-8", "backslashreplace")
    return VisibleText(buffer, stream.encoding, stream.errors, line_buffering=stream.line_buffering or stream.write_through)
