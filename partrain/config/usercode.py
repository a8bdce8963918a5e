"""User code named in a job: `package.module:Class`, or `file.py:Class` beside the job."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from pydantic import ConfigDict, Field

from partrain.config.section import Section
from partrain.errors import UserCodeFailed

Instance = TypeVar("Instance")


class UserCode(Section):
    """A table that names a class or another callable. Keys that are not ours are its keyword arguments."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(pattern=r"^[A-Za-z0-9_./-]+(\.py)?:[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$")
    """`package.module:Class`, or `file.py:Class` beside the job."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Keyword arguments for the user code."""
        return self.model_extra or {}


def make(table: str, section: UserCode, folder: Path, kind: type[Instance], known_as: str) -> Instance:
    """Import and call the user code of `[table]`; the result must be of type `kind`. `folder` holds the job."""
    named = find(table, section, folder)
    if not callable(named) or (kind is not object and isinstance(named, kind)):
        what = f"[{table}] name: `{section.name}` is an object of type {type(named).__name__}"
        raise UserCodeFailed(f"{what}; name its class, or a function that returns one")
    made = named(**section.arguments)
    if not isinstance(made, kind):
        raise UserCodeFailed(f"[{table}] name: `{section.name}` returned {type(made).__name__}, not a {known_as}")
    return made


def find(table: str, section: UserCode, folder: Path) -> Any:
    """Import the user code that the section of `[table]` names."""
    place, _, attribute = section.name.partition(":")
    module = _from_file(table, folder, place) if place.endswith(".py") else _from_package(table, place)
    try:
        return reduce(getattr, attribute.split("."), module)
    except AttributeError:
        files = '; name a class of a script by its file, "file.py:..."; in a notebook, write the file with %%writefile file.py'
        advice = files if place == "__main__" else ""
        raise UserCodeFailed(f"[{table}] name: `{place}` has no `{attribute}`{advice}") from None


def frames(error: BaseException) -> str:
    """Return the lines of a traceback that lie in user code; "" if there are none."""
    return "".join(traceback.format_list([f for f in traceback.extract_tb(error.__traceback__) if _is_users(f.filename)]))


def _is_users(filename: str) -> bool:
    path, ours = Path(filename), Path(__file__).parents[1]
    libraries = "site-packages" in path.parts or path.is_relative_to(Path(os.__file__).parent)
    return not path.is_relative_to(ours) and not libraries and path.is_file()


def _from_package(table: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            what = f"[{table}] name: no module `{name}` in this Python environment"
            raise UserCodeFailed(f'{what}; install it there, or name a file beside the job: "file.py:..."') from None
        raise


def _from_file(table: str, folder: Path, name: str) -> ModuleType:
    """Import a file inside the job's folder once, as a module with a name of its own. `sys.path` stays as it is.

    If the file is the running script, return that module.
    """
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise UserCodeFailed(f"[{table}] name: `{name}` is outside the job's folder")
    if not path.is_file():
        raise UserCodeFailed(f"[{table}] name: no file `{name}` beside the job")
    main = sys.modules["__main__"]
    if Path(getattr(main, "__file__", None) or "").resolve() == path:  # a script trains a class of its own
        return main
    known = f"partrain_user_{path.stem}"
    if known in sys.modules and getattr(sys.modules[known], "__file__", None) == str(path):
        return sys.modules[known]
    spec = importlib.util.spec_from_file_location(known, path)
    if spec is None or spec.loader is None:
        raise UserCodeFailed(f"[{table}] name: `{name}` cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module
