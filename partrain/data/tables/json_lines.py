"""JSON lines as a table: one object on each line, whose keys are the columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

from partrain.data.base import reading
from partrain.data.tables.files import LineFile
from partrain.errors import InputMissing
from partrain.system.regular_file import parse_json


class JsonLines(LineFile):
    """A file of JSON lines. The first line has all columns; `null` is a missing value. Empty lines are skipped."""

    def _getter(self, name: str) -> Callable[[Any], Any]:
        return itemgetter(name)

    def _header(self) -> list[str]:
        for line, row in self._rows(dense=False):
            if not isinstance(row, dict) or not row:
                raise InputMissing(
                    f"{self.path}:{line}: expected a JSON object with a value for each column, on a line of its own"
                )
            return list(row)
        raise InputMissing(f"{self.path}: is empty: expected a JSON object on each line")

    def _fault(self, line: int, row: Any) -> str:
        if not isinstance(row, dict):
            return f"{self.path}:{line}: is no JSON object"
        if lacking := [name for name in self.names if name not in row]:
            return f"{self.path}:{line}: has no key `{lacking[0]}`, which line 1 has; give null for a missing value"
        if nested := [name for name in self.names if isinstance(row[name], list | dict)]:
            return f"{self.path}:{line}: `{nested[0]}` holds {type(row[nested[0]]).__name__}, and a cell of a table is one value"
        return ""

    def _rows(self, *, dense: bool) -> Iterator[tuple[int, Any]]:
        """Yield number and value of each line that is not empty; the value is None where it is no JSON."""
        with reading(self.path, "not UTF-8 text", UnicodeError), self.path.open(encoding="utf-8-sig") as file:
            for number, text in enumerate(file, 1):
                if text.strip():
                    try:
                        yield number, parse_json(text)
                    except ValueError:
                        yield number, None
