"""`docs/reference/commands.md`: every command with its arguments and options, from the command line itself."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import typer
from generate.markdown import code, fence, page, prose, table
from typer.main import get_command

from partrain.cli.main import COMMANDS, app

SHARED = {
    "--json": "print one JSON document on stdout and nothing else",
    "--debug": "show the traceback of a failure",
    "--help, -h": "show the help of a command",
}
"""Options of most commands, which the tables leave out."""


def commands() -> str:
    """Return the reference of the command line."""
    leaves = _leaves()
    rows = [(f"[`{' '.join(words)}`](#{'-'.join(('partrain', *words))})", _first(command)) for words, command in leaves]
    return page(
        "Commands",
        "This page answers: which commands and options are there. `partrain COMMAND --help` prints the same on a terminal. "
        "[Exit codes](../exit-codes.md) are the same for all commands.",
        table(("command", "does"), rows),
        "Most commands have these options, too:",
        table(("option", "effect"), [(code(option), text) for option, text in SHARED.items()]),
        *(part for words, command in leaves for part in _command(words, command)),
    )


def _leaves() -> list[tuple[tuple[str, ...], Any]]:
    """Return all commands with their words; those of groups, too."""
    group, found = get_command(app), []
    for name in COMMANDS:
        command = group.get_command(typer.Context(group), name)  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found += [((name, word), one) for word, one in inner.items()] if inner else [((name,), command)]
    return found


def _first(command: Any) -> str:
    return (command.help or "").partition("\n")[0].partition(". ")[0].rstrip(".")


def _command(words: tuple[str, ...], command: Any) -> list[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not set(each.opts) & _shared()]
    usage = " ".join(["partrain", *words, *(_name(each) for each in arguments), *(["[OPTIONS]"] if options else [])])
    examples = [line.strip() for line in (command.epilog or "").splitlines()[2:]]
    return [
        f"## `partrain {' '.join(words)}`",
        fence(usage),
        prose(command.help),
        table(("argument", "meaning"), [(code(_name(each)), _text(each)) for each in arguments]),
        table(("option", "effect", "default"), [(_option(each), _text(each), _default(each)) for each in options]),
        "Examples:",
        fence("\n".join(f"$ {line}" for line in examples), "console"),
    ]


def _shared() -> set[str]:
    return {word for words in SHARED for word in words.split(", ")}


def _name(argument: Any) -> str:
    name = _value(argument).removesuffix("...")
    several = "..." if argument.nargs == -1 else ""
    return f"{name}{several}" if argument.required else f"[{name}{several}]"


def _option(option: Any) -> str:
    longest_first = sorted([*option.opts, *option.secondary_opts], key=len, reverse=True)
    return code(", ".join(longest_first) + ("" if option.is_flag else f" {_value(option)}"))


def _value(parameter: Any) -> str:
    """Return the name of a parameter's value as help shows it; choices with commas."""
    return str(
        (parameter.metavar or "").strip("[]")
        or ",".join(_choices(parameter.type_descriptor.annotation))
        or parameter.name.upper()
    )


def _choices(annotation: Any) -> list[str]:
    """Return the words that a parameter takes; none if it takes any."""
    if get_origin(annotation) is Literal:
        return [str(each) for each in get_args(annotation)]
    return [word for part in get_args(annotation) for word in _choices(part)]


def _text(parameter: Any) -> str:
    return " ".join((parameter.help or "").split())


def _default(option: Any) -> str:
    value = option.default
    if value is None or value is False or callable(value) or value in ([], (), "") or "Sentinel" in type(value).__name__:
        return ""
    return code(",".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
