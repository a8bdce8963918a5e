"""Date formats in text files, as patterns of `strftime`. Dates are rewritten to ISO 8601, which all other code reads.

In addition to the directives of `strftime` there is %q, a quarter from 1 to 4. A quarter, a month and a week mean their first
day. A time of day alone is one of 1970-01-01.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_PARTS = {
    "Y": r"(?P<Y>\d{4})",
    "y": r"(?P<y>\d{2})",
    "m": r"(?P<m>\d{1,2})",
    "d": r"(?P<d>\d{1,2})",
    "b": r"(?P<b>[^\W\d_]{3,})\.?",
    "q": r"(?P<q>[1-4])",
    "V": r"(?P<V>\d{1,2})",
    "H": r"(?P<H>\d{1,2})",
    "I": r"(?P<I>\d{1,2})",
    "M": r"(?P<M>\d{2})",
    "S": r"(?P<S>\d{2})",
    "p": r"(?P<p>[AaPp]\.?[Mm]\.?)",
    "%": "%",
}
_SAME = {"B": "b", "G": "Y"}
"""Directives that are read like another one: a month's name in short or in full, the year of a week."""
_TIMES = ("", " %H:%M:%S", " %H:%M", " %I:%M:%S %p", " %I:%M %p")
_DAYS = (
    "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d-%m-%Y", "%m/%d/%y", "%d/%m/%y", "%d.%m.%y",
    "%b %d %Y", "%b %d, %Y", "%d %b %Y", "%d. %b %Y", "%d-%b-%Y", "%d-%b-%y", "%Y-%b-%d", "%Y %b %d",
)  # fmt: skip
USUAL_FORMATS = (
    *(day + time for day in _DAYS for time in _TIMES),
    *(
        "%Y %b",
        "%b %Y",
        "%b-%Y",
        "%b-%y",
        "%Y-%b",
        "%m/%Y",
        "%Y/%m",
        "%Y Q%q",
        "%YQ%q",
        "%Y-Q%q",
        "Q%q %Y",
        "%Y W%V",
        "%YW%V",
        "%Y-W%V",
    ),
    "%H:%M",
    "%H:%M:%S",
    "%I:%M %p",
    "%I:%M:%S %p",
)
"""Date formats that `partrain init` recognises. Of two that differ only in the order of day and month, the US format comes
first."""


def pattern_of(form: str) -> re.Pattern[str]:
    """Compile a format. ValueError if a directive is unknown or occurs twice, or if it determines no day."""
    text, names = "", set[str]()
    for literal, directive in re.findall(r"([^%]*)(?:%(.))?", form):
        text += re.escape(literal).replace(r"\ ", r"\s+")
        if not directive:
            continue
        name = _SAME.get(directive, directive)
        if name not in _PARTS or name in names:
            why = "is there twice" if name in names else f"is unknown; known are {', '.join(f'%{part}' for part in _PARTS)}"
            raise ValueError(f"`{form}`: %{directive} {why}")
        names.add(name)
        text += _PARTS[name]
    clock = "M" in names and names <= {"H", "I", "M", "S", "p"} and names & {"H", "I"}
    if not clock and (not names & {"Y", "y"} or not names & {"m", "b", "q", "V"}):
        needed = "a year (%Y) and a month, quarter or week (%m, %b, %q or %V), or an hour and a minute alone (%H and %M)"
        raise ValueError(f"`{form}`: a form of dates needs {needed}")
    return re.compile(text)


def date_writer(forms: Sequence[str]) -> Callable[[str], str]:
    """Return the function that writes dates in these formats as ISO 8601, and leaves other texts unchanged."""
    patterns = list(map(pattern_of, forms))

    def rewrite(cell: str) -> str:
        text = cell.strip()
        for pattern in patterns:
            if (match := pattern.fullmatch(text)) and (moment := _iso(match.groupdict())):
                return moment
        return cell

    return rewrite


def _iso(part: dict[str, Any]) -> str | None:
    """Return the moment of a match in ISO 8601; None if no such day or time exists."""
    if not part.keys() & {"Y", "y"}:
        part = {**part, "Y": 1970, "m": 1}
    year = int(part["Y"]) if "Y" in part else int(part["y"]) + (1900 if int(part["y"]) >= 69 else 2000)
    if "b" in part:
        month = next((number for number, name in enumerate(MONTHS, 1) if part["b"][:3].lower() == name), 0)
    else:
        month = int(part["m"]) if "m" in part else 3 * int(part.get("q") or 1) - 2
    try:
        day = date.fromisocalendar(year, int(part["V"]), 1) if "V" in part else date(year, month, int(part.get("d") or 1))
    except ValueError:
        return None
    if "H" not in part and "I" not in part:
        return day.isoformat()
    hour, minute, second = (int(part.get(name) or 0) for name in ("H", "M", "S"))
    if "I" in part:
        hour = int(part["I"]) % 12 + 12 * (part.get("p", "a")[0].lower() == "p")
    if hour > 23 or minute > 59 or second > 59 or int(part.get("I") or 1) > 12:
        return None
    return f"{day.isoformat()}T{hour:02}:{minute:02}:{second:02}"
