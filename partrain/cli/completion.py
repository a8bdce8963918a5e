"""Shell completion: keys and values after `--set`, hooks after `--log`, and the words that `explain` knows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

BY_BASH = "complete_bash"
_INSTRUCTION = "_PARTRAIN_COMPLETE"


def join_words() -> None:
    """Join the words that bash splits at `=`, so that `--set KEY=VALUE` is one word as in other shells."""
    if os.environ.get(_INSTRUCTION) != BY_BASH:
        return
    words, cursor = os.environ.get("COMP_WORDS", "").split("\n"), int(os.environ.get("COMP_CWORD", "0"))
    joined: list[str] = []
    for number, word in enumerate([*words, ""][: cursor + 1]):
        if number and "=" in (word, words[number - 1]):
            joined[-1] += word
        else:
            joined.append(word)
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = "\n".join(joined), str(len(joined) - 1)
    if "=" in joined[-1]:
        from typer._completion_classes import BashComplete

        # bash replaces only what follows the `=`; typer drops candidates that do not begin with the whole word
        BashComplete.format_completion = lambda self, item: str(item.value).partition("=")[2]  # type: ignore[method-assign]


def complete_override(incomplete: str) -> list[str]:
    """Complete an argument of `--set`: first the key, then its value."""
    key, equals, value = incomplete.partition("=")
    if equals:
        return [f"{key}={word}" for word in values_of(key) if word.startswith(value)]
    tilde, end = ("~", "") if key.startswith("~") else ("", "=")
    names = {name.replace("workers.", "workers.0.") for name, _ in _fields()}
    return [f"{tilde}{name}{end}" for name in sorted(names) if name.startswith(key.removeprefix("~"))]


def complete_word(incomplete: str) -> list[str]:
    """Complete the argument of `explain`."""
    words = {name for name, _ in _fields()} | {"words"}
    words |= {
        word for key in ("model.name", "sync.rule", "dataset.kind", "dataset.name", "optimizer.name") for word in values_of(key)
    }
    return sorted(word for word in words if word.startswith(incomplete))


def complete_hook(incomplete: str) -> list[str]:
    """Complete the argument of `--log`."""
    from partrain.hooks.select import known_hooks

    return sorted(name for name in known_hooks() if name.startswith(incomplete))


def values_of(key: str) -> list[str]:
    """List the values of a key that are names, or true and false."""
    from typing import get_args

    from partrain.job.reference import describe_type

    wanted = key.replace(".0.", ".")
    fields = [field for name, field in _fields() if name == wanted]
    if any(bool in (field.annotation, *get_args(field.annotation)) for field in fields):
        return ["false", "true"]
    words = {word for field in fields for word in describe_type(field).split(" | ")}
    return sorted(word.strip('"') for word in words if word.startswith('"'))


def _fields() -> Iterator[tuple[str, FieldInfo]]:
    """Yield all keys of a job with their fields; alternatives of a table may have the same keys."""
    from partrain.job.schema import Job, tables_under

    for table, field in Job.model_fields.items():
        options = tables_under(field)
        if not options:
            yield table, field
        for option in options:
            for name, inner in option.model_fields.items():
                yield f"{table}.{inner.alias or name}", inner
