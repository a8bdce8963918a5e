"""A progress line for operations longer than two seconds: the finished share, and the seconds left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TextIO

FROM_S = 2.0
"""Seconds of an operation from which the line appears."""
EVERY_S, PLAIN_EVERY_S = 0.2, 10.0
"""Seconds between two lines: on a terminal, where each replaces the last, and elsewhere."""


class ProgressLine:
    """The line, on a stream."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock, self._replaces = stream, clock, stream.isatty()
        self._what, self._share, self._began, self._shown = "", 1.0, 0.0, -math.inf

    def note(self, what: str, share: float) -> None:
        """Show the finished share of `what`, if it takes long."""
        now = self._clock()
        if what != self._what or share < self._share:
            self._what, self._began, self._shown = what, now, -math.inf
        self._share, spent = share, now - self._began
        if share >= 1 and self._shown > -math.inf and self._replaces:
            self._stream.write("\r\x1b[K")
        elif spent >= FROM_S and 0 < share < 1 and now - self._shown >= (EVERY_S if self._replaces else PLAIN_EVERY_S):
            text = f"{what}: {share:.0%}, {spent * (1 - share) / share:.0f} s left"
            self._stream.write(f"\r\x1b[K{text}" if self._replaces else f"{text}\n")
            self._shown = now
        self._stream.flush()
