"""Networks of the user's own: `package.module:Class`, or `file.py:Class` beside the job."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from torch import nn

from partrain.errors import UserCodeFailed

if TYPE_CHECKING:
    from partrain.models import UserModel


def build(section: UserModel, folder: Path) -> nn.Module:
    """Import the class and call it with the table's other keys."""
    place, _, attribute = section.name.partition(":")
    module = _from_file(folder, place) if place.endswith(".py") else _from_package(place)
    try:
        maker = reduce(getattr, attribute.split("."), module)
    except AttributeError:
        raise UserCodeFailed(f"[model] name: `{place}` has no `{attribute}`") from None
    made = maker(**(section.model_extra or {}))  # type: ignore[operator]
    if not isinstance(made, nn.Module):
        raise UserCodeFailed(f"[model] name: `{section.name}` gave {type(made).__name__}, not a torch.nn.Module")
    return made


def _from_package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise UserCodeFailed(f"[model] name: no module `{name}` in this Python environment") from None
        raise


def _from_file(folder: Path, name: str) -> ModuleType:
    """A file inside the job's folder, loaded under a name of its own: nothing is put on sys.path."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise UserCodeFailed(f"[model] name: `{name}` is outside the job's folder")
    if not path.is_file():
        raise UserCodeFailed(f"[model] name: no file `{name}` beside the job")
    spec = importlib.util.spec_from_file_location(f"partrain_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UserCodeFailed(f"[model] name: `{name}` cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
