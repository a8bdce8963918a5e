"""Imports that wait until they are needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


@contextmanager
def postponed(name: str, *functions: str) -> Iterator[None]:
    """Let packages imported in this context have these functions of a module without importing it.

    The first call of one imports the module, and so does any other use of the module.
    """
    if name in sys.modules:
        yield
        return
    module = ModuleType(name)

    def forget() -> None:
        if sys.modules.get(name) is module:
            del sys.modules[name]

    def real(attribute: str) -> Any:
        if attribute.startswith("__"):  # the import system asks whether this is a package
            raise AttributeError(attribute)
        forget()
        return getattr(import_module(name), attribute)

    def calling(function: str) -> Any:
        return lambda *arguments, **named: real(function)(*arguments, **named)

    vars(module).update({function: calling(function) for function in functions}, __getattr__=real)
    sys.modules[name] = module
    try:
        yield
    finally:
        forget()
