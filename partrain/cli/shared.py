"""Functions shared by several commands."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

import typer

from partrain.display.text_table import terminal_width, wrapped

if TYPE_CHECKING:
    from partrain.errors import Failure
    from partrain.job.load import LoadedJob


_MARKED = re.compile(r"(?P<carets>(?P<gutter> +\|) +\^+) (?P<suggestion>.+)")
"""A line of `Problem.render` below an excerpt."""


class CommandLine(NamedTuple):
    """The whole command line, for workflows: their steps are commands."""

    commands: Callable[[], list[typer.Typer]]
    """Imports all commands."""
    main: Callable[[], None]
    """Runs the command in `sys.argv`."""


def examples(*lines: str) -> str:
    """Return the end of a command's help, its `epilog`: command lines, which keep their line breaks."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


def print_warnings(loaded: LoadedJob) -> None:
    """Print the warnings of a job to stderr."""
    for problem in loaded.warnings:
        print_wrapped(problem.render(), stream=sys.stderr)


def print_warning(text: str) -> None:
    """Print a warning to stderr."""
    print_note(f"warning: {text}")


def print_note(text: str) -> None:
    """Print a sentence for the user to stderr."""
    print_wrapped(f"partrain: {text}", stream=sys.stderr)


def print_wrapped(*lines: str, stream: TextIO | None = None) -> None:
    """Print sentences to a stream, by default stdout; on a terminal, wrap them between words.

    Commands and excerpts, which are indented, are not wrapped; a suggestion after carets that is too long moves to the next
    lines.
    """
    width = terminal_width(stream)
    for line in "\n".join(lines).split("\n"):
        parts = [line]
        if (caret := _MARKED.fullmatch(line)) and width and len(line) > width:
            room = max(width - len(caret["gutter"]) - 1, 1)
            parts = [caret["carets"], *(f"{caret['gutter']} {part}" for part in wrapped([caret["suggestion"]], room))]
        elif not line.startswith(" "):
            parts = wrapped([line], width)
        print("\n".join(parts), file=stream, flush=True)


def check_one_format(*, markdown: bool, csv: bool, as_json: bool) -> None:
    """Check that at most one output format is requested."""
    if flags := [flag for flag, on in (("--md", markdown), ("--csv", csv), ("--json", as_json)) if on][1:]:
        raise typer.BadParameter("give one of --md, --csv and --json", param_hint=flags[0])


def print_failure(failure: Failure) -> None:
    """Print a failure, and give it to torchrun for its report, which otherwise only explains how to get tracebacks."""
    text = failure.render()
    print_wrapped(text, stream=sys.stderr)
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        reason = {"message": text, "extraInfo": {"py_callstack": text, "timestamp": str(int(time.time()))}}
        with suppress(OSError):
            Path(file).write_text(json.dumps({"message": reason}), encoding="utf-8")
