"""Columns of dates and times. Raw values are seconds since 1970-01-01T00:00:00 UTC."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from partrain.preprocess.cells import parse_date
from partrain.preprocess.column import ColumnKind, double

if TYPE_CHECKING:
    from numpy.typing import NDArray

DAY_S = 86400
"""Seconds in a day."""
_EPOCH, _SECOND = datetime(1970, 1, 1), timedelta(seconds=1)
_FIRST, _AFTER_LAST = -719162 * DAY_S, 2932897 * DAY_S
"""First second of the years 1 to 9999, and first second after them."""


@dataclass(frozen=True)
class DateColumn(ColumnKind):
    """Days since 1970, and sine and cosine of the position in the year, the week and, if there is a `clock`, the day."""

    key: ClassVar[str] = "dates"
    stored_type: ClassVar[Any] = bool
    source: ClassVar[str] = "dates"
    learns: ClassVar[bool] = True
    fault_keys: ClassVar[tuple[str, ...]] = ("dates",)
    clock: bool = False
    """Cells have a time of day."""

    @property
    def stored(self) -> bool:
        return self.clock

    @classmethod
    def of(cls, stored: bool) -> DateColumn:  # noqa: FBT001
        return cls(clock=stored)

    def learned(self, cells: Collection[Any]) -> DateColumn:
        moments = filter(None, map(parse_date, cells))
        return DateColumn(any(moment.hour or moment.minute or moment.second for moment in moments))

    def features(self, column: str) -> list[str]:
        cycles = ("year", "week", *["time"] * self.clock)
        return [f"{column}:day", *(f"{column}:{wave} of {cycle}" for cycle in cycles for wave in ("sin", "cos"))]

    def parse(self, cell: Any) -> float:
        if (moment := parse_date(cell)) is None:
            raise ValueError
        return float((moment - _EPOCH) // _SECOND)

    def fault(self, cell: Any, *, advises: bool) -> str:
        return f"`{str(cell)[:60]}` is no date such as 2024-05-31 or 2024-05-31T12:00"

    def compute(self, xp: Any, raw: Any) -> Any:
        """Return the features (n, 5 or 7).

        The day of the year is computed from days since 0000-03-01, in eras of 400 years ending on a leap day.
        """
        seconds = xp.floor(double(raw))
        days = xp.floor(seconds / DAY_S)
        rest = seconds - days * DAY_S
        hour = xp.floor(rest / 3600)
        minute = xp.floor((rest - hour * 3600) / 60)
        time = (hour + minute / 60 + (rest - hour * 3600 - minute * 60) / 3600) / 24
        in_era = _remainder(xp, days + 719468, 146097)
        leaps = xp.floor(in_era / 1460) - xp.floor(in_era / 36524) + xp.floor(in_era / 146096)
        year = xp.floor((in_era - leaps) / 365)
        since_march = in_era - (365 * year + xp.floor(year / 4) - xp.floor(year / 100))
        is_leap = (_remainder(xp, year, 4) == 0) & ((_remainder(xp, year, 100) != 0) | (year == 0))
        in_year = xp.where(since_march >= 306, since_march - 306, since_march + 59 + double(is_leap))
        shares = [in_year / 365.25, _remainder(xp, days + 3, 7) / 7, *[time] * self.clock]  # 1970-01-01 was a Thursday
        waves = [wave(2 * math.pi * share) for share in shares for wave in _waves(xp)]
        return xp.stack([days + time if self.clock else days, *waves], axis=-1)

    def readable(self, xp: Any, raw: Any, *, holes: bool) -> Any:
        fine = (raw >= _FIRST) & (raw < _AFTER_LAST)
        return fine | xp.isnan(raw) if holes else fine

    def draw(self, draw: Any, mean: float, std: float, count: int) -> NDArray[Any]:
        import numpy as np

        days = np.clip(super().draw(draw, mean, max(std, 400), count), -700_000, 2_900_000)
        seconds: NDArray[Any] = np.floor(days * DAY_S) if self.clock else np.floor(days) * DAY_S
        return seconds


def _remainder(xp: Any, numbers: Any, divisor: int) -> Any:
    return numbers - divisor * xp.floor(numbers / divisor)


def _waves(xp: Any) -> tuple[Any, Any]:
    """Return sine and cosine. numpy's depend on the processor in the last bit, Python's less so."""
    if not hasattr(xp, "frompyfunc"):
        return xp.sin, xp.cos
    sine, cosine = (xp.frompyfunc(function, 1, 1) for function in (math.sin, math.cos))
    return (lambda angles: sine(angles).astype("float64")), (lambda angles: cosine(angles).astype("float64"))
