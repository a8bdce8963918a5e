"""User code named in a job: `package.module:Class`, or `file.py:Class` next to the job."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from pydantic import ConfigDict, Field, PrivateAttr, model_validator

from partrain.config import python_objects
from partrain.config.problems import did_you_mean
from partrain.config.python_objects import ABOUT, PYTHON
from partrain.config.section import Section
from partrain.errors import InputMissing, UserCodeFailed
from partrain.number_format import plural

Instance = TypeVar("Instance")

NAME = r"^[A-Za-z0-9_./-]+(\.py)?:[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
"""Pattern of `package.module:Class` and `file.py:Class`."""


class UserCode(Section):
    """A table that names a class or another callable. Keys that are not ours are its keyword arguments."""

    model_config = ConfigDict(extra="allow")

    table: ClassVar[str]
    """The table that names the code."""

    name: str = Field(pattern=rf"{NAME}|^<python>$")
    """`package.module:Class`, or `file.py:Class` next to the job."""
    _pickled: bytes = PrivateAttr(b"")
    """The object of the calling script that `<python>` refers to. It travels with the section, and no file holds it."""

    @model_validator(mode="after")
    def _take_python_object(self) -> Self:
        if self.name == PYTHON:
            self._pickled = python_objects.current().pickled.get(self.table, b"")
        return self

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Keyword arguments for the user code. One key of a Python object describes it."""
        return {key: value for key, value in (self.model_extra or {}).items() if self.name != PYTHON or key != ABOUT}

    @property
    def called(self) -> str:
        """Name of the code for people; for a Python object, the name of its class or function."""
        return self.about["name"] if self.name == PYTHON and "name" in self.about else self.name

    @property
    def about(self) -> Mapping[str, str]:
        """The description of a Python object: `class`, `digest` and perhaps `initial`."""
        about: Mapping[str, str] = (self.model_extra or {}).get(ABOUT, {})
        return about


class Parameters(NamedTuple):
    """The parameters of a function, or of a class."""

    names: Sequence[str]
    needed: Sequence[str]
    """Parameters without a default."""
    any: bool
    """The code also takes other keyword arguments."""


def unfit_arguments(
    name: str, table: str, arguments: Collection[str], takes: Parameters, own: Sequence[str] = ()
) -> Iterator[tuple[str, str, str]]:
    """Compare the keyword arguments given in `[table]` with the parameters of the code `name`.

    Yields key, message and suggestion for each unfit argument. `own`: keys of the table that are not arguments.
    """
    for key in arguments:
        if not takes.any and key not in takes.names:
            near = did_you_mean(key, [*takes.names, *own])
            advice = f"did you mean `{near}`?" if near else f"it takes {', '.join(takes.names) or 'no arguments'}"
            yield key, f"`{name}` takes no argument `{key}`", advice
    if lacking := [key for key in takes.needed if key not in arguments]:
        names = ", ".join(f"`{key}`" for key in lacking)
        advice = f"add {'it' if len(lacking) == 1 else 'them'} to [{table}]"
        yield "name", f"`{name}` needs the {plural('argument', len(lacking))} {names}", advice


def make(table: str, section: UserCode, folder: Path, kind: type[Instance], known_as: str) -> Instance:
    """Import and call the user code of `[table]`; the result must be of type `kind`. `folder` holds the job."""
    named = find(table, section, folder)
    if (
        section.name == PYTHON
        and not isinstance(named, type)
        and (not callable(named) if kind is object else isinstance(named, kind))
    ):
        made: Instance = named
        return made
    if not callable(named) or (kind is not object and isinstance(named, kind)):
        what = f"[{table}] name: `{section.name}` is an object of type {type(named).__name__}"
        raise UserCodeFailed(f"{what}; name its class, or a function that returns one")
    made = named(**section.arguments)
    if not isinstance(made, kind):
        raise UserCodeFailed(f"[{table}] name: `{section.name}` returned {type(made).__name__}, not a {known_as}")
    return made


def find(table: str, section: UserCode, folder: Path, key: str = "name") -> Any:
    """Import the user code that the section of `[table]` names by a key, or copy its Python object."""
    if section.name == PYTHON:
        if not section._pickled:
            raise python_objects.absent(table)
        return python_objects.loads(section._pickled)
    place, _, attribute = section.name.partition(":")
    where = f"[{table}] {key}"
    module = _from_file(where, folder, place) if place.endswith(".py") else _from_package(where, place)
    try:
        return reduce(getattr, attribute.split("."), module)
    except AttributeError:
        files = '; name a class of a script by its file, "file.py:..."; in a notebook, write the file with %%writefile file.py'
        advice = files if place == "__main__" else ""
        raise UserCodeFailed(f"{where}: `{place}` has no `{attribute}`{advice}") from None


def frames(error: BaseException) -> str:
    """Return the lines of a traceback that are in user code; "" if there are none."""
    return "".join(traceback.format_list([f for f in traceback.extract_tb(error.__traceback__) if _is_users(f.filename)]))


def _is_users(filename: str) -> bool:
    path, ours = Path(filename), Path(__file__).parents[1]
    libraries = "site-packages" in path.parts or path.is_relative_to(Path(os.__file__).parent)
    return not path.is_relative_to(ours) and not libraries and path.is_file()


def _from_package(where: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            what = f"{where}: no module `{name}` in this Python environment"
            raise UserCodeFailed(f'{what}; install it there, or name a file next to the job: "file.py:..."') from None
        raise


def _from_file(where: str, folder: Path, name: str) -> ModuleType:
    """Import a file in the job's folder once, as a module with a unique name. `sys.path` stays unchanged.

    If the file is the running script, return that module.
    """
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise UserCodeFailed(f"{where}: `{name}` is outside the job's folder")
    if not path.is_file():
        raise InputMissing(f"{where}: no file `{name}` next to the job")
    main = sys.modules["__main__"]
    if Path(getattr(main, "__file__", None) or "").resolve() == path:  # a script trains a class of its own
        return main
    module_name = f"partrain_user_{path.stem}"
    if module_name in sys.modules and getattr(sys.modules[module_name], "__file__", None) == str(path):
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise UserCodeFailed(f"{where}: `{name}` cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module
