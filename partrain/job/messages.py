"""Messages for users: names of keys, tables and values of a job, and text for missing or wrong ones."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from datetime import time
from typing import Any

from pydantic_core import ErrorDetails

from partrain.comm.section import TransportSection
from partrain.config.problems import KeyPath, shown
from partrain.config.usercode import UserCode
from partrain.job.schema import SYNONYMS, Job, Location, heading, join_or, likely_meaning, tables_under, tables_with_key
from partrain.job.workers import WorkerGroup
from partrain.models.image_sections import Published

_EXAMPLES = {
    "name": 'name = "trial"',
    "model": 'name = "mlp"',
    "dataset": 'name = "mnist"',
    "optimizer": 'name = "sgd"',
    "sync": 'rule = "average"',
    "workers": "count = 2",
    "groups": 'match = ["head.*"]',
    "stop": "rounds = 100",
}

_PATTERNS: dict[tuple[type, str], str] = {
    (Job, "name"): "expected letters, digits, `.`, `_` and `-`, at most 100",
    (WorkerGroup, "device"): 'expected "cpu", a kind of accelerator as "cuda", or one device as "cuda:0"',
    (Published, "sha256"): "expected 64 hexadecimal digits",
    (UserCode, "name"): 'expected "package.module:Class" or "file.py:Class"',
}

_BOUNDS = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}

_TYPES = {
    "int_type": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a string",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
}

_UNQUOTED = {"int_type": r"-?\d{1,18}", "float_type": r"-?\d+(\.\d+)?(e-?\d+)?", "bool_type": "true|false"}
"""Strings that would be valid without their quotes."""

_SEVERAL = "leave it out, and start the job under torchrun on each machine"
_ELSEWHERE: dict[tuple[type, str], str] = {
    (TransportSection, word): _SEVERAL for word in ("distributed", "torchrun", "torch", "gloo", "nccl", "mpi", "ddp", "tcp")
}
"""Values that a key does not accept, because another key has their effect."""


def advise_on_key(key: str, spot: Location, meant: str, homes: str) -> str:
    """Suggest a fix for an unknown key."""
    if meant:
        field = spot.owner.model_fields[meant]
        if tables_under(field):
            return f"did you mean {heading((meant,))}?"
        default = f" (default {describe_value(field.default)})" if isinstance(field.default, bool | int | float | str) else ""
        others = [word for word in SYNONYMS.get(key, ()) if word in spot.owner.model_fields and word != meant]
        return f"did you mean {join_or([f'`{word}`' for word in (meant, *others)])}?{default * (not others)}"
    if key in Job.model_fields and tables_under(Job.model_fields[key]):
        return f"{heading((key,))} is its own table"
    meaning = likely_meaning(key, list(spot.owner.model_fields), fuzzy=False)
    if homes and not meaning:
        return f"`{key}` belongs to {homes}"
    if near := meaning or likely_meaning(key, list(spot.owner.model_fields)):
        return f"did you mean `{near}`? it is there already"
    for synonym in SYNONYMS.get(key, ()):
        if homes := tables_with_key(synonym):
            return f"did you mean `{synonym}` in {homes}?"
    return "legal: " + ", ".join(spot.owner.model_fields)


def describe_key(path: KeyPath, value: Any) -> str:
    """Describe a key with its table: ``key `x` in [y]``."""
    name = ".".join(part for part in path if isinstance(part, str))
    if isinstance(value, dict):
        return f"table [{name}]"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return f"table [[{name}]]"
    return f"key `{path[-1]}` " + (f"in {heading(path[:-1])}" if path[:-1] else "at the top of the file")


def _labelled(path: KeyPath) -> str:
    """Name a value by its key: `lr`, or `hidden[0]`."""
    last = max(index for index, part in enumerate(path) if isinstance(part, str))
    return f"`{path[last]}{''.join(f'[{index}]' for index in path[last + 1 :])}`"


def describe_value(value: Any) -> str:
    """Describe a value in plain words."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f"the string {quoted(value)}"
        case list():
            return "a list"
        case dict():
            return "a table"
        case int() | float() | None:
            return str(value)
    return f"the {'time' if isinstance(value, time) else 'date'} {value}"


def quoted(text: str) -> str:
    """Quote a user's text, safe for a terminal."""
    return f'"{shown(text, 60)}"'


def missing(spot: Location) -> tuple[str, str]:
    """Return message and suggestion for a missing key."""
    example = _EXAMPLES.get(str(spot.path[-1]), "") if spot.owner is Job else ""
    if spot.options:
        header = heading(spot.path)
        return f"missing table {header}", f"add {header} and below it {example}"
    return f"missing {describe_key(spot.path, None)}", f"add {example}" if example else ""


def no_table(path: KeyPath, value: Any) -> tuple[str, str]:
    """Return message and suggestion for a value that is not a table."""
    header, example = heading(path), _EXAMPLES.get(str(path[-1]), "")
    if header.startswith("[[") and isinstance(path[-1], str):
        return f"expected a list of tables {header}, got {describe_value(value)}", f"write {header} and below it {example}"
    if isinstance(value, list):
        return f"expected one table {header}, got a list", f"write {header} once"
    return f"expected a table {header}, got {describe_value(value)}", f"write {header} and below it {example}" if example else ""


def wrong_value(spot: Location, error: ErrorDetails) -> tuple[str, str]:
    """Return message and suggestion for a value of the wrong type, or out of range."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    label, suggestion = _labelled(spot.path), ""
    if kind in _TYPES:
        expected = f"expected {_TYPES[kind]}"
        suggestion = _retyped(spot, kind, value)
    elif kind == "literal_error":
        legal = re.findall(r"'([^']*)'", context["expected"])
        expected = "expected " + (join_or([quoted(name) for name in legal]) or context["expected"])
        if isinstance(value, str):
            suggestion = _ELSEWHERE.get((spot.owner, value.lower())) or _nearest(value, legal)
    elif kind == "string_pattern_mismatch":
        expectations = (_PATTERNS.get((table, str(spot.path[-1]))) for table in spot.owner.__mro__)
        expected = next(filter(None, expectations), f"expected a string like {context['pattern']}")
        if isinstance(value, str):
            suggestion = _nearest(value, re.findall(r'"([a-z]+)"', expected))
    elif kind in ("too_short", "too_long"):
        few = kind == "too_short"
        limit = f"at least {context['min_length']}" if few else f"at most {context['max_length']}"
        return f"{label}: expected {limit} elements, got {context['actual_length']}", ""
    elif context.keys() & _BOUNDS.keys():
        expected = f"expected {_range(spot, context)}"
    else:
        return f"{label}: {error['msg'][:1].lower()}{error['msg'][1:]}", ""
    return f"{label}: {expected}, got {describe_value(value)}", suggestion


def _nearest(value: str, legal: Sequence[str]) -> str:
    """Suggest a legal value: the only one that begins like this one, or a similar one."""
    begun = [name for name in legal if value and name.startswith(value.lower())]
    meant = begun[0] if len(begun) == 1 else likely_meaning(value, legal)
    return f'did you mean "{meant}"?' if meant else ""


def _retyped(spot: Location, kind: str, value: Any) -> str:
    """Suggest the right spelling for a value of the wrong type, if that is certain."""
    field = spot.owner.model_fields.get(str(spot.path[-1]))
    match kind, value:
        case _, str() if kind in _UNQUOTED and re.fullmatch(_UNQUOTED[kind], value):
            return f"write {value} without quotes"
        case "int_type" | "float_type", bool() if field and isinstance(field.default, int | float):
            return f"write a number, such as {field.default}"
        case "int_type", float() if value.is_integer() and abs(value) < 1e15 and _within(_bounds(spot), value):
            return f"write {int(value)}"
        case "bool_type", 0 | 1:
            return f"write {str(bool(value)).lower()}"
        case "list_type", int() | float() if not isinstance(value, bool):
            return f"write [{value}]"
        case "list_type", str() if field and field.annotation == list[str]:
            return f"write [{quoted(value)}]"
    return ""


def _bounds(spot: Location) -> dict[str, Any]:
    """Return all bounds of a key's value."""
    field = spot.owner.model_fields.get(str(spot.path[-1]))
    return {key: getattr(item, key) for item in (field.metadata if field else ()) for key in _BOUNDS if hasattr(item, key)}


def _within(bounds: dict[str, Any], value: float) -> bool:
    return all(getattr(operator, key)(value, bound) for key, bound in bounds.items())


def _range(spot: Location, context: dict[str, Any]) -> str:
    """Describe all bounds of a value, not only the violated one."""
    bounds = _bounds(spot) or {key: context[key] for key in _BOUNDS if key in context}
    if bounds.keys() == {"ge", "le"}:
        return f"{bounds['ge']:,} to {bounds['le']:,}"
    return " and ".join(f"{_BOUNDS[key]} {bound:,}" for key, bound in bounds.items())
