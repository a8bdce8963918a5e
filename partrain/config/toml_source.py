"""The text of a job: read once, scanned for positions and limits, parsed by `tomllib`, and then changed by overrides.

Nothing here knows the meaning of a key.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from dataclasses import dataclass
from typing import Any

from partrain.config.problems import IN_PYTHON, Finding, KeyPath, Problem, Rejected, SourceText, shown, similar_file
from partrain.config.toml_positions import Position, Scanner, TomlRefused
from partrain.errors import InputMissing

MAX_BYTES = 2**24

_WORD = re.compile(r"[^\s,=\[\]{}#\"']*+")
_UNCLOSED = ("Illegal character '\\n'", "Unterminated string", 'Expected "\'"', "Expected \"'''\"")


@dataclass(frozen=True)
class TomlSource:
    """The text of a job, its data, and the positions of the data."""

    text: str
    """The TOML text with overrides applied."""
    data: dict[str, Any]
    positions: dict[KeyPath, Position]
    """Positions in the user's text: the file before overrides, or the command line."""
    file: SourceText

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> TomlSource:
        """Read and parse a job file. Raises `InputMissing` if it does not exist, `Rejected` if it is not TOML."""
        name = os.fspath(path)
        return cls.parse(_decode(read_bytes(name), name), name)

    @classmethod
    def parse(cls, text: str, name: str) -> TomlSource:
        """Parse the text of a job. Raises `Rejected` if it is not TOML."""
        file = SourceText(name, text)
        scanner = Scanner(file)
        try:
            scanner.document()
            data = tomllib.loads(text)
        except TomlRefused as limit:
            raise Rejected([file.problem(limit.span, limit.message)]) from None
        except tomllib.TOMLDecodeError as error:
            raise Rejected([_syntax_problem(file, str(error), scanner)]) from None
        except (ValueError, RecursionError):
            raise Rejected([file.problem((0, 0), "cannot be read as TOML")]) from None
        return cls(text, data, scanner.positions, file)

    def problem(self, finding: Finding) -> Problem:
        """Add the position to a finding: the key or value itself, else the header of the innermost existing table.

        In a job made in Python, the position is the key.
        """
        if self.file.name == IN_PYTHON:
            return Problem.in_python(finding)
        path, message, suggestion, at, severity = finding
        position, at_value = self.positions.get(path), at == "value"
        while position is None and path:
            path, at_value = path[:-1], True
            position = self.positions.get(path)
        if position is None:
            return self.file.problem((0, 0), message, suggestion, severity)
        return position.text.problem(position.value if at_value else position.key, message, suggestion, severity)


def read_bytes(name: str) -> bytes:
    """Read a regular file of moderate size, once, without ever waiting for a pipe or a device."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode):
                raise InputMissing(f"{shown(name)} is a folder; a job is one TOML file")
            if not stat.S_ISREG(mode):
                raise InputMissing(f"{shown(name)} is not a regular file")
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
        raise InputMissing(f"{shown(name)} is larger than {MAX_BYTES >> 20} MiB, too large for a job file")
    return data


def _neighbour(name: str) -> str:
    """Suggest a TOML file of the same folder with a similar name."""
    folder, file = os.path.split(name)
    try:
        names = [entry for entry in os.listdir(folder or ".") if entry.endswith(".toml")]  # noqa: PTH208
    except (OSError, ValueError):
        return ""
    near = similar_file(file, names[:1000])
    return f"; did you mean {shown(os.path.join(folder, near))}?" if near else ""  # noqa: PTH118


def _decode(data: bytes, name: str) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        shown = SourceText(name, data.decode(errors="backslashreplace"))
        start = len(data[: error.start].decode())
        reason = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise Rejected([shown.problem((start, start + 4), reason, "save the file as UTF-8")]) from None
    if text.startswith("\ufeff"):
        problem = SourceText(name, text).problem((0, 1), "a byte order mark", "save the file as UTF-8 without it")
        raise Rejected([problem])
    return text


def _syntax_problem(file: SourceText, error: str, scanner: Scanner) -> Problem:
    """Turn an error of `tomllib` into a problem. `tomllib` gives the position only as text."""
    match = re.fullmatch(
        r"(?P<what>.*) \((?:at line (?P<line>\d+), column (?P<column>\d+)|at end of document)\)", error, re.DOTALL
    )
    what = match["what"] if match else error
    if scanner.duplicate and what.startswith(("Cannot", "Duplicate")):
        (first, _), span = scanner.duplicate
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
        return file.problem(span, f"`{word}` is not a value", f"write {legal}")
    if what in _UNCLOSED:
        return file.problem((scanner.position, len(file.content)), "a string that is not closed", "close it with a quote")
    return file.problem(span, f"invalid TOML: {what[:1].lower()}{what[1:]}")
