"""Tables of a job as functions, for completion: `partrain.sections.Adam(lr=0.01)`, `partrain.sections.Average(passes=1)`.

Each returns the table that `partrain.train` and `partrain.Job` take. Its signature and `help` list the keys, with their defaults.
A wrong key or value raises the `Failure` of a job file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, get_args

from partrain.config.section import Section
from partrain.job.python_job import PythonJob
from partrain.job.reference import describe_type, texts
from partrain.job.schema import Job, identity, tables_under

_REST: dict[str, Any] = {
    "name": "job",
    "model": {"name": "linear"},
    "dataset": {"name": "mnist"},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "sync": {"rule": "average"},
    "workers": [{}],
    "stop": {},
}
"""The rest of the job, for the check of a table."""
_LEFT_OUT = ("sweep", "task")


def __getattr__(name: str) -> Callable[..., Any]:
    maker = _makers().get(name)
    if maker is None:
        raise AttributeError(f"module `partrain.sections` has no attribute `{name}`")
    return maker


def __dir__() -> list[str]:
    return sorted(_makers())


@cache
def _makers() -> dict[str, Callable[..., Any]]:
    """Return the functions by name: the names of the tables' classes."""
    makers = {}
    for key, field in Job.model_fields.items():
        for table in tables_under(field) if key not in _LEFT_OUT else ():
            name = table.__name__.removesuffix("Section")
            makers[name] = _maker(key, table, name)
    return makers


def _maker(key: str, table: type[Section], name: str) -> Callable[..., Any]:
    naming, names = identity(table)
    fixed = {naming: names[0]} if len(names) == 1 and names[0] in get_args(table.model_fields[naming].annotation) else {}
    fields = {field: annotation for field, annotation in table.model_fields.items() if field not in fixed}

    def make(**keys: Any) -> Any:
        settings = {**fixed, **keys}
        made = getattr(PythonJob(**_REST | {key: [settings] if key == "workers" else settings}), key)
        return made[0] if key == "workers" else made

    make.__name__ = make.__qualname__ = name
    make.__module__ = __name__
    documented = texts(table)
    lines = [
        f"    {field}: {describe_type(annotation)}. {documented.get(field, '')}".rstrip(". ")
        for field, annotation in fields.items()
    ]
    make.__doc__ = "\n".join([inspect.cleandoc(table.__doc__ or ""), "", "Keys:", *lines])
    parameters = [
        inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY, default=_default(annotation))
        for field, annotation in fields.items()
        if field.isidentifier() and field not in ("from", "except")
    ]
    parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
    make.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return make


def _default(field: Any) -> Any:
    return inspect.Parameter.empty if field.is_required() else field.get_default(call_default_factory=True)
