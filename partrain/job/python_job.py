"""Jobs made by a script or a notebook: `Job(...)` finds the same problems as a job file, and names them by their keys."""

from __future__ import annotations

import os
from datetime import date, time
from typing import Any

from pydantic import ValidationError

from partrain.config.problems import Finding, KeyPath, Problem, Rejected
from partrain.config.section import Section
from partrain.job.schema import Job, given_in
from partrain.job.validation_errors import STAND_INS, explain

_CODE = {"model": "network", "dataset": "data set", "task": "task"}
"""Tables that objects may replace."""


class PythonJob(Job):
    """A job made in Python, `partrain.Job`."""

    def __init__(self, **tables: Any) -> None:
        """Make a job from its tables, given as in a job file. Raises `BadJob` with all problems."""
        data = as_data(tables)
        if objects := _without_objects(data, ())[1]:
            raise _refused(data, objects)
        try:
            super().__init__(**data)
        except ValidationError:
            raise _refused(data, []) from None


def as_data(value: Any) -> Any:
    """Convert a script's values to a job's: numpy and torch numbers to Python's, arrays and tuples to lists, paths to texts."""
    if isinstance(value, dict):
        return {key: as_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_data(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return value.tolist()
    return value


def _refused(data: dict[str, Any], findings: list[Finding]) -> Rejected:
    """Return the error for tables that are not a job. `findings`: their objects that no job can hold."""
    places = [finding.path for finding in findings]
    plain = _without_objects(data, ())[0]
    try:
        Job.model_validate(plain)
    except ValidationError as remaining:
        others = explain(plain, remaining)[1]
        findings = findings + [other for other in others if not any(other.path[: len(place)] == place for place in places)]
    return Rejected.in_python(map(Problem.in_python, findings))


def _without_objects(value: Any, path: KeyPath) -> tuple[Any, list[Finding]]:
    """Return data with tables in place of sections and without other Python objects, and a finding for each such object."""
    if isinstance(value, Section):
        value = given_in(value)
    if isinstance(value, dict):
        named = {str(key): _without_objects(item, (*path, str(key))) for key, item in value.items()}
        return {key: data for key, (data, _) in named.items()}, [place for _, objects in named.values() for place in objects]
    if isinstance(value, list):
        listed = [_without_objects(item, (*path, index)) for index, item in enumerate(value)]
        return [data for data, _ in listed], [place for _, objects in listed for place in objects]
    if value is None or isinstance(value, str | int | float | date | time):
        return value, []
    kind = value if isinstance(value, type) else type(value)
    what = f"the class `{kind.__name__}`" if kind is value else f"an object of type `{kind.__name__}`"
    finding = Finding(path, f"a job holds texts, numbers, lists and tables, not {what}", _instead_of(kind, path))
    network = STAND_INS["model"]["name"]  # a name of anything: findings below an object's key are dropped
    return STAND_INS.get(str(path[0]), network) if len(path) == 1 else network, [finding]


def _instead_of(kind: type, path: KeyPath) -> str:
    """Return the value to give in place of an object."""
    table = str(path[0])
    if table in _CODE and path[1:] in ((), ("name",)):
        return f'partrain.train({table}=...) takes it; or write the class to a file: name = "file.py:{kind.__name__}"'
    if path[:2] == ("task", "metrics"):
        return f'write the function to a file, and name it: metrics = ["file.py:{getattr(kind, "__name__", "f")}"]'
    if table in _CODE:
        return f"write a text, a number, a list or a table; or a function that makes the {_CODE[table]}: {table}=lambda: ..."
    if len(path) == 1 and table != "name":
        example = STAND_INS.get(table)
        return f"give a table: {f'a dict as {example}' if example else 'a dict'}, or one of partrain.sections"
    return "write a text, a number, a list or a table"


def check_table(key: str, table: Any) -> None:
    """Raise `BadJob` for a table that no job can hold under this key."""
    PythonJob(**STAND_INS | {key: table})
