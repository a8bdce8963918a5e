"""Overrides from the command line. They change a job's data, its text (comments stay) and the positions of its keys."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from partrain.config.problems import KeyPath, SourceText, Span, UnfitOverrides
from partrain.config.toml_positions import NotToml, Position, Scanner, TomlRefused

if TYPE_CHECKING:
    from partrain.config.toml_source import TomlSource


class Flag(NamedTuple):
    """A command-line option whose arguments are overrides, ``key=value`` each."""

    name: str
    table: tuple[str, ...] = ()
    """The table that its keys belong to. An option with a table changes no other table."""


def is_table(value: Any) -> bool:
    """Return whether a value of a job is a table, or a list of tables."""
    return isinstance(value, Mapping) or (
        isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)
    )


def flatten(table: Any, nested: Callable[[Any], bool] = is_table, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables by dotted key, in the form of `--set`; list indices count from 0.

    `nested` chooses the values to enter.
    """
    for key, value in table.items() if isinstance(table, Mapping) else enumerate(table):
        if nested(value):
            yield from flatten(value, nested, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


SET = Flag("--set")
REMOVAL = "~"
"""Prefix of a key to remove: `--set ~KEY`."""
REMOVED = object()
"""Value of a key that an override removes."""


UNTIL = Flag("--until", ("stop",))


def override(source: TomlSource, arguments: Sequence[str], flag: Flag = SET) -> TomlSource:
    """Apply ``key=value`` and ``~key`` arguments of an option to a source. Raises `UnfitOverrides` with all that do not fit."""
    if not arguments:
        return source
    data, positions, problems = tomllib.loads(source.text), dict(source.positions), []
    changes: list[tuple[KeyPath, Any]] = []
    fitting: list[str] = []
    for argument in arguments:
        words = f"{flag.name} {argument}"
        text = SourceText(words, words, command_line=True)
        try:
            path, value, places = (_parse_removal if argument.startswith(REMOVAL) else _parse_change)(text, data, flag)
        except TomlRefused as limit:
            problems.append(text.problem(limit.span, limit.message))
            continue
        _assign(data, path, value)
        fitting.append(argument)
        changes.append((path, value))
        positions = {old: position for old, position in positions.items() if old[: len(path)] != path}
        positions.update((new, position) for new, position in places.items() if len(new) >= len(path) or new not in positions)
    if problems:
        raise UnfitOverrides(problems, fitting)
    return replace(source, text=_rewrite(source.text, changes, data), data=data, positions=positions)


def _rewrite(text: str, changes: Sequence[tuple[KeyPath, Any]], data: dict[str, Any]) -> str:
    """Write changes into the text; if tomlkit cannot do that exactly, write the data again, without comments."""
    import tomlkit  # slow to import, and most commands override nothing
    from tomlkit.exceptions import TOMLKitError

    with suppress(TOMLKitError, ValueError, LookupError, TypeError, AttributeError):
        document = tomlkit.parse(text)
        for path, value in changes:
            _assign(document, path, value)
        written = tomlkit.dumps(document)
        if tomllib.loads(written) == data:
            return written
    return as_toml(data)


def as_toml(data: dict[str, Any]) -> str:
    """Write data as TOML, without comments."""
    import tomlkit

    return tomlkit.dumps(data)


def _parse_change(text: SourceText, data: dict[str, Any], flag: Flag) -> tuple[KeyPath, Any, dict[KeyPath, Position]]:
    """Parse one override: its path, its value, and the positions of both on the command line."""
    start, end = len(flag.name) + 1, len(text.content)
    scanner = Scanner(text, start)
    try:
        keys = scanner.keys()
        scanner.expect("=")
    except NotToml:
        raise TomlRefused("expected key=value", (start, end)) from None
    path = _resolve(data, [*((part, (start, end)) for part in flag.table), *keys])
    raw = text.content[scanner.position :]
    if "\n" not in raw:
        with suppress(ValueError):
            whole = Scanner(text, start)
            whole.pair(flag.table)
            value = tomllib.loads(f"value = {raw}")["value"]
            return path, value, {(*path[: len(p)], *p[len(path) :]): position for p, position in whole.positions.items()}
    behind = (min(scanner.position, end - 1), end)
    spans = enumerate((span for _, span in keys), len(flag.table) + 1)
    return path, raw, {path[:length]: Position(span, behind, text) for length, span in spans}


def _parse_removal(text: SourceText, data: dict[str, Any], flag: Flag) -> tuple[KeyPath, Any, dict[KeyPath, Position]]:
    """Parse ``~key``: the path of an existing key."""
    start, end = len(flag.name) + 2, len(text.content)
    scanner = Scanner(text, start)
    try:
        keys = scanner.keys()
    except NotToml:
        raise TomlRefused("expected ~key", (start, end)) from None
    if scanner.position < end:
        raise TomlRefused("`~key` removes a key and takes no value", (start, end))
    path = _resolve(data, [*((part, (start, end)) for part in flag.table), *keys])
    _check_there(data, path, (start, end))
    return path, REMOVED, {}


def _check_there(data: Any, path: KeyPath, span: Span) -> None:
    """Raise `TomlRefused` unless the data has the key at a path."""
    container = data
    for part in path[:-1]:
        container = container.get(part, {}) if isinstance(container, dict) else container[part]
    if isinstance(container, dict) and path[-1] not in container:
        raise TomlRefused(f"no key `{'.'.join(map(str, path))}` to remove", span)


def _resolve(data: Any, keys: Sequence[tuple[str, Span]]) -> KeyPath:
    """Return the path of keys in the data, with ``workers.0`` as an element of a list."""
    path: KeyPath = ()
    for name, span in keys:
        if isinstance(data, list):
            if not re.fullmatch(r"[0-9]{1,6}", name) or int(name) >= len(data):
                legal = {0: "it is empty", 1: "its only element is 0"}.get(len(data), f"its elements are 0 to {len(data) - 1}")
                if data and isinstance(data[0], dict) and not name.isdigit():
                    legal += f", as in `{'.'.join(map(str, path))}.0.{name}`"
                raise TomlRefused(f"`{'.'.join(map(str, path))}` has no element `{name}`: {legal}", span)
            path, data = (*path, int(name)), data[int(name)]
        elif isinstance(data, dict):
            path, data = (*path, name), data.get(name, {})
        else:
            raise TomlRefused(f"`{'.'.join(map(str, path))}` is not a table", span)
    return path


def _assign(container: Any, path: KeyPath, value: Any) -> None:
    """Set the value at a path, or remove it, in plain data or in a tomlkit document; create missing tables on the way."""
    for part in path[:-1]:
        if isinstance(container, dict) and part not in container:
            container[part] = {}
        container = container[part]
    if value is REMOVED:
        del container[path[-1]]
    else:
        container[path[-1]] = value


def toml_value(value: Any) -> str:
    """Return a value as one line of TOML, as in an override."""
    import tomlkit

    if isinstance(value, dict):
        return "{" + ", ".join(f"{tomlkit.key(key).as_string()} = {toml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return str(tomlkit.item(value).as_string())


def changed(source: TomlSource, changes: Sequence[tuple[str, Any, Mapping[KeyPath, Position]]]) -> TomlSource:
    """Apply changes to a source's data and positions, for checks; its text stays.

    Args:
        source: The source.
        changes: Dotted key, value, and the positions of the key and of the parts of the value, by path below the key.

    Raises:
        TomlRefused: a key does not fit; the span is in the dotted key.
    """
    data, positions = deepcopy(source.data), dict(source.positions)
    for key, value, places in changes:
        path = _assign_key(data, key, value)
        positions = {old: position for old, position in positions.items() if old[: len(path)] != path}
        positions.update({(*path, *below): position for below, position in places.items()})
    return replace(source, data=data, positions=positions)


def assigned(data: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return data with changes by dotted key. Raises `TomlRefused` if a key does not fit."""
    result = deepcopy(dict(data))
    for key, value in changes.items():
        _assign_key(result, key, value)
    return result


def _assign_key(data: dict[str, Any], key: str, value: Any) -> KeyPath:
    """Change a key, or remove it: `"~key" = true`."""
    name = key.removeprefix(REMOVAL)
    scanner = Scanner(SourceText(name, name))
    path = _resolve(data, scanner.keys())
    if scanner.position < len(name):
        raise TomlRefused("expected a key", (scanner.position, len(name)))
    if name == key:
        _assign(data, path, value)
        return path
    if value is not True:
        raise TomlRefused('to remove a key, write `"~key" = true`', (0, len(name)))
    _check_there(data, path, (0, len(name)))
    _assign(data, path, REMOVED)
    return path


def as_argument(key: str, value: Any) -> str:
    """Return the argument of `--set` for a change: `key=value`, or `~key`."""
    return key if key.startswith(REMOVAL) else f"{key}={toml_value(value)}"


def as_change(argument: str) -> tuple[str, Any]:
    """Return key and value of an argument of `--set`."""
    key, _, text = argument.partition("=")
    return key, True if key.startswith(REMOVAL) else value_of(text)


def value_of(text: str) -> Any:
    """Return the value of a TOML text; a text that is not TOML is returned unchanged."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text
