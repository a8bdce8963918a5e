"""The time that the coordinator waits for a sign of life."""

from __future__ import annotations

import time

from partrain.system.startup import STARTUP_LIMIT_S

__all__ = ["POLL_S", "STARTUP_LIMIT_S", "StallTimer"]

POLL_S = 0.1
"""Longest sleep of the coordinator."""


class StallTimer:
    """The seconds since processes last gave a sign of life."""

    def __init__(self) -> None:
        self._sign: object = None
        self._looked_at, self._seconds = time.monotonic(), 0.0

    def idle_seconds(self, sign: object) -> float:
        """Return the seconds since `sign` last changed. Pass None while not waiting, to reset the timer."""
        now = time.monotonic()
        self._seconds += min(now - self._looked_at, 4 * POLL_S)  # a stop of all processes is not a stall
        self._looked_at = now
        if sign is None or sign != self._sign:
            self._sign, self._seconds = sign, 0.0
        return self._seconds
