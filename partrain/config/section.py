"""The base class of all tables of a job file, and the choice of one of several tables by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema


class Section(BaseModel):
    """One table of a job file: frozen, no unknown keys, no type conversions, finite numbers only."""

    # Build validators on first use: workers receive validated jobs, and so start sooner.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


class OneOf:
    """The alternative tables of one key: `Annotated[Base, OneOf(...)]`. Each is imported when a job names it.

    Args:
        targets: `module:Class` of each table, by its name.
        which: Returns the name of a table, given as parsed TOML or as a section.
        unlisted: Further tables, which no documentation lists.
    """

    def __init__(
        self, targets: Mapping[str, str], which: Callable[[Any], str | None], unlisted: Mapping[str, str] | None = None
    ) -> None:
        self.targets, self.which, self.unlisted = targets, which, unlisted or {}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        choices: dict[Any, Any] = {
            name: core_schema.no_info_plain_validator_function(partial(self._validate, name))
            for name in (*self.targets, *self.unlisted)
        }
        return core_schema.tagged_union_schema(choices, self.which)

    def _validate(self, name: str, value: Any) -> Section:
        return self.table(name).model_validate(value)

    def table(self, name: str) -> type[Section]:
        """Import and return the table of this name."""
        module, _, attribute = (self.targets.get(name) or self.unlisted[name]).partition(":")
        section: type[Section] = getattr(import_module(module), attribute)
        return section

    @property
    def tables(self) -> list[type[Section]]:
        """All listed tables; this imports them."""
        return [self.table(name) for name in self.targets]


def by_key(key: str) -> Callable[[Any], str | None]:
    """Distinguish tables by the name under one key."""

    def which(table: Any) -> str | None:
        name = table.get(key) if isinstance(table, dict) else getattr(table, key, None)
        return name if isinstance(name, str) else None

    return which
