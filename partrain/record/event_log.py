"""`events.jsonl` and `summary.json`: the record of a run in its folder.

Only the coordinator writes events. `events.py` describes them.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from partrain.errors import InputMissing, InputOutputFailed
from partrain.record.events import Event, KnownEvent, decode, encode, round_of
from partrain.record.file_names import CHECKPOINT
from partrain.record.round_record import without_nan
from partrain.record.run_state import RunState
from partrain.system.atomic_file import atomic_file
from partrain.system.regular_file import open_regular, open_to_append

BATCH_LINES = 256
"""Largest number of lines in memory: a coordinator that forgets to flush loses no more."""
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
"""Errors that neither free space nor another disk would fix."""


class EventLog:
    """Log that appends events: `add` them, then `flush` once for a group of events.

    A flush is one write without fsync: killing the process loses nothing flushed except, at worst, the end of the last line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: list[bytes] = []
        self._rest = b""
        self._descriptor = _opened(path)

    def add(self, event: KnownEvent) -> None:
        """Add the next event."""
        self._lines.append(encode(event))
        if len(self._lines) >= BATCH_LINES:
            self.flush()

    def rewind(self, after_round: int) -> RunState:
        """Remove the events after a round, like `truncate_after`."""
        self.flush()
        state = truncate_after(self.path, after_round)
        os.close(self._descriptor)
        self._descriptor = _opened(self.path)
        return state

    def flush(self) -> None:
        """Write all added events. Raises InputOutputFailed; the next flush then starts with the rest."""
        if not self._lines and not self._rest:
            return
        data = self._rest + b"".join(self._lines)
        self._lines.clear()
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            raise unwritable(self.path, error) from error
        finally:
            self._rest = data

    def close(self) -> None:
        """Flush and close."""
        try:
            self.flush()
        finally:
            os.close(self._descriptor)

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(InputOutputFailed) if error else nullcontext():  # the first failure is the one to report
            self.close()


def _opened(path: Path) -> int:
    """Open a log for appending."""
    try:
        return open_to_append(path)
    except OSError as error:
        raise unwritable(path, error) from error


def read_events(path: Path) -> Iterator[Event]:
    """Read the events of a file; skip an incomplete last line, which a running or killed run leaves."""
    for number, line in _lines(path):
        yield _decoded(path, number, line)


def truncate_after(path: Path, after_round: int) -> RunState:
    """Remove the events after a round, for a run that resumes there; return the run state at that round.

    Events that name a round stay up to that round, at any place in the file: a commit is recorded late. Events without a round
    (faults) stay if they precede the first removed line. The file is replaced atomically.
    """
    state = RunState()
    _replace(path, _kept(path, after_round, state) if path.exists() else ())
    state.clock.stop()
    return state


def _kept(path: Path, after_round: int, state: RunState) -> Iterator[bytes]:
    """Yield the lines that stay, and apply each to the run state."""
    gone = False
    for number, line in _lines(path):
        event = _decoded(path, number, line)
        round_ = round_of(event)
        later = gone if round_ is None else round_ > after_round
        gone = gone or later
        if not later:
            state.apply(event)
            yield line


def write_summary(path: Path, content: Mapping[str, Any]) -> None:
    """Write `summary.json` atomically."""
    _replace(path, [(json.dumps(without_nan(content), indent=2, allow_nan=False) + "\n").encode()])


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the complete lines of a file, numbered from 1."""
    try:
        with open_regular(path) as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    yield number, line
    except OSError as error:
        raise InputMissing(f"{path}: cannot be read: {error.strerror}") from error


def _decoded(path: Path, number: int, line: bytes) -> Event:
    try:
        return decode(line)
    except ValueError:
        raise InputMissing(
            f"{path}:{number}: not an event; restore the file, or resume the checkpoint into a new folder"
        ) from None


def _replace(path: Path, lines: Iterable[bytes]) -> None:
    """Write a file atomically: at any moment it has the old content or the new."""
    try:
        with atomic_file(path, unique=False) as descriptor, open(descriptor, "wb", closefd=False) as file:
            file.writelines(lines)
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> InputOutputFailed:
    """Return the failure for an error in writing a file of a run folder."""
    if error.errno in FORBIDDEN:
        remedy = "give --out a folder that can be written"
    elif (path.parent / CHECKPOINT).exists():
        remedy = "the newest checkpoint can be resumed elsewhere"
    else:
        remedy = "no checkpoint is there: mend this, or start again with --out in another place"
    return InputOutputFailed(f"{path}: cannot be written: {error.strerror}; {remedy}")
