"""JSON as a table: objects whose keys are the columns, one on each line or all in a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from partrain.data.base import reading
from partrain.data.tables.files import LineFile
from partrain.errors import InputMissing
from partrain.system.regular_file import parse_json

CLASS = "output"
"""Key of an object that names a class if the object has a single key, with the number 1, in all rows: brain.js writes classes
this way."""
EXPECTED = "expected a JSON object with a value for each column on each line, or a list of such objects"


class JsonRows(LineFile):
    """A file of JSON objects. The columns are the keys of all objects; a row without a key has no value there.

    Keys of an object within a row are also columns: `r` of `{"input": {"r": 0.5}}`, or `input.r` if there is another `r`.
    """

    def locate(self, number: int) -> str:
        return super().locate(number) if self._list is None else f"{self.path}: row {number}"

    @property
    def header_location(self) -> str:
        return str(self.path)

    @cached_property
    def _list(self) -> list[Any] | None:
        """The rows of a file that is a list; None if its rows are lines."""
        with reading(self.path, "not UTF-8 text", UnicodeError), self.path.open(encoding="utf-8-sig") as file:
            start = file.read(1 << 12)
            if start.lstrip()[:1] != "[":
                return None
            try:
                rows: list[Any] = parse_json(start + file.read())
            except ValueError as error:
                raise InputMissing(f"{self.path}:{getattr(error, 'lineno', 1)}: {getattr(error, 'msg', error)}") from None
        return rows

    def _getter(self, name: str) -> Callable[[Any], Any]:
        key, *rest = self._paths[name]
        if key in self._classes:
            return lambda row: next(iter(row.get(key) or ()), None)
        if rest:
            return lambda row: inner.get(rest[0]) if isinstance(inner := row.get(key), dict) else None
        return lambda row: row.get(key)

    def _header(self) -> list[str]:
        paths, plain, classes = dict[tuple[str, ...], None](), set[str](), {CLASS}
        for line, row in self._rows(dense=False):
            if not paths and not (isinstance(row, dict) and row):
                raise InputMissing(f"{self.locate(line)}: {EXPECTED}")
            for key, value in row.items() if isinstance(row, dict) else ():
                nested = isinstance(value, dict)
                paths.update(dict.fromkeys((key, inner) for inner in value) if nested else {(key,): None})
                if not nested and value is not None:
                    plain.add(key)
                if value and not (nested and list(value.values()) == [1]):
                    classes.discard(key)
        if not paths:
            raise InputMissing(f"{self.path}: is empty: {EXPECTED}")
        objects = {key for key, *rest in paths if rest}
        self._classes = classes & objects
        kept = dict.fromkeys(
            path[:1] if path[0] in self._classes else path
            for path in paths
            if path[1:] or path[0] in plain or path[0] not in objects
        )
        times = Counter(path[-1] for path in kept)
        self._paths = {path[-1] if times[path[-1]] == 1 else ".".join(path): path for path in kept}
        return list(self._paths)

    def _fault(self, line: int, row: Any) -> str:
        if not isinstance(row, dict):
            return f"{self.locate(line)}: is no JSON object"
        for name, get in self._getters.items():
            if isinstance(cell := get(row), list | dict):
                return f"{self.locate(line)}: `{name}` holds {type(cell).__name__}, and a cell of a table is one value"
        return ""

    @cached_property
    def _getters(self) -> dict[str, Callable[[Any], Any]]:
        return {name: self._getter(name) for name in self.names}

    def _rows(self, *, dense: bool) -> Iterator[tuple[int, Any]]:
        """Yield number and value of each row; the value is None if a line is not JSON. Empty lines are skipped."""
        if self._list is not None:
            yield from enumerate(self._list, 1)
            return
        with reading(self.path, "not UTF-8 text", UnicodeError), self.path.open(encoding="utf-8-sig") as file:
            for number, text in enumerate(file, 1):
                if text.strip():
                    try:
                        yield number, parse_json(text)
                    except ValueError:
                        yield number, None
