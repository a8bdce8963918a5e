"""The generated pages of docs/reference/, by their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from generate.commands import commands
from generate.events import events
from generate.job import job, workflow
from generate.python import python

FOLDER = Path(__file__).parents[1] / "reference"
FILES: dict[Path, Callable[[], str]] = {
    FOLDER / f"{page.__name__}.md": page for page in (job, workflow, commands, events, python)
}
