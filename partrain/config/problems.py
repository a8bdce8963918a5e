"""Problems of a text, each with its position: a line of a file, or the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal, NamedTuple

from partrain.errors import BadJob, InputMissing

KeyPath = tuple[str | int, ...]
"""Path of a value in the parsed text, such as ``("workers", 0, "count")``."""
Span = tuple[int, int]
"""Characters of a text, as in ``text[start:end]``."""
Severity = Literal["error", "warning"]


class Finding(NamedTuple):
    """A problem with the value at a path, before it has a position in a text."""

    path: KeyPath
    message: str
    suggestion: str = ""
    at: Literal["key", "value"] = "value"
    severity: Severity = "error"


class FileFinding(Finding):
    """A problem with a file that the value at a path names."""


IN_PYTHON = "Job"
"""Name of the text of a job made in Python. Its problems are named by keys: the user did not write its lines."""
_HEADER = re.compile(r"(?:write|add) \[+(\w+)\]+ and below it (\w+) = (.+)")
"""Advice to write a table, in a file's words."""


@dataclass(frozen=True)
class Problem:
    """A problem at one place of a file, or of the command line (`line` 0). Lines and columns count from 1."""

    place: str
    """The file, or the override."""
    line: int
    column: int
    end_column: int
    """One past the last column; equal to `column` if there is no single place."""
    message: str
    suggestion: str = ""
    severity: Severity = "error"
    excerpt: tuple[str, str, str] = ("", "", "")
    """The line of text: before the place, the place itself, after it."""

    @classmethod
    def in_python(cls, finding: Finding) -> Problem:
        """Name a problem of a job made in Python by its key."""
        path, message, suggestion, _, severity = finding
        suggestion = _HEADER.sub(r'give \1={"\2": \3}', suggestion)
        return cls(f"{IN_PYTHON}: {'.'.join(map(str, path))}", 0, 0, 0, message, suggestion, severity)

    @property
    def summary(self) -> str:
        """One line: place, then message."""
        where = f"{self.place}:{self.line}:{self.column}" if self.line else self.place
        return f"{where}: {'warning: ' if self.severity == 'warning' else ''}{self.message}"

    def render(self) -> str:
        """Return the summary, then the line with carets under the place, followed by the suggestion."""
        if self.column == self.end_column:
            return f"{self.summary}\n   | {self.suggestion}".removesuffix("\n   | ")
        before, blamed, _ = self.excerpt
        number = f"{self.line or '':>2} "
        gutter = " " * len(number)
        carets = f"{' ' * len(before)}{'^' * len(blamed)} {self.suggestion}".rstrip()
        return f"{self.summary}\n{gutter}|\n{number}| {''.join(self.excerpt).rstrip()}\n{gutter}| {carets}"

    def as_dict(self) -> dict[str, str | int]:
        """Return the problem as a JSON object."""
        return {key: value for key, value in vars(self).items() if key != "excerpt"}


def by_line(problems: Iterable[Problem]) -> list[Problem]:
    """Sort problems: command-line problems in their order, then problems of the file by line."""
    return sorted(problems, key=lambda p: (p.line, p.column if p.line else 0))


class Rejected(BadJob):
    """A job with problems: the message is the first error, the detail shows all errors, then the warnings, in the order of their lines."""

    def __init__(self, problems: Iterable[Problem], detail: str = "") -> None:
        """Make the error; `detail` holds lines to show below the problems."""
        self.problems = by_line(problems)
        first, *others = [p.summary for p in self.problems if p.severity == "error"]
        more = f", and {len(others):,} more problem{'s' * (len(others) > 1)}" if others else ""
        self._first = first
        shown = [p.render() for p in sorted(self.problems, key=lambda p: p.severity != "error")[:100]]
        left = [f"... and {len(self.problems) - 100:,} more"] if len(self.problems) > 100 else []
        super().__init__(first + more, "\n\n".join(shown + left + [detail] * bool(detail)))

    @classmethod
    def in_python(cls, problems: Iterable[Problem]) -> Rejected:
        """Make the exception for a job made in Python.

        A traceback shows only its text, so the text contains all problems and suggestions.
        """
        made = cls(problems)
        made.args = ("\n".join(f"{problem.summary}; {problem.suggestion}".removesuffix("; ") for problem in made.problems),)
        return made

    def render(self) -> str:
        """Render like `Failure.render`, but do not repeat the first error."""
        return super().render().replace(f"{self.message}\n{self._first}\n", f"{self.message}\n", 1)


class WrongValue(BadJob):
    """A value of the job that contradicts its data, network or files, found after the job was loaded.

    `LoadedJob` knows its place.
    """

    def __init__(self, finding: Finding, detail: str = "", prefix: str = "") -> None:
        """Make the error; `detail` holds further lines, and `prefix` replaces table and key if the message names the key."""
        what = f"{finding.message}; {finding.suggestion}" if finding.suggestion else finding.message
        super().__init__(f"{prefix or _heading(finding.path)} {what}", detail)
        self.finding = finding


def _heading(path: KeyPath) -> str:
    """Return table and key before a message: `[model] freeze:`, `[[optimizer.groups]] match:`; messages about a name start so."""
    for at in range(1, len(path) - 1):
        if isinstance(path[at], int) and isinstance(path[at + 1], str):
            return f"[[{'.'.join(map(str, path[:at]))}]] {path[at + 1]}:"
    return f"[{path[0]}]" if path[1:] in ((), ("name",)) else f"[{path[0]}] {path[1]}:"


class Unreadable(Rejected):
    """A valid job that names data files with errors: a BadJob with the exit code and name of InputMissing, but not one."""

    code, name = InputMissing.code, InputMissing.name


class UnfitOverrides(Rejected):
    """Overrides that do not fit a job. `fitting` holds the other overrides, so that further problems can be found with them."""

    def __init__(self, problems: Iterable[Problem], fitting: Sequence[str]) -> None:
        super().__init__(problems)
        self.fitting = fitting


@dataclass(frozen=True)
class SourceText:
    """A text with a name for users: a file, or one override on the command line."""

    name: str
    content: str
    command_line: bool = False

    def problem(self, span: Span, message: str, suggestion: str = "", severity: Severity = "error") -> Problem:
        """Make a problem at these characters, as far as they are on one line."""
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


def did_you_mean(word: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the name closest to a word, or "" if none is similar; `cutoff`: the smallest similarity, 0 to 1."""
    from difflib import get_close_matches  # slow to import, and only needed for a wrong word

    return next(iter(get_close_matches(word[:100], list(names), 1, cutoff)), "")


def similar_file(file: str, names: Iterable[str]) -> str:
    """Return the existing file name closest to a missing one, or "" if none is close.

    Suffixes, which most share, do not count.
    """
    stems: dict[str, str] = {}
    for name in names:
        stems.setdefault(PurePath(name).stem.lower(), name)
    return stems.get(did_you_mean(PurePath(file).stem.lower(), stems, cutoff=0.75), "")


def shown(text: str, limit: int = 1000) -> str:
    """Make a text safe for a terminal: escape invisible characters, cut a long text (at the front if `limit` < 0)."""
    text = text.replace("\t", "    ")
    text = text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    if len(text) <= abs(limit):
        return text
    return text[: limit - 1] + "…" if limit > 0 else "…" + text[limit + 1 :]
