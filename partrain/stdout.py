"""Stdout, whose device may be full and whose reader may be gone: that costs what was to be read, never what is being done."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable

from partrain.errors import NOT_REACHED, OK, InputOutputFailed

DESCRIPTOR = 1


class _Forgiving(io.FileIO):
    """The file behind stdout: after a write that fails, all goes to /dev/null."""

    def __init__(self) -> None:
        super().__init__(DESCRIPTOR, "w", closefd=False)
        self._terminal = self.isatty()
        self.failure: InputOutputFailed | None = None
        """Why what was written is lost; a reader who has gone, with a pipe or a terminal, wanted no more of it."""

    def write(self, data: object) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            gone = error.errno == errno.EPIPE or (self._terminal and error.errno == errno.EIO)
            self.failure = None if gone else InputOutputFailed(f"cannot write to stdout: {error.strerror}")
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, DESCRIPTOR)
            os.close(null)
            return super().write(data)  # type: ignore[arg-type]


def forgiving(command: Callable[[], None]) -> None:
    """Run a command to its end, whatever becomes of stdout; exits with 74 where it is well but for that."""
    given = sys.stdout
    if not isinstance(given, io.TextIOWrapper):  # closed
        command()
        return
    file = _Forgiving()
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(file),
        given.encoding,
        given.errors,
        line_buffering=given.line_buffering or given.write_through,
    )
    code: object = OK
    try:
        command()
    except SystemExit as end:
        code = end.code or OK
    sys.stdout.flush()
    if file.failure:
        print(file.failure.render(), file=sys.stderr)
        code = file.failure.code if code in (OK, NOT_REACHED) else code
    sys.exit(code)  # type: ignore[arg-type]
