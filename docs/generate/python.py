"""`docs/reference/python.md`: the Python interface, from its signatures and docstrings."""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import Any

from generate.markdown import code, fence, page, prose, table

import partrain
from partrain import sections
from partrain.tasks.task import Task


def python() -> str:
    """Return the reference of the Python interface."""
    names = [name for name in partrain.__all__ if not name.startswith("__")]
    names.sort(key=lambda name: (not inspect.isfunction(getattr(partrain, name)), name == "sections", name.lower()))
    rows = [(f"[`partrain.{name}`](#partrain{name.lower()})", _first(getattr(partrain, name))) for name in names]
    return page(
        "Python reference",
        "This page answers: which names does `import partrain` give, with their signatures. [Python](../python.md) shows how to use them.",
        table(("name", "meaning"), rows),
        *(part for name in names for part in _name(name, getattr(partrain, name))),
    )


def _first(value: Any) -> str:
    return inspect.cleandoc(value.__doc__ or "").partition("\n")[0]


def _name(name: str, value: Any) -> list[str]:
    heading = f"## `partrain.{name}`"
    if inspect.ismodule(value):
        rows = [(code(f"{each}(...)"), _first(getattr(sections, each))) for each in dir(sections)]
        return [heading, prose(value.__doc__), "Keys and defaults: [job reference](job.md).", table(("function", "table"), rows)]
    if inspect.isfunction(value):
        return [heading, fence(_signature(f"partrain.{name}", value), "python"), prose(value.__doc__)]
    return [heading, *_class(name, value)]


def _class(name: str, owner: type) -> list[str]:
    parts = [prose(owner.__doc__)]
    if owner is partrain.Job:
        return [*parts, "Its arguments are the tables of a [job file](job.md), as dicts or from `partrain.sections`."]
    if owner not in (Task, partrain.Trained) and not issubclass(owner, Exception):
        parts.insert(0, fence(_signature(f"partrain.{name}", owner), "python"))
    attributes = _attributes(owner)
    methods = {each: value for each, value in vars(owner).items() if inspect.isfunction(value) and not each.startswith("_")}
    parts.append(table(("attribute", "meaning"), [(code(each), text) for each, text in attributes.items()]))
    for method, value in methods.items():
        if value.__doc__:
            parts += [f"### `{name}.{method}`", fence(_signature(method, value), "python"), prose(value.__doc__)]
    return parts


def _attributes(owner: type) -> dict[str, str]:
    """Return the documented fields and properties of a class."""
    from generate.events import texts

    found = {name: text for name, text in texts(owner).items() if not name.startswith("_")}
    for name, value in vars(owner).items():
        if isinstance(value, property | cached_property) and not name.startswith("_"):
            found[name] = _first(value)
    return found


def _signature(name: str, value: Any) -> str:
    signature = inspect.signature(value)
    nothing = signature.return_annotation in (inspect.Signature.empty, "None", None)
    result = "" if nothing else f" -> {signature.return_annotation}"
    words: list[str] = []
    for each in (each for each in signature.parameters.values() if each.name != "self"):
        if each.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        words.append(_parameter(each))
    line = f"{name}({', '.join(words)}){result}"
    return line if len(line) <= 100 else "\n".join([f"{name}(", *(f"    {word}," for word in words), f"){result}"])


def _parameter(parameter: inspect.Parameter) -> str:
    """Return a parameter as its source has it: annotations are texts in our modules."""
    kind = "" if parameter.annotation is inspect.Parameter.empty else f": {parameter.annotation}"
    if parameter.default is inspect.Parameter.empty:
        return f"{parameter.name}{kind}"
    return f"{parameter.name}{kind} = {parameter.default!r}" if kind else f"{parameter.name}={parameter.default!r}"
