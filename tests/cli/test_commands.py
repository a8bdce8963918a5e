"""The list of commands: what help shows without importing them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from itertools import takewhile
from typing import Any

import pytest
import typer
from support.runs import partrain
from typer.main import get_command

from partrain.cli.main import COMMANDS, all_commands, app


def test_the_list_is_that_of_the_modules() -> None:
    found = set()
    for part in all_commands():
        named = [command.name or getattr(command.callback, "__name__", "") for command in part.registered_commands]
        found |= {part.info.name} if isinstance(part.info.name, str) else set(named)
    assert found == set(COMMANDS)


def test_every_command_is_built_alone() -> None:
    group = get_command(app)
    context = typer.Context(group)
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command.name == name
        assert command.help


def test_lines_of_help_fit_eighty_columns() -> None:
    said = partrain("--help")
    lines = said.out.partition("Commands:\n")[2].splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [[name, text] for name, (_, text) in COMMANDS.items()]
    assert max(map(len, lines)) <= 80


def test_help_imports_no_command() -> None:
    code = "import sys; sys.argv = ['partrain', WORD]; from partrain.cli.main import main\ntry: main()\nfinally: print([*sys.modules], file=sys.stderr)"
    for word, wanted in ("'--help'", set()), ("'ls', '--help'", {"reference"}):
        done = subprocess.run([sys.executable, "-c", code.replace("WORD", word)], capture_output=True, text=True, check=False)
        modules = {module for module, _ in COMMANDS.values() if f"'partrain.cli.{module}'" in done.stderr}
        assert modules == wanted


def test_a_misspelt_command() -> None:
    said = partrain("valdate", "x.toml")
    assert said.code == 2
    assert "Did you mean 'validate'" in said.err


def leaves() -> list[tuple[tuple[str, ...], Any]]:
    """All commands with their words; those of groups too."""
    group, found = get_command(app), []
    for name in COMMANDS:
        command = group.get_command(typer.Context(group), name)
        inner = getattr(command, "commands", None)
        found += [((name, word), one) for word, one in inner.items()] if inner else [((name,), command)]
    return found


@pytest.mark.parametrize(("words", "command"), leaves(), ids=lambda part: " ".join(part) if isinstance(part, tuple) else "")
def test_every_help_ends_with_examples_whose_options_there_are(words: tuple[str, ...], command: Any) -> None:
    said = partrain(*words, "--help")
    assert said.code == 0
    lines = said.out.partition("\n  Examples:\n")[2].splitlines()
    assert lines
    options = {option for parameter in command.params for option in parameter.opts} | {"--json"}
    for part in (part for line in lines for part in line.split(" && ")):
        given = list(takewhile(lambda word: word != ">", shlex.split(part)))
        assert given[0] == "partrain"
        if tuple(given[1 : 1 + len(words)]) == words:
            assert {word for word in given if word.startswith("-")} <= options
        else:
            assert given[1] in COMMANDS
