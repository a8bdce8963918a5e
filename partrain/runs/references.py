"""References to the results of other steps: `{STEP.checkpoint}`, `{STEP.output}` or a number of its summary, in any text of a step."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

FILES = ("checkpoint", "best", "folder", "output")
"""Results that are paths. Any other name is a number of the step's summary."""
_REFERENCE = re.compile(r"\{([A-Za-z0-9][A-Za-z0-9_-]*)\.([A-Za-z0-9_][A-Za-z0-9_./-]*)\}")


class Reference(NamedTuple):
    """A reference to a result of a step."""

    step: str
    result: str

    @property
    def is_path(self) -> bool:
        """True if the result is a file or folder."""
        return self.result in FILES

    def __str__(self) -> str:
        return f"{{{self.step}.{self.result}}}"


def references(value: Any) -> Iterator[Reference]:
    """Find the references in a value, and in the values of lists and tables."""
    match value:
        case str():
            yield from (Reference(*match.groups()) for match in _REFERENCE.finditer(value))
        case dict():
            for item in value.values():
                yield from references(item)
        case list() | tuple():
            for item in value:
                yield from references(item)


def substitute(value: Any, resolve: Callable[[Reference], Any]) -> Any:
    """Replace references in a value by results.

    A text that is a single reference becomes the result itself: a number stays a number.
    """
    match value:
        case str():
            if whole := _REFERENCE.fullmatch(value):
                return resolve(Reference(*whole.groups()))
            return _REFERENCE.sub(lambda match: str(resolve(Reference(*match.groups()))), value)
        case dict():
            return {key: substitute(item, resolve) for key, item in value.items()}
        case list():
            return [substitute(item, resolve) for item in value]
    return value
