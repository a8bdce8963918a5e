"""Modules that are imported when they are first used: collecting all tests would take the seconds of what few of them need."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Lazy:
    """A module, by its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
