"""Progress of long operations: functions note it, and a command may show it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

SHOWN: ContextVar[Callable[[str, float], None]] = ContextVar("SHOWN", default=lambda what, share: None)
"""Function that shows the finished share, 0 to 1, of an operation."""


def note(what: str, share: float) -> None:
    """Note that this share of `what` is done."""
    SHOWN.get()(what, share)
