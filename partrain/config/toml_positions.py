"""Positions in TOML text: the characters of each key, value and table header.

`tomllib` gives no positions. The scanner here does, and decides nothing: `tomllib` alone defines valid TOML.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import NamedTuple

from partrain.config.problems import KeyPath, SourceText, Span

MAX_KEYS = 200_000
MAX_DEPTH = 32
MAX_NUMBER = 400
"""Maximum number of characters of a number; Python refuses to print integers of more than 4,300 digits."""


class Position(NamedTuple):
    """The position of a path: its key, and its value. The value of a table is the header that opens it."""

    key: Span
    value: Span
    text: SourceText


class NotToml(ValueError):
    """The scanner does not understand the text; `tomllib` will report the error."""


class TomlRefused(Exception):
    """The text exceeds a limit for jobs, whether valid TOML or not. `span`: the place in the current text."""

    def __init__(self, message: str, span: Span) -> None:
        super().__init__(message)
        self.message, self.span = message, span


# A repeated group is atomic, (?>(...)*), rather than possessive, (...)*+: Python before 3.11.5 matches the latter wrongly (gh-106052).
_SPACE = re.compile(r"[ \t]*+")
_BLANK = re.compile(r"(?>(?:[ \t\r\n]++|#[^\n]*+)*)")
_KEY = re.compile(r"""[A-Za-z0-9_-]++|"(?>(?:[^"\\\n]++|\\.)*)"|'[^'\n]*+'""")
_STRING = re.compile(
    r'"""(?>(?:[^"\\]++|\\[\s\S]|"(?!""))*)"{3,5}'
    r"|'''(?>(?:[^']++|'(?!''))*)'{3,5}"
    r'|"(?>(?:[^"\\\n]++|\\.)*)"'
    r"|'[^'\n]*+'"
)
_SCALAR = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9:.+Zz-]*+|[^\s,\[\]{}#\"'=]++")


class Scanner:
    """Finds the positions of keys, values and headers in one pass, in time linear in the text.

    It reads everything that `tomllib` accepts, and may read more. It runs before the parser and refuses texts that would overflow
    the parser's stack or occupy it for minutes.
    """

    def __init__(self, text: SourceText, start: int = 0) -> None:
        self.text = text
        self.content = text.content
        self.position = start
        self.positions: dict[KeyPath, Position] = {}
        self._keys = 0
        self.duplicate: tuple[Span, Span] | None = None
        """The first key or header that occurs twice."""
        self._lists: dict[KeyPath, int] = {}
        self._closed: set[KeyPath] = set()

    def document(self) -> None:
        """Scan statements to the end, or to the first text that is not TOML."""
        table: KeyPath = ()
        with suppress(NotToml):
            while self._skip(_BLANK) < len(self.content):
                if self.content[self.position] == "[":
                    table = self._header()
                else:
                    self.pair(table)

    def pair(self, table: KeyPath) -> None:
        """Scan ``key = value``."""
        keys = self.keys()
        self.expect("=")
        self._skip(_SPACE)
        name, span = keys[-1]
        path = (*self._descend(table, keys[:-1], (keys[0][1][0], span[1])), name)
        self._closed.update(path[:length] for length in range(len(table) + 1, len(path) + 1))
        if path in self.positions:
            self.duplicate = self.duplicate or (self.positions[path].key, span)
        self._mark(path, span, self._value(path))

    def keys(self) -> list[tuple[str, Span]]:
        """Scan a key, dotted or not: its parts with their positions."""
        keys: list[tuple[str, Span]] = []
        while True:
            self._skip(_SPACE)
            match = self._match(_KEY)
            keys.append((_unquoted(match[0]), match.span()))
            if len(keys) > MAX_DEPTH:
                raise TomlRefused(f"a key of more than {MAX_DEPTH} parts", (keys[0][1][0], match.end()))
            self._skip(_SPACE)
            if not self._accept("."):
                return keys

    def expect(self, token: str) -> None:
        """Step over a required token."""
        if not self._accept(token):
            raise NotToml

    def _header(self) -> KeyPath:
        """Scan ``[table]`` or ``[[table]]`` and return the path of the table."""
        start = self.position
        brackets = 2 if self.content.startswith("[[", start) else 1
        self.position += brackets
        keys = self.keys()
        self.expect("]" * brackets)
        name, span = keys[-1]
        whole = (start, self.position)
        path = (*self._descend((), keys[:-1], whole), name)
        if brackets == 2 and path not in self._closed:
            index = self._lists.setdefault(path, 0)
            self._lists[path] += 1
            if path not in self.positions:
                self._mark(path, span, whole)
            path = (*path, index)
        elif path in self._closed or path in self._lists:
            self.duplicate = self.duplicate or (self.positions[path].value, whole)
        self._closed.add(path)
        self._mark(path, span, whole)
        return path

    def _descend(self, table: KeyPath, keys: Sequence[tuple[str, Span]], whole: Span) -> KeyPath:
        """Return the path that keys lead to, in the newest element of a list of tables; mark implied tables."""
        for name, span in keys:
            table = (*table, name)
            if table not in self.positions:
                self._mark(table, span, whole)
            if table in self._lists:
                table = (*table, self._lists[table] - 1)
        return table

    def _value(self, path: KeyPath) -> Span:
        start = self.position
        if len(path) > MAX_DEPTH:
            raise TomlRefused(f"nested more than {MAX_DEPTH} deep", (start, start + 1))
        if self._accept("["):
            self._array(path)
        elif self._accept("{"):
            self._inline_table(path)
        elif not (match := _STRING.match(self.content, start)):
            self._scalar(self._match(_SCALAR))
        else:
            self.position = match.end()
        return start, self.position

    def _array(self, path: KeyPath) -> None:
        for index in self._members("]"):
            span = self._value((*path, index))
            self._mark((*path, index), span, span)

    def _inline_table(self, path: KeyPath) -> None:
        for _ in self._members("}"):
            self.pair(path)

    def _members(self, close: str) -> Iterator[int]:
        """Step from comma to comma, up to the closing bracket."""
        for index in count():
            self._skip(_BLANK)
            if self._accept(close):
                return
            yield index
            self._skip(_BLANK)
            if not self._accept(","):
                self.expect(close)
                return

    def _scalar(self, match: re.Match[str]) -> None:
        if len(match[0]) > MAX_NUMBER:
            raise TomlRefused(f"a number of {len(match[0]):,} characters", match.span())
        with suppress(ValueError):
            if len(match[0]) > 18 and not -(2**63) <= int(match[0], 0) < 2**63:
                raise TomlRefused("an integer of more than 64 bits", match.span())

    def _mark(self, path: KeyPath, key: Span, value: Span) -> None:
        self.positions[path] = Position(key, value, self.text)
        self._keys += isinstance(path[-1], str)
        if self._keys > MAX_KEYS:
            raise TomlRefused(f"more than {MAX_KEYS:,} keys", key)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self.content, self.position)
        if not match:
            raise NotToml
        self.position = match.end()
        return match

    def _skip(self, pattern: re.Pattern[str]) -> int:
        self.position = self._match(pattern).end()
        return self.position

    def _accept(self, token: str) -> bool:
        accepted = self.content.startswith(token, self.position)
        self.position += len(token) if accepted else 0
        return accepted


def _unquoted(key: str) -> str:
    """Return the name of a quoted or bare key."""
    if key[0] != '"':
        return key.strip("'")
    try:
        (name,) = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        raise NotToml from None
    return name
