"""`docs/reference/events.md`: the lines of `events.jsonl` and the fields of `summary.json`, from their types."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from types import NoneType, UnionType
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from generate.markdown import code, page, prose, table

from partrain.record import events as kinds
from partrain.record.numbers import DERIVED, RoundNumber
from partrain.record.round_record import NUMBERS
from partrain.record.summary import Summary

WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false", Any: "value", NoneType: "null"}


def events() -> str:
    """Return the reference of `events.jsonl` and `summary.json`."""
    return page(
        "Events and summary",
        "This page answers: which fields do `events.jsonl` and `summary.json` of a run folder have. Both files are for programs: "
        "later versions may add fields, but a field keeps its meaning within a major version.",
        "## `events.jsonl`",
        'One JSON object on each line: `{"event": KIND, "t": ...}`. `t` is Unix time by the clock as it was set when the command started; durations are in seconds. Numbers that are not finite '
        "are null. Only the coordinator, the process that starts the workers, writes the file. If it is killed, the last line may be "
        "incomplete.",
        table(("event", "meaning"), [(f"[`{name}`](#event-{name})", _first(each)) for name, each in kinds.KINDS.items()]),
        *(part for name, each in kinds.KINDS.items() for part in _event(name, each)),
        "### The numbers of a round on every surface",
        "One table in the code declares each number. *Workers*: how the numbers of all workers become that of a round; *rounds*: how those of all "
        "rounds become that of a run. *Network*: `training`, which a worker trains, or `newest`, the mixed one after the round. *Hooks*: the name in "
        "TensorBoard, MLflow and W&B. *Prometheus*: after `partrain_`, by worker; in brackets of all workers.",
        table(
            ("number", "workers", "rounds", "network", "live table", "`plot --what`", "hooks", "Prometheus"),
            [
                (
                    code(name),
                    number.workers.value,
                    number.rounds.value,
                    number.network,
                    " ".join(filter(None, number.column[:2])).replace("- ", "-") if number.column else "",
                    code(name * bool(number.drawn)),
                    code(number.scalar),
                    " ".join(filter(None, (code(number.metric), f"({code(number.run_metric)})" * bool(number.run_metric)))),
                )
                for name, number in NUMBERS.items()
                if name not in DERIVED
            ],
        ),
        "Surfaces compute these from them:",
        table(("number", "meaning"), [(code(name), meaning) for name, meaning in DERIVED.items()]),
        "### Tables within events",
        *(
            part
            for each in _inner(list(kinds.KINDS.values()))
            for part in (f"#### `{each.__name__}`", prose(each.__doc__), _fields(each))
        ),
        "## `summary.json`",
        prose(Summary.__doc__),
        _fields(Summary),
        *(part for each in _inner([Summary]) for part in (f"### `{each.__name__}`", prose(each.__doc__), _fields(each))),
    )


def _event(name: str, event: type) -> list[str]:
    fields = _fields(event, without=("t", "record"))
    if event is kinds.RoundEvent:
        numbers = [(code(name), _kind(number), number.meaning) for name, number in NUMBERS.items() if not number.elsewhere]
        fields += "\n" + "\n".join(table(("field", "type", "meaning"), numbers).splitlines()[2:])
    return [f"### Event `{name}`", prose(event.__doc__), fields]


def _kind(number: RoundNumber) -> str:
    return WORDS[int if number.whole else float] + ", or absent" * number.optional


def _first(event: type) -> str:
    return inspect.cleandoc(event.__doc__ or "").partition("\n")[0]


def _fields(owner: type, without: tuple[str, ...] = ()) -> str:
    described, own, optional = texts(owner), _declared(owner), getattr(owner, "__optional_keys__", frozenset())
    rows = [
        (code(name), _type(kind) + ", or absent" * (name in optional), described.get(name, ""))
        for name, kind in sorted(get_type_hints(owner).items(), key=lambda field: field[0] not in own)
        if name not in without and get_origin(kind) is not ClassVar and kind is not ClassVar
    ]
    return table(("field", "type", "meaning"), rows)


def texts(owner: type) -> dict[str, str]:
    """Return the texts below the fields of a class and of the classes that it inherits from."""
    body = _body(owner)
    found: dict[str, str] = {}
    for base in body.bases:  # a TypedDict does not know its bases
        named = getattr(sys.modules[owner.__module__], ast.unparse(base), None)
        if inspect.isclass(named) and named.__module__.startswith("partrain"):
            found |= texts(named)
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[ast.unparse(field.target)] = inspect.cleandoc(str(below.value.value))
    return found


def _declared(owner: type) -> set[str]:
    """Return the fields that a class declares itself. They come before those that it inherits."""
    return {ast.unparse(field.target) for field in _body(owner).body if isinstance(field, ast.AnnAssign)}


def _body(owner: type) -> ast.ClassDef:
    (body,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(owner))).body
    assert isinstance(body, ast.ClassDef)
    return body


def _type(kind: Any) -> str:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(_type(each) for each in parts)
    if origin is list:
        return f"list: {_type(parts[0])}"
    if origin is dict:
        return f"object: {_type(parts[1])}" if parts[1] is not Any else "object"
    if is_typeddict(kind):
        return code(kind.__name__)
    if kind in WORDS:
        return WORDS[kind]
    return " or ".join(code(f'"{each}"') for each in parts) if parts else re.sub(r"\W", "", str(kind))


def _inner(owners: list[type]) -> list[type]:
    """Return the typed dictionaries within these classes, the outer ones first."""
    found: dict[type, None] = {}
    waiting: list[Any] = [kind for owner in owners for kind in get_type_hints(owner).values()]
    while waiting:
        kind = waiting.pop(0)
        if is_typeddict(kind) and kind not in found:
            found[kind] = None
            waiting += get_type_hints(kind).values()
        waiting += [each for each in get_args(kind) if not isinstance(each, str)]
    return list(found)
