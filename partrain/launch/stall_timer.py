"""How long the coordinator waits for a sign of life."""

from __future__ import annotations

import time

TICK_S = 0.1
"""Longest the coordinator sleeps."""
LEAST_S = 120.0
"""Starting up, and writing a file, may take so long without a sign of life, however short iterations are (`stall_seconds`)."""


class StallTimer:
    """How long nobody has given a sign of life."""

    def __init__(self) -> None:
        self._sign: object = None
        self._looked_at, self._seconds = time.monotonic(), 0.0

    def seconds(self, sign: object) -> float:
        """Seconds since the sign of life was another one; None: nobody is waited for."""
        now = time.monotonic()
        self._seconds += min(now - self._looked_at, 4 * TICK_S)  # where all processes were stopped, that was no silence
        self._looked_at = now
        if sign is None or sign != self._sign:
            self._sign, self._seconds = sign, 0.0
        return self._seconds
