"""Python objects that replace tables of a job: `partrain.train(model=MODULE, dataset=(X, y))`.

A job is text, so the table of such an object holds its digest, and `name = "<python>"`. The object itself stays in this process,
in a context variable; user code reaches the worker processes as a pickle, over their private pipes. No file ever holds the
pickle.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from partrain.errors import BadJob, UserCodeFailed

PYTHON = "<python>"
"""Name of user code that is an object of the calling script."""
ABOUT = "class"
"""Key of such a table whose value describes the object. No argument can have this name: it is a keyword of Python."""
ARRAYS = "<arrays>"
"""Name of a data set of arrays in memory."""
FRAMES = {None: "<dataframe>", "series": "<series>", "documents": "<documents>"}
"""Names of data sets of DataFrames in memory, by the kind that the script gives."""
HOW = {
    "model": "partrain.load(RUN, model=...)",
    "dataset": "partrain.load(RUN, dataset=...)",
    "task": "partrain.load(RUN, task=...)",
    "hooks": "partrain.load(RUN, hooks=...)",
}
"""The call that supplies the object of a table to a run that is loaded again."""


@dataclass(frozen=True)
class PythonObjects:
    """The objects of one job."""

    pickled: Mapping[str, bytes] = field(default_factory=dict)
    """Pickled user code, by table."""
    data: Any = None
    """Arrays or DataFrames of the data set, see `partrain.data.python`."""


_current: ContextVar[PythonObjects] = ContextVar("python_objects", default=PythonObjects())  # noqa: B039  frozen


@contextmanager
def standing_for_tables(objects: PythonObjects) -> Iterator[None]:
    """Let objects replace the tables of jobs that this thread reads and trains within the context."""
    token = _current.set(objects)
    try:
        yield
    finally:
        _current.reset(token)


def current() -> PythonObjects:
    """Return the objects of the job that is being read or trained."""
    return _current.get()


def absent(table: str) -> BadJob:
    """Make the error for a table whose object is not in this process."""
    what = {"model": "network", "dataset": "data set", "hooks": "function"}.get(table, table)
    return BadJob(f"[{table}] the {what} is an object of the Python script that trained; in Python, {HOW[table]} reads the run")


def dumps(table: str, thing: Any) -> bytes:
    """Pickle user code for the worker processes. They do not import the script, so cloudpickle carries the classes of `__main__`.

    Raises UserCodeFailed if that is impossible.
    """
    import cloudpickle  # few runs need it

    with suppress(Exception):
        data = pickle.dumps(thing)
        if b"__main__" not in data:
            return data
    try:
        return bytes(cloudpickle.dumps(thing))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserCodeFailed(f"[{table}] {type(thing).__name__} cannot be sent to the workers: {reason}") from None


def loads(data: bytes) -> Any:
    """Return a new copy of an object that this process or its parent pickled."""
    return pickle.loads(data)
