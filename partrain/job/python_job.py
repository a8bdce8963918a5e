"""Jobs that a script or a notebook makes: `Job(...)` finds the problems that a job file has, and names them by their keys."""

from __future__ import annotations

from datetime import date, time
from typing import Any

from pydantic import ValidationError

from partrain.config.problems import Finding, KeyPath, Problem, Rejected
from partrain.job.schema import Job
from partrain.job.validation_errors import explain

_STAND_IN = "linear"
"""Name of a network, for an object in its place: the rest is checked with it."""


class PythonJob(Job):
    """A job made in Python, `partrain.Job`."""

    def __init__(self, **tables: Any) -> None:
        """Make a job from its tables, given as in a job file. Raises `BadJob` with all problems."""
        try:
            super().__init__(**tables)
        except ValidationError:
            raise _refused(tables) from None


def _refused(tables: dict[str, Any]) -> Rejected:
    """Return the error for tables that are no job."""
    data, findings = _without_objects(tables, ())
    places = [each.path for each in findings]
    try:
        Job.model_validate(data)
    except ValidationError as remaining:
        others = explain(data, remaining)[1]
        findings += [each for each in others if not any(each.path[: len(place)] == place for place in places)]
    rejected = Rejected(Problem(f"Job: {_dotted(each.path)}", 0, 0, 0, each.message, each.suggestion) for each in findings)
    # A traceback shows the text of the exception alone, so all problems and suggestions belong to it.
    rejected.args = ("\n".join(f"{each.summary}; {each.suggestion}".removesuffix("; ") for each in rejected.problems),)
    return rejected


def _without_objects(value: Any, path: KeyPath) -> tuple[Any, list[Finding]]:
    """Return data without Python objects that no job can hold, and a finding for each."""
    if isinstance(value, dict):
        named = {str(key): _without_objects(each, (*path, str(key))) for key, each in value.items()}
        return {key: data for key, (data, _) in named.items()}, [each for _, found in named.values() for each in found]
    if isinstance(value, list | tuple):
        listed = [_without_objects(each, (*path, index)) for index, each in enumerate(value)]
        return [data for data, _ in listed], [each for _, found in listed for each in found]
    if value is None or isinstance(value, str | int | float | date | time):
        return value, []
    kind = value if isinstance(value, type) else type(value)
    what = f"the class `{kind.__name__}`" if kind is value else f"an object of type `{kind.__name__}`"
    message = f"a job holds texts, numbers, lists and tables, not {what}"
    finding = Finding(
        path, message, f'partrain.train({path[0]}=...) takes it; or write the class to a file: name = "file.py:{kind.__name__}"'
    )
    return {"name": _STAND_IN} if len(path) == 1 else _STAND_IN, [finding]


def _dotted(path: KeyPath) -> str:
    return ".".join(map(str, path))
