"""Descriptions of a job's tables and keys, derived from the tables: text, type, default. For `explain`, `ls` and `schema`."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import annotated_types
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from partrain.config.overrides import toml_value
from partrain.config.section import Section
from partrain.job.examples import example_of
from partrain.job.schema import Job, heading, identity, tables_under

_WORDS = {int: "whole number", float: "number", bool: "true or false", str: "text"}
_BOUNDS = {
    annotated_types.Ge: ("ge", "≥"),
    annotated_types.Gt: ("gt", ">"),
    annotated_types.Le: ("le", "≤"),
    annotated_types.Lt: ("lt", "<"),
}


class KeyDescription(NamedTuple):
    """One key of a job file."""

    table: str
    """The header of the key's table; "" at the top of the file."""
    key: str
    kind: str
    """Type and bounds, in words."""
    default: str
    """The default as TOML, `required`, or "" for none."""
    text: str
    """The key's text in the table's class."""
    choices: tuple[str, ...]
    """Names of the alternative tables that have the key in this form; empty if the table has no alternatives."""
    example: str = ""
    """A possible value, as TOML; "" if there is no example."""


class NamedTable(NamedTuple):
    """One of the alternatives of a table: a rule, a network, a data set, an optimizer."""

    table: str
    """The table's key at the top of the file."""
    name: str
    """The table's name; "" for user code."""
    section: type[Section]

    @property
    def text(self) -> str:
        """The table's description."""
        return inspect.cleandoc(self.section.__doc__ or "")


def named_tables(key: str) -> list[NamedTable]:
    """Return the alternatives of a top-level table by their names."""
    options = tables_under(Job.model_fields[key])
    return (
        [NamedTable(key, name, option) for option in options for name in identity(option)[1] or ("",)] if len(options) > 1 else []
    )


@cache
def texts(section: type[Section]) -> dict[str, str]:
    """Return the text of each key of a table: its description, or the text below it in the source of its class or a base class."""
    by_key = {key: field.description for key, field in section.model_fields.items() if field.description}
    for base in (base for base in reversed(section.__mro__) if issubclass(base, Section) and base is not Section):
        source = _classes(base.__module__).get(base.__name__)
        for field_and_text in pairwise(source.body if source else ()):
            match field_and_text:
                case ast.AnnAssign(target=ast.Name(id=key)), ast.Expr(value=ast.Constant(value=str(text))):
                    by_key[key] = inspect.cleandoc(text)
    return by_key


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """Return the classes of a module by name: each module is parsed once, however many tables it has."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def keys_of(section: type[Section], table: str, choices: tuple[str, ...] = ()) -> Iterator[KeyDescription]:
    """Describe the keys of a table."""
    documented, kind = texts(section), next(iter(identity(section)[1]), "")
    for name, field in section.model_fields.items():
        key = field.alias or name
        text, value = documented.get(name, ""), example_of(table, key, field, kind)
        shown = "" if value is None else toml_value(value)
        yield KeyDescription(table, key, describe_type(field), describe_default(field), text, choices, shown)


def all_keys() -> list[KeyDescription]:
    """Describe all keys of a job file. A key that several alternatives share appears once."""
    descriptions: dict[tuple[str, ...], KeyDescription] = {}
    for name, field in Job.model_fields.items():
        options = tables_under(field)
        if not options:
            (descriptions[("", name)],) = (description for description in keys_of(Job, "") if description.key == name)
        for option in options:
            labels = (identity(option)[1] or ("user code",)) if len(options) > 1 else ()
            for description in keys_of(option, heading((name,)), labels):
                alike = descriptions.get(description[:5])
                descriptions[description[:5]] = (
                    description._replace(choices=(*alike.choices, *description.choices)) if alike else description
                )
    return list(descriptions.values())


def describe_type(field: FieldInfo) -> str:
    """Describe type and bounds of a key, as in `whole number ≥ 1`."""
    return _described(field.annotation, field.metadata)


def _described(annotation: Any, metadata: list[Any] | tuple[Any, ...]) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _described(parts[0], parts[1:])
    if origin is Literal:
        return " | ".join(f'"{part}"' if isinstance(part, str) else str(part).lower() for part in parts)
    if (parts and NoneType in parts) or (origin is not None and type(None) in parts):
        return _with_bounds(" or ".join(_described(part, ()) for part in parts if part is not NoneType), metadata)
    if origin in (list, tuple) and parts:
        return f"list: {_described(parts[0], ())}"
    if origin is dict:
        return "table"
    if parts:
        return _with_bounds(" or ".join(dict.fromkeys(_described(part, ()) for part in parts)), metadata)
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return "table"
    return _with_bounds(_WORDS.get(annotation, "value"), metadata)


def _with_bounds(text: str, metadata: list[Any] | tuple[Any, ...]) -> str:
    bounds = [
        f"{sign} {getattr(bound, name):,}"
        for bound in metadata
        for kind, (name, sign) in _BOUNDS.items()
        if isinstance(bound, kind)
    ]
    return " ".join([text, ", ".join(bounds)]).strip()


def describe_default(field: FieldInfo) -> str:
    """Return the default as TOML, `required`, or "" for none."""
    if field.is_required():
        return "required"
    value = field.default
    if value is None or field.default_factory is not None:
        return ""
    return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else f"{value}"


# JSON Schema


def json_schema(section: type[Section] = Job) -> dict[str, Any]:
    """Return the JSON Schema of a job file, for editors that complete and check TOML. Draft 2020-12."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "partrain job", **_table_schema(section, ())}


def _table_schema(section: type[Section], names: tuple[str, ...]) -> dict[str, Any]:
    documented, naming = texts(section), identity(section)[0]
    properties = {}
    for name, field in section.model_fields.items():
        content = {"const": names[0]} if name == naming and len(names) == 1 else _field_schema(field)
        if name == naming and len(names) > 1:
            content = {"enum": list(names)}
        properties[field.alias or name] = content | ({"description": documented[name]} if name in documented else {})
    required = [
        field.alias or name
        for name, field in section.model_fields.items()
        if field.is_required() or (names and name == naming and type(None) not in get_args(field.annotation))
    ]
    free = section.model_config.get("extra") == "allow"
    text = inspect.cleandoc(section.__doc__ or "")
    return {"type": "object", "description": text, "properties": properties, "required": required, "additionalProperties": free}


def _field_schema(field: FieldInfo) -> dict[str, Any]:
    options = tables_under(field)
    if not options:
        annotation: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        content = TypeAdapter(annotation).json_schema()
        default = {} if field.is_required() or field.default_factory or field.default is None else {"default": field.default}
        return _without_null(content) | default
    tables = [_table_schema(option, identity(option)[1] if len(options) > 1 else ()) for option in options]
    schema = tables[0] if len(tables) == 1 else {"anyOf": tables}
    is_list = get_origin(field.annotation) is list or any(get_origin(arg) is list for arg in get_args(field.annotation))
    return {"type": "array", "items": schema} if is_list else schema


def _without_null(content: dict[str, Any]) -> dict[str, Any]:
    """Remove null, which TOML does not have."""
    choices = [choice for choice in content.get("anyOf", ()) if choice != {"type": "null"}]
    if not choices:
        return content
    rest = {key: value for key, value in content.items() if key != "anyOf"}
    return rest | (choices[0] if len(choices) == 1 else {"anyOf": choices})
