"""The text of a job with places: where every key, value and table header stands, and problems that point there.

A file is read once, then scanned for places and limits, parsed by `tomllib`, and only then changed by `--set key=value`
overrides, whose place is the command line. Nothing here knows what the keys mean.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal, NamedTuple

from partrain.errors import BadJob, InputMissing

MAX_BYTES = 2**20
MAX_KEYS = 10_000
MAX_DEPTH = 32
MAX_NUMBER = 400
"""Characters of a number; Python refuses to print integers of more than 4,300 digits."""

KeyPath = tuple[str | int, ...]
"""Where a value stands in the parsed text, such as ``("workers", 0, "count")``."""
Span = tuple[int, int]
"""Characters of a text, as in ``text[start:end]``."""
Severity = Literal["error", "warning"]


# What is wrong, and where


class Finding(NamedTuple):
    """What is wrong with the value at a path, before it has a place in a text."""

    path: KeyPath
    message: str
    suggestion: str = ""
    at: Literal["key", "value"] = "value"
    severity: Severity = "error"


@dataclass(frozen=True)
class Problem:
    """What is wrong at one place of a file, or of the command line (`line` 0); lines and columns count from 1."""

    place: str
    """The file, or the `--set` text."""
    line: int
    column: int
    end_column: int
    """One past the last column; equal to `column` where no single place is to blame."""
    message: str
    suggestion: str = ""
    severity: Severity = "error"
    excerpt: tuple[str, str, str] = ("", "", "")
    """The line of text: what precedes the place, the place, what follows."""

    @property
    def summary(self) -> str:
        """One line: place, then message."""
        where = f"{self.place}:{self.line}:{self.column}" if self.line else self.place
        return f"{where}: {'warning: ' if self.severity == 'warning' else ''}{self.message}"

    def render(self) -> str:
        """The summary, then the line with carets under the place and the suggestion behind them."""
        if self.column == self.end_column:
            return f"{self.summary}\n   | {self.suggestion}".removesuffix("\n   | ")
        before, blamed, _ = self.excerpt
        number = f"{self.line or '':>2} "
        gutter = " " * len(number)
        carets = f"{' ' * len(before)}{'^' * len(blamed)} {self.suggestion}".rstrip()
        return f"{self.summary}\n{gutter}|\n{number}| {''.join(self.excerpt).rstrip()}\n{gutter}| {carets}"

    def as_dict(self) -> dict[str, str | int]:
        """The problem as a JSON object."""
        return {key: value for key, value in vars(self).items() if key != "excerpt"}


def by_line(problems: Iterable[Problem]) -> list[Problem]:
    """The command line's problems as they came, then the file's in the order of its lines."""
    return sorted(problems, key=lambda p: (p.line, p.column if p.line else 0))


class Rejected(BadJob):
    """A job with problems: the message is the first error, the detail shows all of them in the order of their lines."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = by_line(problems)
        first, *others = [p.summary for p in self.problems if p.severity == "error"]
        more = f", and {len(others):,} more problem{'s' * (len(others) > 1)}" if others else ""
        shown = [p.render() for p in self.problems[:100]]
        left = [f"... and {len(self.problems) - 100:,} more"] if len(self.problems) > 100 else []
        super().__init__(first + more, "\n\n".join(shown + left))


@dataclass(frozen=True)
class Text:
    """A text with a name that users know it by: a file, or one `--set` argument."""

    name: str
    content: str
    command_line: bool = False

    def problem(self, span: Span, message: str, suggestion: str = "", severity: Severity = "error") -> Problem:
        """A problem at these characters (as far as they stand in one line)."""
        start, end = span
        first = self.content.rfind("\n", 0, start) + 1
        last = self.content.find("\n", start)
        last = len(self.content) if last < 0 else last
        end = start if end == start else max(min(end, last), start + 1)
        before = shown(self.content[max(first, start - 61) : start], -60)
        blamed = shown(self.content[start : min(end, last, start + 61)], 60) or " "
        after = shown(self.content[end : min(last, end + 61)].rstrip("\r"), 60)
        line = 0 if self.command_line else self.content.count("\n", 0, start) + 1
        return Problem(
            shown(self.name, 120),
            line,
            start - first + 1,
            end - first + 1,
            shown(message),
            shown(suggestion),
            severity,
            (before, blamed, after),
        )


def shown(text: str, limit: int = 1000) -> str:
    """A text fit for a terminal: what is invisible is escaped, what is too long is cut (at the front if `limit` < 0)."""
    text = text.replace("\t", "    ")
    text = text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    if len(text) <= abs(limit):
        return text
    return text[: limit - 1] + "…" if limit > 0 else "…" + text[limit + 1 :]


# Where everything stands


class Mark(NamedTuple):
    """Where a path stands: its key, and its value, which for a table is the header that opens it."""

    key: Span
    value: Span
    text: Text


class _NotToml(ValueError):
    """The scanner does not understand the text; `tomllib` will say what is wrong."""


class Refused(Exception):
    """TOML perhaps, but nothing for a job; the place is in the text at hand."""

    def __init__(self, message: str, span: Span) -> None:
        super().__init__(message)
        self.message, self.span = message, span


_SPACE = re.compile(r"[ \t]*+")
_BLANK = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*+")
_KEY = re.compile(r"""[A-Za-z0-9_-]++|"(?:[^"\\\n]++|\\.)*+"|'[^'\n]*+'""")
_STRING = re.compile(
    r'"""(?:[^"\\]++|\\[\s\S]|"(?!""))*+"{3,5}'
    r"|'''(?:[^']++|'(?!''))*+'{3,5}"
    r'|"(?:[^"\\\n]++|\\.)*+"'
    r"|'[^'\n]*+'"
)
_UNCLOSED = ("Illegal character '\\n'", "Unterminated string", 'Expected "\'"', "Expected \"'''\"")
_WORD = re.compile(r"[^\s,=\[\]{}#\"']*+")
_SCALAR = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9:.+Zz-]*+|[^\s,\[\]{}#\"'=]++")


class Scanner:
    """Finds where each key, value and header of a text stands, in one pass whose time is linear in the text.

    It reads what `tomllib` accepts and does not care what else it reads; being first, it also keeps from the parser what
    would cost it its stack or minutes.
    """

    def __init__(self, text: Text, start: int = 0) -> None:
        self.text = text
        self.content = text.content
        self.position = start
        self.marks: dict[KeyPath, Mark] = {}
        self.twice: tuple[Span, Span] | None = None
        """The first key or header that stands there twice."""
        self._lists: dict[KeyPath, int] = {}
        self._closed: set[KeyPath] = set()

    def document(self) -> None:
        """Scan statements up to the end, or to the first thing that is no TOML."""
        table: KeyPath = ()
        with suppress(_NotToml):
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
        if path in self.marks:
            self.twice = self.twice or (self.marks[path].key, span)
        self._mark(path, span, self._value(path))

    def keys(self) -> list[tuple[str, Span]]:
        """Scan a key, dotted or not: its parts, each with its place."""
        keys: list[tuple[str, Span]] = []
        while True:
            self._skip(_SPACE)
            match = self._match(_KEY)
            keys.append((_unquoted(match[0]), match.span()))
            if len(keys) > MAX_DEPTH:
                raise Refused(f"a key of more than {MAX_DEPTH} parts", (keys[0][1][0], match.end()))
            self._skip(_SPACE)
            if not self._accept("."):
                return keys

    def expect(self, token: str) -> None:
        """Step over a token that must come here."""
        if not self._accept(token):
            raise _NotToml

    def _header(self) -> KeyPath:
        """Scan ``[table]`` or ``[[table]]``: the path of the table it opens."""
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
            if path not in self.marks:
                self._mark(path, span, whole)
            path = (*path, index)
        elif path in self._closed or path in self._lists:
            self.twice = self.twice or (self.marks[path].value, whole)
        self._closed.add(path)
        self._mark(path, span, whole)
        return path

    def _descend(self, table: KeyPath, keys: Sequence[tuple[str, Span]], whole: Span) -> KeyPath:
        """The path of the table that keys lead to, in the newest element of any list of tables; implied tables get a mark."""
        for name, span in keys:
            table = (*table, name)
            if table not in self.marks:
                self._mark(table, span, whole)
            if table in self._lists:
                table = (*table, self._lists[table] - 1)
        return table

    def _value(self, path: KeyPath) -> Span:
        start = self.position
        if len(path) > MAX_DEPTH:
            raise Refused(f"nested more than {MAX_DEPTH} deep", (start, start + 1))
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
            raise Refused(f"a number of {len(match[0]):,} characters", match.span())
        with suppress(ValueError):
            if len(match[0]) > 18 and not -(2**63) <= int(match[0], 0) < 2**63:
                raise Refused("an integer of more than 64 bits", match.span())

    def _mark(self, path: KeyPath, key: Span, value: Span) -> None:
        self.marks[path] = Mark(key, value, self.text)
        if len(self.marks) > MAX_KEYS:
            raise Refused(f"more than {MAX_KEYS:,} keys", key)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self.content, self.position)
        if not match:
            raise _NotToml
        self.position = match.end()
        return match

    def _skip(self, pattern: re.Pattern[str]) -> int:
        self.position = self._match(pattern).end()
        return self.position

    def _accept(self, token: str) -> bool:
        found = self.content.startswith(token, self.position)
        self.position += len(token) if found else 0
        return found


def _unquoted(key: str) -> str:
    """What a key says, quoted or bare."""
    if key[0] != '"':
        return key.strip("'")
    try:
        (name,) = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        raise _NotToml from None
    return name


# The text and what it says


@dataclass(frozen=True)
class Source:
    """The text of a job, what it says, and where."""

    text: str
    """The TOML text, overrides applied."""
    data: dict[str, Any]
    marks: dict[KeyPath, Mark]
    """Places in the text as the user has it: the file before overrides, or the command line."""
    file: Text

    @classmethod
    def read(cls, path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Source:
        """The job in a file; `InputMissing` if there is none, `Rejected` if it is no TOML or an override does not fit."""
        name = os.fspath(path)
        return cls.parse(_decode(read_bytes(name), name), name, overrides)

    @classmethod
    def parse(cls, text: str, name: str, overrides: Sequence[str] = ()) -> Source:
        """The job in a text; `Rejected` if it is no TOML or an override does not fit."""
        file = Text(name, text)
        scanner = Scanner(file)
        try:
            scanner.document()
            data = tomllib.loads(text)
        except Refused as limit:
            raise Rejected([file.problem(limit.span, limit.message)]) from None
        except tomllib.TOMLDecodeError as error:
            raise Rejected([_syntax_problem(file, str(error), scanner)]) from None
        except (ValueError, RecursionError):
            raise Rejected([file.problem((0, 0), "cannot be read as TOML")]) from None
        source = cls(text, data, scanner.marks, file)
        return override(source, overrides) if overrides else source

    def problem(self, finding: Finding) -> Problem:
        """A finding with its place: the key or value itself, else the header of the innermost table that is there."""
        path, message, suggestion, at, severity = finding
        mark, at_value = self.marks.get(path), at == "value"
        while mark is None and path:
            path, at_value = path[:-1], True
            mark = self.marks.get(path)
        if mark is None:
            return self.file.problem((0, 0), message, suggestion, severity)
        return mark.text.problem(mark.value if at_value else mark.key, message, suggestion, severity)


def read_bytes(name: str) -> bytes:
    """The bytes of a regular file of moderate size, read once and without ever waiting for a pipe or a device."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode):
                raise InputMissing(f"{shown(name)} is a folder; a job is one TOML file")
            if not stat.S_ISREG(mode):
                raise InputMissing(f"{shown(name)} is no regular file")
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(MAX_BYTES + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise InputMissing(f"no such file: {shown(name)}{_neighbour(name)}") from None
    except OSError as error:
        raise InputMissing(f"cannot read {shown(name)}: {error.strerror}") from None
    except ValueError as error:
        raise InputMissing(f"cannot read {shown(name)}: {error}") from None
    if len(data) > MAX_BYTES:
        raise InputMissing(f"{shown(name)} is larger than 1 MiB; that is no job file")
    return data


def _neighbour(name: str) -> str:
    """The TOML file in the same folder that was perhaps meant."""
    from difflib import get_close_matches

    folder, file = os.path.split(name)
    try:
        names = [entry for entry in os.listdir(folder or ".") if entry.endswith(".toml")]  # noqa: PTH208
    except (OSError, ValueError):
        return ""
    close = get_close_matches(file if file.endswith(".toml") else f"{file}.toml", names[:1000], n=1)
    return f"; did you mean {shown(os.path.join(folder, close[0]))}?" if close else ""  # noqa: PTH118


def _decode(data: bytes, name: str) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        shown = Text(name, data.decode(errors="backslashreplace"))
        start = len(data[: error.start].decode())
        reason = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise Rejected([shown.problem((start, start + 4), reason, "save the file as UTF-8")]) from None
    if text.startswith("\ufeff"):
        problem = Text(name, text).problem((0, 1), "a byte order mark", "save the file as UTF-8 without it")
        raise Rejected([problem])
    return text


def _syntax_problem(file: Text, error: str, scanner: Scanner) -> Problem:
    """What `tomllib` found, in its words or better ones; it gives the place only as text."""
    match = re.fullmatch(
        r"(?P<what>.*) \((?:at line (?P<line>\d+), column (?P<column>\d+)|at end of document)\)", error, re.DOTALL
    )
    what = match["what"] if match else error
    if scanner.twice and what.startswith(("Cannot", "Duplicate")):
        (first, _), span = scanner.twice
        line = file.content.count("\n", 0, first) + 1
        return file.problem(span, f"`{file.content[slice(*span)]}` is given twice, first in line {line}")
    if match and match["line"]:
        lines = file.content.split("\n")[: int(match["line"]) - 1]
        start = sum(len(line) + 1 for line in lines) + int(match["column"]) - 1
    else:
        start = len(file.content.rstrip())
    word = match[0] if (match := _WORD.match(file.content, start)) else ""
    span = (start, start + max(len(word), 1))
    if what == "Invalid value" and re.fullmatch(r"[A-Za-z_][\w.:/-]*", word):
        legal = {"True": "true", "False": "false"}.get(word, f'"{word}"')
        return file.problem(span, f"`{word}` is no value", f"write {legal}")
    if what in _UNCLOSED:
        return file.problem((scanner.position, len(file.content)), "a string that is not closed", "close it with a quote")
    return file.problem(span, f"no valid TOML: {what[:1].lower()}{what[1:]}")


# Overrides


def override(source: Source, arguments: Sequence[str]) -> Source:
    """The source with ``key=value`` arguments applied to its data, its text (comments kept) and its places."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    data, marks, problems = tomllib.loads(source.text), dict(source.marks), []
    changes: list[tuple[KeyPath, Any]] = []
    for argument in arguments:
        text = Text(f"--set {argument}", f"--set {argument}", command_line=True)
        try:
            path, value, places = _change(text, data)
        except Refused as limit:
            problems.append(text.problem(limit.span, limit.message))
            continue
        _assign(data, path, value)
        changes.append((path, value))
        marks = {old: mark for old, mark in marks.items() if old[: len(path)] != path}
        marks.update((new, mark) for new, mark in places.items() if len(new) >= len(path) or new not in marks)
    if problems:
        raise Rejected(problems)
    try:
        document = tomlkit.parse(source.text)
        for path, value in changes:
            _assign(document, path, value)
        written = tomlkit.dumps(document)
        exact = tomllib.loads(written) == data
    except (TOMLKitError, ValueError, LookupError, TypeError, AttributeError):
        exact = False
    return Source(written if exact else tomlkit.dumps(data), data, marks, source.file)


def _change(text: Text, data: dict[str, Any]) -> tuple[KeyPath, Any, dict[KeyPath, Mark]]:
    """What one override sets, to which value, and the places of both on the command line."""
    start = len("--set ")
    scanner = Scanner(text, start)
    try:
        keys = scanner.keys()
        scanner.expect("=")
    except _NotToml:
        raise Refused("expected key=value", (start, len(text.content))) from None
    end = len(text.content)
    path = _resolve(data, keys)
    raw = text.content[scanner.position :]
    behind = (min(scanner.position, end - 1), end)
    spans: dict[KeyPath, Mark] = {}
    for _, span in keys:
        spans[path[: len(spans) + 1]] = Mark(span, behind, text)
    value: Any = raw
    with suppress(ValueError):
        if "\n" not in raw:
            scanner = Scanner(text, start)
            scanner.pair(())
            value, spans = tomllib.loads(f"value = {raw}")["value"], scanner.marks
    return path, value, {(*path[: len(p)], *p[len(path) :]): mark for p, mark in spans.items()}


def _resolve(data: Any, keys: Sequence[tuple[str, Span]]) -> KeyPath:
    """The path that keys lead to in the data, where ``workers.0`` is an element of a list."""
    path: KeyPath = ()
    for name, span in keys:
        if isinstance(data, list):
            if not re.fullmatch(r"[0-9]{1,6}", name) or int(name) >= len(data):
                legal = (
                    f"its elements are 0 to {len(data) - 1}"
                    if len(data) > 1
                    else "its only element is 0"
                    if data
                    else "it is empty"
                )
                raise Refused(f"`{'.'.join(map(str, path))}` has no element `{name}`: {legal}", span)
            path, data = (*path, int(name)), data[int(name)]
        elif isinstance(data, dict):
            path, data = (*path, name), data.get(name, {})
        else:
            raise Refused(f"`{'.'.join(map(str, path))}` is no table", span)
    return path


def _assign(container: Any, path: KeyPath, value: Any) -> None:
    """Set what stands at a path, in plain data or in a tomlkit document; tables on the way are made."""
    for part in path[:-1]:
        if isinstance(container, dict) and part not in container:
            container[part] = {}
        container = container[part]
    container[path[-1]] = value
