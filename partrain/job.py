"""The whole job: one TOML file, composed of the tables that the modules own; and what is wrong with it, in plain words."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import time
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from partrain import checks
from partrain.comm import Transport
from partrain.data import AnyDataset
from partrain.data.partition import Partition
from partrain.models import AnyModel, Task, UserModel
from partrain.optim import AnyOptimizer
from partrain.retention import Retention
from partrain.rules import AnyRule
from partrain.section import Section
from partrain.source import Finding, KeyPath, Problem, Rejected, Source, by_line, shown
from partrain.stop import Stop
from partrain.workforce import WorkerGroup


class Job(Section):
    """A job file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    seed: int = Field(0, ge=0, lt=2**63)
    model: AnyModel
    dataset: AnyDataset
    partition: Partition = Field(default_factory=Partition)
    task: Task | None = None
    optimizer: AnyOptimizer = Field(discriminator="name")
    sync: AnyRule
    workers: list[WorkerGroup] = Field(min_length=1, max_length=1000)
    transport: Transport = Field(default_factory=Transport)
    stop: Stop
    checkpoint: Retention = Field(default_factory=Retention)


@dataclass(frozen=True)
class LoadedJob:
    """A job without errors, and where it comes from."""

    job: Job
    text: str
    """The TOML text, overrides applied."""
    folder: Path
    """Where relative data paths start from."""
    warnings: list[Problem]


def load(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> LoadedJob:
    """The job in a file, with `--set` arguments applied, checked for this machine.

    Raises `InputMissing` if there is no file to read, `BadJob` (a `Rejected`) with all problems if there are errors.
    """
    return _judge(Source.read(path, overrides), Path(path).absolute().parent, here=True)


def parse(text: str, folder: Path, name: str = "<checkpoint>", here: bool = False, overrides: Sequence[str] = ()) -> LoadedJob:
    """The job in a text; whether this machine has the devices and files it needs is checked only if it is to run `here`."""
    return _judge(Source.parse(text, name, overrides), folder, here)


def problems(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> list[Problem]:
    """All errors and warnings of a job file, by line; raises `InputMissing` if there is no file to read."""
    try:
        return load(path, overrides).warnings
    except Rejected as rejected:
        return rejected.problems


def _judge(text: Source, folder: Path, here: bool) -> LoadedJob:
    job, findings = understand(text.data)
    if job:
        findings += checks.contradictions(job)
        findings += checks.obstacles(job, folder) if here else ()
    found = [text.problem(finding) for finding in findings]
    if job is None or any(problem.severity == "error" for problem in found):
        raise Rejected(found)
    return LoadedJob(job, text.text, folder, by_line(found))


# From pydantic's errors to findings

_SYNONYMS: dict[str, tuple[str, ...]] = {
    "learning_rate": ("lr",),
    "epochs": ("passes", "rounds"),
    "steps": ("iterations", "rounds"),
    "local_steps": ("iterations",),
    "max_rounds": ("rounds",),
    "time": ("seconds",),
    "timeout": ("seconds", "stall_seconds"),
    "batch": ("batch_size",),
    "num_workers": ("count", "workers"),
    "gpu": ("device", "cuda"),
    "layers": ("hidden",),
    "dropout_rate": ("dropout",),
    "l2": ("weight_decay",),
    "holdout": ("validation",),
    "random_seed": ("seed",),
    "data": ("dataset",),
    "algorithm": ("rule",),
    "method": ("rule",),
    "name": ("rule", "kind"),
    "kind": ("name", "rule"),
    "type": ("kind", "name", "rule"),
    "fedavg": ("average",),
    "local-sgd": ("average",),
    "ddp": ("bsp",),
    "allreduce": ("bsp",),
}
"""What other tools call our keys and rules."""

_NAMING = ("rule", "kind", "name")
"""Keys that say which of several tables one is; where a table has two of them, the earlier counts."""

_EXAMPLES = {
    "name": 'name = "trial"',
    "model": 'name = "mlp"',
    "dataset": 'name = "mnist"',
    "optimizer": 'name = "sgd"',
    "sync": 'rule = "average"',
    "workers": "count = 2",
    "stop": "rounds = 100",
}

_PATTERNS: dict[tuple[type[Section], str], str] = {
    (Job, "name"): "expected letters, digits, `.`, `_` and `-`, at most 100",
    (WorkerGroup, "device"): 'expected "cpu", "cuda" or one device as "cuda:0"',
    (UserModel, "name"): 'expected "package.module:Class" or "file.py:Class"',
}

_BOUNDS = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}

_NO_TABLE = ("list_type", "model_type", "model_attributes_type", "dict_type")

_TYPES = {
    "int_type": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a string",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
}


def understand(data: dict[str, Any]) -> tuple[Job | None, list[Finding]]:
    """The job that parsed TOML describes, and what is wrong with it.

    A misspelt key or name is corrected as was most likely meant, an unknown one left out, and the rest looked at again: so one
    slip hides no other, and is reported once. The job is None where a value is missing or wrong.
    """
    attempt = _Attempt(deepcopy(data))
    while True:
        try:
            return Job.model_validate(attempt.data), attempt.findings
        except ValidationError as error:
            errors = error.errors(include_url=False)
        corrected = [attempt.correct(error) for error in errors]
        if not any(corrected):
            return None, [*attempt.findings, *(attempt.explain(error) for error in errors)]


class _Spot(NamedTuple):
    """What one of pydantic's locations means."""

    path: KeyPath
    """In the data: pydantic puts the names of union members in between."""
    owner: type[Section]
    """The table that has the last key, or lacks it, or should not have it."""
    options: list[type[Section]]
    """The tables that may stand there; none for a plain value."""


class _Attempt:
    """The data of a job on the way to being corrected, and what was wrong so far."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.findings: list[Finding] = []
        self._written: dict[KeyPath, KeyPath] = {}

    def correct(self, error: ErrorDetails) -> bool:
        """Change the data so that this error does not come again, if it is a slip that may hide others."""
        spot = _spot(error["loc"])
        if error["type"] == "extra_forbidden":
            self._correct_key(spot)
            return True
        if error["type"] == "list_type" and spot.options and isinstance(error["input"], dict):
            self.findings.append(self._finding(spot.path, *_no_table(spot.path, error["input"])))
            self._wrap(spot.path)
            return True
        return error["type"].startswith("union_tag") and self._correct_name(spot)

    def explain(self, error: ErrorDetails) -> Finding:
        """An error in plain words."""
        kind, spot, value = error["type"], _spot(error["loc"]), error["input"]
        if kind == "missing":
            return self._finding(spot.path, *_missing(spot))
        if spot.options and (kind in _NO_TABLE or not isinstance(value, dict | list)):
            return self._finding(spot.path, *_no_table(spot.path, value))
        if kind.startswith("union_tag"):
            return self._wrong_name(spot)
        if kind == "value_error":
            return self._said_by_table(spot, str(error["ctx"]["error"]))
        return self._finding(spot.path, *_wrong_value(spot, error))

    def _correct_key(self, spot: _Spot) -> None:
        """Rename a key that nobody knows to what was meant, or drop it."""
        *parents, key = spot.path
        table = self._at(parents)
        if key not in table:
            return
        homes = _homes(str(key))
        meant = _meant(str(key), [name for name in spot.owner.model_fields if name not in table], fuzzy=not homes)
        self.findings.append(self._unknown(spot, _advice(str(key), spot, meant, homes)))
        self._replace(tuple(parents), str(key), meant, table[key])
        if meant and _heading((*parents, meant)).startswith("[[") and isinstance(table[meant], dict):
            self._wrap((*parents, meant))

    def _correct_name(self, spot: _Spot) -> bool:
        """Set right a misspelt rule, model, optimizer or data set, or the misspelt key that should name it."""
        table, names = self._at(spot.path), _names(spot.options)
        key = _naming_key(table, names)
        if key and isinstance(table[key], str) and (meant := _meant(table[key], [name for name in names if name])):
            self.findings.append(self._wrong_name(spot, f'did you mean "{meant}"?'))
            self._replace(spot.path, key, names[meant], meant)
            return True
        if key or not isinstance(table, dict):
            return False
        known = {field for option in spot.options for field in option.model_fields}
        for key in [key for key in table if key not in known]:
            if meant := _meant(key, list(names.values())):
                self.findings.append(self._unknown(spot._replace(path=(*spot.path, key)), f"did you mean `{meant}`?"))
                self._replace(spot.path, key, meant, table[key])
                return True
        return False

    def _unknown(self, spot: _Spot, suggestion: str) -> Finding:
        what = _titled(spot.path, self._at(spot.path))
        return self._finding(spot.path, f"unknown {what}", suggestion, "key")

    def _wrong_name(self, spot: _Spot, suggestion: str = "") -> Finding:
        """No rule, model, optimizer or data set, or one that does not exist."""
        table, names = self._at(spot.path), _names(spot.options)
        if not isinstance(table, dict):
            return self._finding(spot.path, *_no_table(spot.path, table))
        key = _naming_key(table, names)
        legal = ", ".join(f'{names[name]} = "{name}"' if len(set(names.values())) > 1 else f'"{name}"' for name in names if name)
        if "" in names:
            legal += ', or your own as "package.module:Class" or "file.py:Class"'
        if not key:
            wanted = _either([f"`{key}`" for key in dict.fromkeys(names.values())])
            return self._finding(spot.path, f"missing key {wanted} in {_heading(spot.path)}", f"one of {legal}")
        if not isinstance(table[key], str):
            return self._finding(
                (*spot.path, key), f"`{key}`: expected a string, got {_described(table[key])}", f"one of {legal}"
            )
        what = {"sync": "rule", "dataset": "data set"}.get(str(spot.path[-1]), str(spot.path[-1]))
        return self._finding((*spot.path, key), f"unknown {what} {_quoted(table[key])}", suggestion or f"one of {legal}")

    def _said_by_table(self, spot: _Spot, message: str) -> Finding:
        """A contradiction within a table, placed at the first of its keys that the message names."""
        table = self._at(spot.path)
        named = [word for word in re.findall(r"\w+", message) if isinstance(table, dict) and word in table]
        return self._finding((*spot.path, *named[:1]), message, "", "key" if named else "value")

    def _finding(self, path: KeyPath, message: str, suggestion: str, at: Literal["key", "value"] = "value") -> Finding:
        """A finding under the keys that the user wrote."""
        written = [self._written.get(path[: index + 1], (part,)) for index, part in enumerate(path)]
        return Finding(tuple(chain.from_iterable(written)), message, suggestion, at)

    def _at(self, path: Sequence[str | int]) -> Any:
        value: Any = self.data
        for part in path:
            value = value[part]
        return value

    def _replace(self, path: KeyPath, old: str, new: str, value: Any) -> None:
        """Give a key of a table another name and value; drop it if the name is empty."""
        table = self._at(path)
        del table[old]
        if new:
            table[new] = value
            self._written[(*path, new)] = self._written.get((*path, old), (old,))

    def _wrap(self, path: KeyPath) -> None:
        """Take a table for a list of one."""
        self._replace(path[:-1], str(path[-1]), str(path[-1]), [self._at(path)])
        self._written[(*path, 0)] = ()


# What the schema knows


def _tables(annotation: Any) -> list[type[Section]]:
    """The tables that a type annotation admits."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [table for part in get_args(annotation) for table in _tables(part)]


def _spot(location: Sequence[str | int]) -> _Spot:
    path: KeyPath = ()
    owner: type[Section] = Job
    options: list[type[Section]] = [Job]
    for part in location:
        if len(options) > 1 and isinstance(part, str):
            options = [o for o in options if part in _identity(o)[1]] or [o for o in options if not _identity(o)[1]]
            continue
        path = (*path, part)
        if isinstance(part, str) and options:
            owner = options[0]
            field = owner.model_fields.get(part)
            options = _tables(field.annotation) if field else []
    return _Spot(path, owner, options)


def _identity(table: type[Section]) -> tuple[str, tuple[str, ...]]:
    """The key that tells a table from its alternatives, and what it says there; nothing for the user's own."""
    key = next((key for key in _NAMING if key in table.model_fields), "")
    annotation = table.model_fields[key].annotation if key else None
    return key, get_args(annotation) if get_origin(annotation) is Literal else ()


def _names(options: Sequence[type[Section]]) -> dict[str, str]:
    """The names of alternative tables, each with the key it stands under; an empty name for the user's own."""
    return {name: key for key, names in map(_identity, options) for name in names or ("",)}


def _naming_key(table: Any, names: dict[str, str]) -> str:
    return next((key for key in _NAMING if isinstance(table, dict) and key in table and key in names.values()), "")


def _homes(key: str) -> str:
    """Where in a job this key belongs, in words; nothing if nowhere."""
    if key in _NAMING:
        return ""
    if key in Job.model_fields:
        return "the top of the file, before the first table"
    homes = []
    for name, field in Job.model_fields.items():
        options = _tables(field.annotation)
        having = [option for option in options if key in option.model_fields]
        if having:
            which = "" if len(having) == len(options) else f' with {_identity(having[0])[0]} = "{_identity(having[0])[1][0]}"'
            homes.append(_heading((name,)) + which)
    return _either(homes)


def _meant(word: str, legal: Sequence[str], fuzzy: bool = True) -> str:
    """What a word was most likely meant to be; nothing if nobody knows."""
    known = {other: name for other, names in _SYNONYMS.items() for name in reversed(names) if name in legal}
    if word in known or not fuzzy:
        return known.get(word, "")
    from difflib import get_close_matches

    word = word.lower()[:100]
    near = get_close_matches(word, legal, n=1) or [known[other] for other in get_close_matches(word, known, n=1, cutoff=0.8)]
    return near[0] if near else ""


# Words


def _advice(key: str, spot: _Spot, meant: str, homes: str) -> str:
    """What to do about an unknown key."""
    if meant:
        field = spot.owner.model_fields[meant]
        if _tables(field.annotation):
            return f"did you mean {_heading((meant,))}?"
        default = f" (default {_described(field.default)})" if isinstance(field.default, bool | int | float | str) else ""
        return f"did you mean `{meant}`?{default}"
    if key in Job.model_fields and _tables(Job.model_fields[key].annotation):
        return f"{_heading((key,))} is a table of its own"
    if homes:
        return f"`{key}` belongs to {homes}"
    if near := _meant(key, list(spot.owner.model_fields)):
        return f"did you mean `{near}`? it is there already"
    for synonym in _SYNONYMS.get(key, ()):
        if homes := _homes(synonym):
            return f"did you mean `{synonym}` in {homes}?"
    return "legal: " + ", ".join(spot.owner.model_fields)


def _heading(path: KeyPath) -> str:
    """A table's header as users write it."""
    *parents, last = [part for part in path if isinstance(part, str)] or [""]
    field = Job.model_fields.get(last) if not parents else None
    many = field is not None and get_origin(field.annotation) is list
    name = ".".join([*parents, last])
    return f"[[{name}]]" if many else f"[{name}]"


def _titled(path: KeyPath, value: Any) -> str:
    """A key with its table, in words: ``key `x` in [y]``."""
    name = ".".join(part for part in path if isinstance(part, str))
    if isinstance(value, dict):
        return f"table [{name}]"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return f"table [[{name}]]"
    return f"key `{path[-1]}` " + (f"in {_heading(path[:-1])}" if path[:-1] else "at the top of the file")


def _labelled(path: KeyPath) -> str:
    """A value by its key: `lr`, or `hidden[0]`."""
    last = max(index for index, part in enumerate(path) if isinstance(part, str))
    return f"`{path[last]}{''.join(f'[{index}]' for index in path[last + 1 :])}`"


def _described(value: Any) -> str:
    """A value in plain words."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f"the string {_quoted(value)}"
        case list():
            return "a list"
        case dict():
            return "a table"
        case int() | float():
            return str(value)
    return f"the {'time' if isinstance(value, time) else 'date'} {value}"


def _either(words: Sequence[str]) -> str:
    return " or ".join([", ".join(words[:-1]), *words[-1:]] if len(words) > 1 else words)


def _quoted(text: str) -> str:
    return f'"{shown(text, 60)}"'


def _missing(spot: _Spot) -> tuple[str, str]:
    """Message and suggestion for a key that is not there."""
    example = _EXAMPLES.get(str(spot.path[-1]), "") if spot.owner is Job else ""
    if spot.options:
        heading = _heading(spot.path)
        return f"missing table {heading}", f"add {heading} and below it {example}"
    return f"missing {_titled(spot.path, None)}", f"add {example}" if example else ""


def _no_table(path: KeyPath, value: Any) -> tuple[str, str]:
    """Message and suggestion for something else in a table's place."""
    heading, example = _heading(path), _EXAMPLES.get(str(path[-1]), "")
    if heading.startswith("[[") and isinstance(path[-1], str):
        return f"expected a list of tables {heading}, got {_described(value)}", f"write {heading} and below it {example}"
    if isinstance(value, list):
        return f"expected one table {heading}, got a list", f"write {heading} once"
    return f"expected a table {heading}, got {_described(value)}", f"write {heading} and below it {example}" if example else ""


def _wrong_value(spot: _Spot, error: ErrorDetails) -> tuple[str, str]:
    """Message and suggestion for a value of the wrong type, or out of range."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    label, suggestion = _labelled(spot.path), ""
    if kind in _TYPES:
        expected = f"expected {_TYPES[kind]}"
        if kind in ("int_type", "float_type", "bool_type") and str(value) and _is_toml(str(value), kind):
            suggestion = f"write {value} without quotes"
    elif kind == "literal_error":
        legal = re.findall(r"'([^']*)'", context["expected"])
        expected = "expected " + _either([_quoted(name) for name in legal])
        if isinstance(value, str) and (meant := _meant(value, legal)):
            suggestion = f'did you mean "{meant}"?'
    elif kind == "string_pattern_mismatch":
        expected = _PATTERNS.get((spot.owner, str(spot.path[-1])), f"expected a string like {context['pattern']}")
    elif kind in ("too_short", "too_long"):
        few = kind == "too_short"
        limit = f"at least {context['min_length']}" if few else f"at most {context['max_length']}"
        return f"{label}: expected {limit} elements, got {context['actual_length']}", ""
    elif context.keys() & _BOUNDS.keys():
        expected = f"expected {_range(spot, context)}"
    else:
        return f"{label}: {error['msg'][:1].lower()}{error['msg'][1:]}", ""
    return f"{label}: {expected}, got {_described(value)}", suggestion


def _is_toml(text: str, kind: str) -> bool:
    """Whether a string says, without its quotes, what was wanted."""
    patterns = {"int_type": r"-?\d{1,18}", "float_type": r"-?\d+(\.\d+)?(e-?\d+)?", "bool_type": "true|false"}
    return re.fullmatch(patterns[kind], text) is not None


def _range(spot: _Spot, context: dict[str, Any]) -> str:
    """All bounds of a value, not only the one that was hit."""
    field = spot.owner.model_fields.get(str(spot.path[-1]))
    bounds = {key: getattr(item, key) for item in (field.metadata if field else ()) for key in _BOUNDS if hasattr(item, key)}
    bounds = bounds or {key: context[key] for key in _BOUNDS if key in context}
    if bounds.keys() == {"ge", "le"}:
        return f"{bounds['ge']:,} to {bounds['le']:,}"
    return " and ".join(f"{_BOUNDS[key]} {bound:,}" for key, bound in bounds.items())
