"""Numbers as text of bounded width: counts, bytes, losses, seconds."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence


def count(value: float | None, width: int = 10) -> str:
    """Format a count, at most `width` characters: in full if that fits, else four digits and a unit."""
    text = "-" if value is None else f"{round(value):,}"
    return text if len(text) <= width else _scaled(value or 0, ("", "k", "M", "G", "T"))


def counted(number: int, noun: str) -> str:
    """Format a number of things: `1 worker`, `2 workers`."""
    return f"{number:,} {plural(noun, number)}"


def plural(noun: str, number: int) -> str:
    """Return a noun, with an s unless the number is 1."""
    return noun if number == 1 else f"{noun}s"


def size(value: float) -> str:
    """Format a number of bytes, in decimal units."""
    return _scaled(value, (" B", " kB", " MB", " GB", " TB"))


def number(value: float | None) -> str:
    """Format a loss or metric, at most eight characters."""
    if value is None:
        return "-"
    if value == 0 or 1e-3 <= abs(value) < 1000:
        return f"{value:.{4 if abs(value) < 10 else 3 if abs(value) < 100 else 2}f}"
    return f"{value:.{2 if value > 0 else 1}e}"


def scores(values: Mapping[str, float | None]) -> str:
    """Format losses and metrics by name, without those that are unknown."""
    return ", ".join(f"{name} {number(value)}" for name, value in values.items() if value is not None)


def spread(values: Sequence[float], show: Callable[[float], str]) -> str:
    """Format the median with minimum and maximum: `1.23 (1.20-1.30)`; for a single value, only that."""
    if not values:
        return "-"
    middle = show(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({show(min(values))}-{show(max(values))})"


def tenths(value: float) -> str:
    """Format seconds, at most eight characters for three years."""
    return f"{value:.1f}" if value < 1e6 else f"{value:.0f}"


def clock(seconds: float) -> str:
    """Format a duration as h:mm:ss, without its fraction."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}"


def time_of_day(moment: float) -> str:
    """Format a Unix time as hh:mm:ss in local time."""
    return time.strftime("%H:%M:%S", time.localtime(moment))


def _scaled(value: float, units: Sequence[str]) -> str:
    power = min(int(math.log10(max(value, 1)) / 3), len(units) - 1)
    return f"{value / 1000**power:.4g}{units[power]}"
