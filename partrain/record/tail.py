"""Reading of the whole lines added to a file, again from its start if the file was truncated or replaced."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from partrain.record.events import JudgementEvent, decode, is_sound
from partrain.record.run_state import RunState
from partrain.system.regular_file import open_regular

CHUNK_BYTES = 1 << 18
"""Bytes of one read."""
MARK_BYTES = 256
"""Bytes before the end of the last read, which must still be there at the next read."""


class Tail:
    """The lines of a growing file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._mark = b""
        self.size = 0
        """Bytes of the file at the last read."""
        self._known: tuple[int, int, int] | None = None
        """Inode, size and time of change of a file that was read to its last whole line."""

    @property
    def at_end(self) -> bool:
        """True if the last read found the end of the file."""
        return self._known is not None

    @property
    def share(self) -> float:
        """The share of the file read so far, 0 to 1."""
        return self._at / self.size if self.size else 0.0

    def read(self) -> tuple[bool, list[bytes]]:
        """Read the next whole lines, about `CHUNK_BYTES`. Return True if the file starts again, with the lines. Raises OSError."""
        status = self._path.stat()
        stamp = status.st_ino, status.st_size, status.st_mtime_ns
        if stamp == self._known:
            return False, []
        self.size = status.st_size
        with open_regular(self._path) as file:
            restarted = self._at > 0 and not self._continues(file)
            if restarted:
                self._at, self._mark = 0, b""
            file.seek(self._at)
            data = file.read(CHUNK_BYTES)
            while data and b"\n" not in data and (more := file.read(CHUNK_BYTES)):  # a line may be longer than a chunk
                data += more
        whole = data[: data.rfind(b"\n") + 1]
        end = self._at + len(data)
        self._at += len(whole)
        self._mark = (self._mark + whole)[-MARK_BYTES:]
        self._known = stamp if end >= self.size else None
        return restarted, whole.splitlines()

    def _continues(self, file: BinaryIO) -> bool:
        """Return whether the bytes before the end of the last read are still there."""
        file.seek(self._at - len(self._mark))
        return file.read(len(self._mark)) == self._mark


class FollowedState:
    """The state of a run, from the lines added to its events."""

    def __init__(self, events_file: Path) -> None:
        self._tail = Tail(events_file)
        self._forget()

    def _forget(self) -> None:
        self.state = RunState()
        self.judgements: list[JudgementEvent] = []

    def read(self) -> RunState:
        """Read all new events; skip lines that are not sound events. Raises OSError."""
        while True:
            restarted, lines = self._tail.read()
            if restarted:
                self._forget()
            for line in lines:
                with suppress(ValueError):
                    if is_sound(event := decode(line)):
                        self.state.apply(event)
                        self.judgements += [event] if isinstance(event, JudgementEvent) else []
            if self._tail.at_end:
                return self.state
