"""Problems of a text, each with the place to look at: a line of a file, or the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from partrain.errors import BadJob, InputMissing

KeyPath = tuple[str | int, ...]
"""Where a value stands in the parsed text, such as ``("workers", 0, "count")``."""
Span = tuple[int, int]
"""Characters of a text, as in ``text[start:end]``."""
Severity = Literal["error", "warning"]


class Finding(NamedTuple):
    """What is wrong with the value at a path, before it has a place in a text."""

    path: KeyPath
    message: str
    suggestion: str = ""
    at: Literal["key", "value"] = "value"
    severity: Severity = "error"


class FileFinding(Finding):
    """What is wrong with a file that the value at a path names."""


@dataclass(frozen=True)
class Problem:
    """What is wrong at one place of a file, or of the command line (`line` 0); lines and columns count from 1."""

    place: str
    """The file, or the override."""
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

    def render(self) -> str:
        """As any failure; a problem that is the only one is said once."""
        return super().render().replace(f"{self.message}\n{self.message}\n", f"{self.message}\n")


class Unreadable(Rejected):
    """A job without a fault of its own, that names files with faults."""

    code, name = InputMissing.code, InputMissing.name


class UnfitOverrides(Rejected):
    """Overrides that do not fit a job; `fitting` are the others, for what else is wrong to be looked at."""

    def __init__(self, problems: Iterable[Problem], fitting: Sequence[str]) -> None:
        super().__init__(problems)
        self.fitting = fitting


@dataclass(frozen=True)
class SourceText:
    """A text with a name that users know it by: a file, or one override of the command line."""

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


def did_you_mean(word: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the name closest to a word, or "" if none is similar; `cutoff`: the least similarity, 0 to 1."""
    from difflib import get_close_matches  # imported only where something is wrong

    return next(iter(get_close_matches(word[:100], list(names), 1, cutoff)), "")


def shown(text: str, limit: int = 1000) -> str:
    """A text fit for a terminal: what is invisible is escaped, what is too long is cut (at the front if `limit` < 0)."""
    text = text.replace("\t", "    ")
    text = text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    if len(text) <= abs(limit):
        return text
    return text[: limit - 1] + "…" if limit > 0 else "…" + text[limit + 1 :]
