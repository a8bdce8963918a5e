"""Explanations of an invalid job: pydantic's errors become findings. Imported only if there are errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from itertools import chain
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from partrain.config.problems import Finding, KeyPath
from partrain.job.messages import advise_on_key, describe_key, describe_value, missing, no_table, quoted, wrong_value
from partrain.job.reference import describe_type
from partrain.job.schema import (
    Job,
    Location,
    heading,
    join_or,
    likely_meaning,
    locate,
    names_of,
    naming_key,
    tables_of,
    tables_with_key,
)

UNION = "union"
_NO_TABLE = ("list_type", "model_type", "model_attributes_type", "dict_type")
STAND_INS: dict[str, Any] = {
    "name": "job",
    "model": {"name": "linear"},
    "dataset": {"name": "mnist"},
    "optimizer": {"name": "adam", "lr": 0.001},
    "sync": {"rule": "average", "passes": 1},
    "workers": [{"count": 2}],
    "stop": {"rounds": 20},
}
"""Valid values of required keys. They replace invalid tables while the others are validated."""


def explain(data: dict[str, Any], error: ValidationError) -> tuple[dict[str, Any], list[Finding]]:
    """Turn pydantic's errors into findings; also return the valid tables, as `tables_of` does for a whole job.

    A misspelt key or name is corrected to the likely one, an unknown key is dropped, and the rest is validated again. So one
    slip hides no other, and each is reported once.
    """
    attempt = _Repair(deepcopy(data))
    while True:
        errors = error.errors(include_url=False)
        corrected = [attempt.correct(error) for error in errors]
        if not any(corrected):
            return attempt.valid_tables(errors), [*attempt.findings, *map(attempt.explain, _united(errors))]
        try:
            return tables_of(Job.model_validate(attempt.data)), attempt.findings
        except ValidationError as remaining:
            error = remaining


def _united(errors: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Return one error of the type `UNION` for all errors on a key with several possible types: pydantic has one for each type."""
    united: dict[tuple[str | int, ...], ErrorDetails] = {}
    for error in errors:
        location = error["loc"]
        for length in range(1, len(location)):
            spot = locate(location[:length])
            field = spot.owner.model_fields.get(str(spot.path[-1])) if spot.path and not spot.options else None
            if field and field.annotation and len({*get_args(field.annotation)} - {type(None)}) > 1:
                if isinstance(field.annotation, UnionType) or get_origin(field.annotation) is Union:
                    location, error = location[:length], {**error, "type": UNION, "loc": location[:length]}
                break
        united.setdefault(location, error)
    return list(united.values())


class _Repair:
    """The data of a job while it is repaired, and the findings so far."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.findings: list[Finding] = []
        self._written: dict[KeyPath, KeyPath] = {}

    def correct(self, error: ErrorDetails) -> bool:
        """Repair the data if this error is a slip that may hide others; return whether it was."""
        spot = locate(error["loc"])
        if error["type"] == "extra_forbidden":
            return self._correct_key(spot)
        if error["type"] == "list_type" and spot.options and isinstance(error["input"], dict):
            self.findings.append(self._finding(spot.path, *no_table(spot.path, error["input"])))
            self._wrap(spot.path)
            return True
        return error["type"].startswith("union_tag") and self._correct_name(spot)

    def explain(self, error: ErrorDetails) -> Finding:
        """Turn an error into a finding."""
        kind, spot, value = error["type"], locate(error["loc"]), error["input"]
        if kind == "missing":
            return self._finding(spot.path, *missing(spot))
        if spot.options and (kind in _NO_TABLE or not isinstance(value, dict | list)):
            return self._finding(spot.path, *no_table(spot.path, value))
        if kind.startswith("union_tag"):
            return self._wrong_name(spot)
        if kind == UNION:
            types = describe_type(spot.owner.model_fields[str(spot.path[-1])])
            types = re.sub(r"list: ([\w ]+?)(?= or |$)", r"a list of \1s", types)
            return self._finding(spot.path, f"`{spot.path[-1]}`: expected {types}, got {describe_value(self._at(spot.path))}", "")
        if kind == "value_error":
            return self._said_by_table(spot, str(error["ctx"]["error"]))
        return self._finding(spot.path, *wrong_value(spot, error))

    def valid_tables(self, errors: Sequence[ErrorDetails]) -> dict[str, Any]:
        """Return the tables without errors, as `tables_of` does for a whole job."""
        invalid = {str(locate(error["loc"]).path[0]) for error in errors}
        data = {name: value for name, value in self.data.items() if name not in invalid}
        job = Job.model_validate({**data, **{name: value for name, value in STAND_INS.items() if name in invalid}})
        return {**{name: table for name, table in tables_of(job).items() if name not in invalid}, "names": self.data.keys()}

    def _correct_key(self, spot: Location) -> bool:
        """Rename an unknown key to the likely one, or drop it; return whether it was there."""
        *parents, key = spot.path
        table = self._at(parents)
        if key not in table:
            return False
        homes = tables_with_key(str(key))
        meant = likely_meaning(str(key), list(spot.owner.model_fields), fuzzy=not homes)
        meant = "" if meant in table else meant
        self.findings.append(self._unknown(spot, advise_on_key(str(key), spot, meant, homes)))
        self._replace(tuple(parents), str(key), meant, table[key])
        if meant and heading((*parents, meant)).startswith("[[") and isinstance(table[meant], dict):
            self._wrap((*parents, meant))
        return True

    def _correct_name(self, spot: Location) -> bool:
        """Repair a misspelt rule, model, optimizer or data set, or the misspelt key of its name."""
        table, names = self._at(spot.path), names_of(spot.options)
        key = naming_key(table, names)
        if key and isinstance(table[key], str) and (meant := likely_meaning(table[key], [name for name in names if name])):
            self.findings.append(self._wrong_name(spot, f'did you mean "{meant}"?'))
            self._replace(spot.path, key, names[meant], meant)
            return True
        if key or not isinstance(table, dict):
            return False
        fields = {field for option in spot.options for field in option.model_fields}
        for key in [key for key in table if key not in fields]:
            if meant := likely_meaning(key, list(names.values())):
                self.findings.append(self._unknown(spot._replace(path=(*spot.path, key)), f"did you mean `{meant}`?"))
                self._replace(spot.path, key, meant, table[key])
                return True
        return False

    def _unknown(self, spot: Location, suggestion: str) -> Finding:
        what = describe_key(spot.path, self._at(spot.path))
        return self._finding(spot.path, f"unknown {what}", suggestion, "key")

    def _wrong_name(self, spot: Location, suggestion: str = "") -> Finding:
        """Report a missing or unknown rule, model, optimizer or data set."""
        table, names = self._at(spot.path), names_of(spot.options)
        if not isinstance(table, dict):
            return self._finding(spot.path, *no_table(spot.path, table))
        key = naming_key(table, names)
        legal = ", ".join(f'{names[name]} = "{name}"' if len(set(names.values())) > 1 else f'"{name}"' for name in names if name)
        if "" in names:
            legal += ', or your own as "package.module:Class" or "file.py:Class"'
        if not key:
            wanted = join_or([f"`{key}`" for key in dict.fromkeys(names.values())])
            return self._finding(spot.path, f"missing key {wanted} in {heading(spot.path)}", f"one of {legal}")
        if not isinstance(table[key], str):
            return self._finding(
                (*spot.path, key), f"`{key}`: expected a string, got {describe_value(table[key])}", f"one of {legal}"
            )
        what = {"sync": "rule", "dataset": "data set"}.get(str(spot.path[-1]), str(spot.path[-1]))
        return self._finding((*spot.path, key), f"unknown {what} {quoted(table[key])}", suggestion or f"one of {legal}")

    def _said_by_table(self, spot: Location, message: str) -> Finding:
        """Report a contradiction within a table, at the first of its keys that the message names."""
        table = self._at(spot.path)
        named = [word for word in re.findall(r"\w+", message) if isinstance(table, dict) and word in table]
        return self._finding((*spot.path, *named[:1]), message, "", "key" if named else "value")

    def _finding(self, path: KeyPath, message: str, suggestion: str, at: Literal["key", "value"] = "value") -> Finding:
        """Make a finding at the keys that the user wrote."""
        written = [self._written.get(path[: index + 1], (part,)) for index, part in enumerate(path)]
        return Finding(tuple(chain.from_iterable(written)), message, suggestion, at)

    def _at(self, path: Sequence[str | int]) -> Any:
        value: Any = self.data
        for part in path:
            value = value[part]
        return value

    def _replace(self, path: KeyPath, old: str, new: str, value: Any) -> None:
        """Rename a key of a table and set its value; drop it if the name is empty."""
        table = self._at(path)
        del table[old]
        if new:
            table[new] = value
            self._written[(*path, new)] = self._written.get((*path, old), (old,))

    def _wrap(self, path: KeyPath) -> None:
        """Wrap a table in a list."""
        self._replace(path[:-1], str(path[-1]), str(path[-1]), [self._at(path)])
        self._written[(*path, 0)] = ()
