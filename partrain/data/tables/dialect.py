"""The format of tables in text files: separators, encoding, numbers, and texts that mean no value."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Self

from partrain.data.tables.date_formats import date_writer

MINUS = "\u2212"
"""The minus sign of Unicode, which typeset tables have in place of the hyphen."""
BRACKETS = str.maketrans("", "", "()")


@dataclass(frozen=True)
class Dialect:
    """The format of text files, as given by keys of a `[dataset]` table; `sections.HasDialect` explains each."""

    separator: str | None = None
    encoding: str = "utf-8"
    decimal: str = "."
    thousands: str = ""
    number_marks: str = ""
    date_format: tuple[str, ...] = ()
    null_values: tuple[str, ...] | None = None

    @classmethod
    def of(cls, section: Any) -> Self:
        """Read the keys that a section has."""
        values: dict[str, Any] = {field.name: getattr(section, field.name, field.default) for field in fields(cls)}
        nulls, forms = values.pop("null_values"), values.pop("date_format")
        return cls(**values, date_format=tuple(forms), null_values=None if nulls is None else tuple(nulls))

    @property
    def rewrite(self) -> Callable[[str], str] | None:
        """Function that writes numbers in Python's notation and dates in ISO 8601, and keeps other texts; None if not needed."""
        numbers, dates = self._rewrite_numbers, date_writer(self.date_format) if self.date_format else None
        if numbers is None or dates is None:
            return numbers or dates
        return lambda cell: dates(plain) if (plain := numbers(cell)) is cell else plain

    @property
    def _rewrite_numbers(self) -> Callable[[str], str] | None:
        if (self.decimal, self.thousands, self.number_marks) == (".", "", ""):
            return None
        decimal, group, marks = re.escape(self.decimal), re.escape(self.thousands), self.number_marks.replace(MINUS, "") + " "
        minus = MINUS in self.number_marks
        whole = rf"(?:[0-9]{{1,3}}(?:{group}[0-9]{{3}})+|[0-9]+)" if group else "[0-9]+"
        number = re.compile(rf"(?:{whole}(?:{decimal}[0-9]*)?|{decimal}[0-9]+)(?:[eE][+-]?[0-9]+)?")

        def plain(cell: str) -> str:
            text = cell.strip() if self.thousands != " " else cell.strip().replace("\u00a0", " ").replace("\u202f", " ")
            text = text.replace(MINUS, "-") if minus else text
            sign = text[:1] if text[:1] in ("+", "-") else ""
            body = text[len(sign) :].strip(marks)
            if "(" in marks and text[len(sign) :].strip(marks.translate(BRACKETS))[:1] == "(":
                sign = "-"
            if body[:1] in ("+", "-") and not sign:
                sign, body = body[0], body[1:]
            if number.fullmatch(body) is None:
                return cell
            return sign + (body.replace(self.thousands, "") if self.thousands else body).replace(self.decimal, ".")

        return plain


USUAL = Dialect()
"""The format of most files."""
